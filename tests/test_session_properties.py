"""Random sessions beside a model of one: whatever is appended, replaced, undone, taken back or cut, loading gives the
live view."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from corecoder.errors import SessionError
from corecoder.events import Usage
from corecoder.journal import decode
from corecoder.session import Session

Message = dict[str, Any]

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(["\n", "\u2028", "\x85", "\ud83d", "\ude00"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.dictionaries(ANY_TEXT, VALUES, max_size=3) | ANY_TEXT.map(lambda text: {"role": "user", "content": text})


def exact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


class AnySession(RuleBasedStateMachine):
    """The model: a list for the view, a list of (view before, length of the log then) for what can be undone, and for
    each turn the same and how much could be undone then."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.session = Session.create(Path(self.folder.name), Path(self.folder.name), system="\ud800 s")
        self.view: list[Message] = []
        self.logged: list[Message] = []
        self.ids: list[int] = []
        self.undoable: list[tuple[list[Message], int]] = []
        self.turns: list[tuple[list[Message], int, int]] = []
        self.everything: list[tuple[int, Message]] = []
        self.usage = Usage()

    def teardown(self) -> None:
        self.session.close()
        self.folder.cleanup()

    @rule(message=MESSAGES, turn=st.booleans())
    def append(self, message: Message, turn: bool) -> None:
        if turn:
            self.turns.append((list(self.view), len(self.logged), len(self.undoable)))
        self.ids.append(self.session.append(message, **({"turn": True, "cwd": "x"} if turn else {})))
        self.logged.append(message)
        self.everything.append((self.ids[-1], message))
        self.view.append(message)

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        if self.turns:
            at = data.draw(st.integers(0, len(self.turns) - 1))
            _, record = self.session.turns[at]
            assert self.session.rewind(record) == {"turn": True, "cwd": "x"}
            self.view, length, undoable = self.turns[at]
            del self.turns[at:], self.logged[length:], self.ids[length:], self.undoable[undoable:]

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        kept = [message for message in self.session.view if data.draw(st.booleans())]
        fresh = data.draw(st.lists(MESSAGES, max_size=3))
        view = data.draw(st.permutations(kept + fresh)) if data.draw(st.booleans()) else fresh + kept
        self.undoable.append((self.view, len(self.logged)))
        self.session.replace_view(view, how="random", fact=1)
        self.view = list(view)

    @rule()
    def undo(self) -> None:
        assert self.session.undo() is bool(self.undoable)
        if self.undoable:
            before, length = self.undoable.pop()
            self.view = before + self.logged[length:]
            self.turns = [
                # What was compacted before a turn and is undone after it stays undone where one goes back to the turn.
                (before + self.logged[length:at], at, undoable - 1) if undoable > len(self.undoable) else turn
                for turn in self.turns
                for _, at, undoable in [turn]
            ]

    @rule(prompt=st.integers(0, 1000))
    def count(self, prompt: int) -> None:
        usage = Usage(prompt, 1, 2, 3, 0.1)
        self.session.usage(usage)
        self.usage += usage

    @rule()
    def reload(self) -> None:
        self.session.close()
        if self.session.path.exists():
            self.session = Session.load(self.session.path)
            assert self.session.notices == []
            assert self.session.system == "\ud800 s"

    @rule()
    def fork(self) -> None:
        if not self.session.path.exists():
            return
        copy = Session.load(self.session.path)
        assert copy.path != self.session.path
        self.session.close()
        self.session = copy

    @rule()
    def go_on_in_memory_and_back(self) -> None:
        """What is only in memory behaves alike; what was on disk is what the disk gives."""
        if not self.session.path.exists():
            return
        before = exact(self.session.view)
        self.session.keep_in_memory()
        self.session.append({"role": "user", "content": "gone"})
        self.session.replace_view([*self.session.view[:1], {"role": "user", "content": "S"}], how="random")
        assert self.session.undo()
        assert exact(self.session.view[:-1]) == before
        self.reload()

    @invariant()
    def the_view_is_what_it_should_be(self) -> None:
        view = self.session.view
        assert exact(view) == exact(self.view)
        assert all(a is b for a, b in zip(view, self.session.view, strict=True))
        for message in view:
            record = self.session.id_of(message)
            assert record is not None
            assert exact(self.session.message(record)) == exact(message)

    @invariant()
    def every_message_can_be_fetched(self) -> None:
        assert [record for record, _ in self.session.messages()] == self.ids
        assert exact([message for _, message in self.session.messages()]) == exact(self.logged)
        assert len(self.session.turns) == len(self.turns)
        for record, message in self.everything:
            assert exact(self.session.message(record)) == exact(message)
        assert len(self.session._held) <= len(self.view)


TestAnySession = AnySession.TestCase
TestAnySession.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)

STEPS = st.lists(st.tuples(st.sampled_from("aaaruuun"), MESSAGES, st.integers(0, 5)), min_size=1, max_size=12)


@contextmanager
def logged(steps: list[tuple[str, Message, int]]) -> Iterator[tuple[Session, list[tuple[int, bytes]]]]:
    """A closed session made of `steps`, and what its view was at each length of the file."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session.create(Path(folder), Path(folder))
        session.append({"role": "user", "content": "first"})
        history: list[tuple[int, bytes]] = [(0, b"[]"), (session.path.stat().st_size, exact(session.view))]
        for step, message, number in steps:
            if step == "a":
                session.append(message)
            elif step == "r":
                session.replace_view([message, *session.view[number:]], how="random")
            elif step == "u":
                session.undo()
            else:
                session.note("n", message=message)
            history.append((session.path.stat().st_size, exact(session.view)))
        session.close()
        yield session, history


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_log_cut_at_any_byte_gives_a_view_that_was_live(steps: list[tuple[str, Message, int]]) -> None:
    with logged(steps) as (session, history):
        whole = session.path.read_bytes()
        ends = [0]
        for line in whole.split(b"\n")[:-1]:
            ends.append(ends[-1] + len(line) + 1)
        for cut in range(0, len(whole) + 1, max(1, len(whole) // 80)):
            session.path.write_bytes(whole[:cut])
            again = Session.load(session.path)
            # A record that lacks only its line end counts, and a view counts from its last record on.
            reached = max(end for end in ends if end <= cut + 1)
            expected = [view for size, view in history if size <= reached][-1]
            assert exact(again.view) == expected
            again.append({"role": "user", "content": "on"})
            live = exact(again.view)
            again.close()
            for line in session.path.read_bytes().split(b"\n")[:-1]:
                decode(line)
            third = Session.load(session.path)
            assert exact(third.view) == live
            assert third.notices == []
            third.close()


DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=5)), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(STEPS, DAMAGE)
def test_any_damage_in_the_middle_loads_or_is_refused_in_words(
    steps: list[tuple[str, Message, int]], damage: list[tuple[float, int, bytes]]
) -> None:
    with logged(steps) as (session, _):
        whole = bytearray(session.path.read_bytes())
        for where, length, put in damage:
            at = int(where * len(whole))
            whole[at : at + length] = put
        session.path.write_bytes(whole)
        try:
            again = Session.load(session.path)
        except SessionError:
            assert session.path.read_bytes() == whole
            return
        live = exact(again.view)
        for record, message in again.messages():
            assert exact(again.message(record)) == exact(message)
        again.append({"role": "user", "content": "on"})
        again.undo()
        live = exact(again.view)
        again.close()
        third = Session.load(session.path)
        assert exact(third.view) == live
        third.close()
