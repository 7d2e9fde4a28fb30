"""The session log: what is kept, what is shown to the model, and what a damaged or refused file does to both."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from corecoder.errors import SessionError
from corecoder.events import Usage
from corecoder.session import VERSION, Session
from corecoder.sessiondir import project_directory

# Half a surrogate pair, a pair in two halves, and what other readers take for the end of a line.
STRANGE = "a\ud83d b\ud83d\ude00 \udcff \u2028 \u2029 \x85 \x0b \x0c \x1c \r \n \x00 \x7f \U0001f600 \ufeff"

posix = pytest.mark.skipif(sys.platform == "win32", reason="file modes and locks of POSIX")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def exact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def lines(session: Session) -> list[dict[str, Any]]:
    raw = session.path.read_bytes().decode("utf-8", "surrogatepass")
    return [json.loads(line) for line in raw.split("\n")[:-1]]


def reload(session: Session) -> Session:
    session.close()
    return Session.load(session.path)


@pytest.fixture
def session(home: Path, project: Path):
    session = Session.create(home, project, system="be brief", model="m1")
    yield session
    session.close()


# -- the file


def test_nothing_is_written_before_the_first_append(home: Path, project: Path, session: Session) -> None:
    session.note("cwd", path="/x")
    session.model("m2")
    session.sync()
    session.close()
    assert not home.exists()
    assert Session.latest(home, project) is None


def test_the_log_is_one_json_object_per_line_with_ids_that_count_from_zero(session: Session) -> None:
    session.note("cwd", path="/x")
    session.append(user("hello"), source="stdin")
    session.usage(Usage(10, 2, 5, 1, 0.25))
    session.model("m2")
    records = lines(session)
    assert [record["id"] for record in records] == [0, 1, 2, 3, 4]
    assert [record["type"] for record in records] == ["session", "note", "message", "usage", "model"]
    header = records[0]
    assert header["version"] == VERSION
    assert (header["session"], header["system"], header["model"]) == (session.id, "be brief", "m1")
    assert header["project"] == str(Path.cwd().resolve())
    assert records[2]["message"] == user("hello")
    assert records[2]["meta"] == {"source": "stdin"}


@posix
def test_log_spill_and_directories_are_for_the_owner_alone(home: Path, session: Session) -> None:
    before = os.umask(0)
    try:
        session.append(user("hello"))
        spilled = session.spill("long")
    finally:
        os.umask(before)
    for file in (session.path, spilled):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for directory in (home, home / "sessions", session.path.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@posix
def test_a_directory_that_was_open_to_others_is_closed_again(home: Path, project: Path, session: Session) -> None:
    project_directory(home, project).mkdir(parents=True, mode=0o755)
    session.append(user("hello"))
    assert stat.S_IMODE(session.path.parent.stat().st_mode) == 0o700


def test_every_record_is_in_the_file_when_append_returns(session: Session) -> None:
    for number in range(5):
        session.append(user(str(number)))
        assert lines(session)[-1]["message"] == user(str(number))


def test_strange_text_comes_back_exactly_and_never_ends_a_line(session: Session) -> None:
    session.append(user(STRANGE))
    session.append({"role": "assistant", "content": None, STRANGE: [STRANGE]})
    session.note("odd", text=STRANGE)
    assert session.path.read_bytes().count(b"\n") == 4
    before = exact(session.view)
    again = reload(session)
    assert exact(again.view) == before
    assert again.view[0]["content"] == STRANGE
    assert again.noted("odd") == {"text": STRANGE}
    assert again.notices == []
    again.close()


def test_a_closed_session_says_so_instead_of_writing(session: Session) -> None:
    session.append(user("hello"))
    session.close()
    session.close()
    with pytest.raises(SessionError, match="closed"):
        session.append(user("too late"))
    assert session.view == [user("hello")]


# -- the view


def test_appended_messages_are_the_view_as_the_same_objects(session: Session) -> None:
    first, second = user("one"), user("two")
    ids = [session.append(first), session.append(second)]
    assert all(a is b for a, b in zip(session.view, [first, second], strict=True))
    session.view.clear()
    assert len(session.view) == 2
    assert [session.id_of(first), session.id_of(second)] == ids
    assert session.id_of(user("one")) is None


def test_replacing_the_view_keeps_members_and_logs_the_rest_as_derived(session: Session) -> None:
    messages = [user(str(number)) for number in range(6)]
    ids = [session.append(message) for message in messages]
    stub = user("[stub]")
    session.replace_view([stub, *messages[3:]], how="snip", before=100, after=10)
    new = user("after")
    session.append(new)
    assert session.view == [stub, *messages[3:], new]
    assert session.view[1] is messages[3]
    assert session.id_of(messages[3]) == ids[3]
    assert session.id_of(messages[0]) is None
    derived, view, _ = lines(session)[-3:]
    assert derived["type"] == "derived"
    assert derived["message"] == stub
    assert view["ranges"] == [[derived["id"], derived["id"]], [ids[3], ids[5]]]
    assert (view["how"], view["facts"]) == ("snip", {"before": 100, "after": 10})


def test_a_view_record_stays_small_whatever_stands_between_messages(session: Session) -> None:
    messages = []
    for number in range(200):
        messages.append(user(str(number)))
        session.append(messages[-1])
        session.usage(Usage(number, 1))
    session.replace_view(messages[100:], how="cut")
    assert len(lines(session)[-1]["ranges"]) == 1
    assert reload(session).view == messages[100:]


def test_loading_gives_the_view_that_was_live(session: Session) -> None:
    messages = [user(str(number)) for number in range(6)]
    for message in messages:
        session.append(message)
    summary = user("summary")
    session.replace_view([messages[5], summary, messages[1], summary], how="odd order, one twice")
    session.append(user("later"))
    before = exact(session.view)
    again = reload(session)
    assert exact(again.view) == before
    assert [again.id_of(message) for message in again.view] == [session.id_of(message) for message in session.view]
    assert again.system == "be brief"
    again.close()


def test_an_empty_view_stays_empty_after_loading(session: Session) -> None:
    session.append(user("one"))
    session.replace_view([], how="reset")
    assert session.view == []
    assert reload(session).view == []


def test_derived_messages_without_a_view_record_are_not_in_view(session: Session) -> None:
    session.append(user("one"))
    session.replace_view([user("summary")], how="summary")
    session.close()
    *kept, _view = session.path.read_bytes().splitlines(keepends=True)
    session.path.write_bytes(b"".join(kept))
    assert reload(session).view == [user("one")]


def test_undo_restores_the_old_view_and_keeps_what_came_since(session: Session) -> None:
    messages = [user(str(number)) for number in range(4)]
    for message in messages:
        session.append(message)
    session.replace_view([user("summary"), messages[3]], how="summary")
    since = user("since")
    session.append(since)
    assert not session.undone
    assert session.undo()
    assert session.undone
    assert session.view == [*messages, since]
    assert session.view[4] is since
    assert session.undo() is False
    again = reload(session)
    assert again.view == [*messages, since]
    assert again.undone
    assert again.undo() is False
    again.close()


def test_undo_goes_back_one_compaction_at_a_time_also_after_loading(session: Session) -> None:
    for text in ("a", "b"):
        session.append(user(text))
    session.replace_view([user("S1")], how="summary")
    session.append(user("c"))
    session.replace_view([user("S2")], how="summary")
    session.append(user("d"))
    again = reload(session)
    assert again.undo()
    assert again.view == [user("S1"), user("c"), user("d")]
    again.append(user("e"))
    third = reload(again)
    assert third.undo()
    assert third.view == [user(text) for text in "abcde"]
    assert third.undo() is False
    third.close()


def test_a_compaction_after_an_undo_can_be_undone(session: Session) -> None:
    session.append(user("a"))
    session.replace_view([user("S1")], how="summary")
    session.undo()
    session.replace_view([user("S2")], how="summary")
    again = reload(session)
    assert again.view == [user("S2")]
    assert not again.undone
    assert again.undo()
    assert again.view == [user("a")]
    assert again.undo() is False
    again.close()


def test_messages_out_of_view_are_let_go_and_can_be_fetched(session: Session) -> None:
    texts = [f"{number} {STRANGE} {'x' * 100_000}" for number in range(5)]
    ids = [session.append(user(text)) for text in texts]
    session.usage(Usage(1, 1))
    session.replace_view([user("summary")], how="summary")
    assert len(session._held) == 1
    for load in (lambda: session, lambda: reload(session)):
        live = load()
        assert [live.message(record)["content"] for record in ids] == texts
        assert live.message(ids[-1] + 2) == user("summary")
        assert [(record, message["content"]) for record, message in live.messages()] == list(
            zip(ids, texts, strict=True)
        )
        for absent in (0, ids[-1] + 1, ids[-1] + 3, 999, -1, 10**30):
            with pytest.raises(KeyError):
                live.message(absent)
    live.close()


def test_workers_can_read_while_the_driver_writes(session: Session) -> None:
    ids = [session.append(user(f"{number} " + "x" * 5000)) for number in range(50)]
    session.replace_view([], how="reset")
    faults: list[object] = []

    def read() -> None:
        for _ in range(4):
            for number, record in enumerate(ids):
                if not session.message(record)["content"].startswith(f"{number} "):
                    faults.append(record)

    workers = [threading.Thread(target=read) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that a missing lock shows
    try:
        for worker in workers:
            worker.start()
        for number in range(300):
            session.append(user(f"new {number}"))
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert faults == []
    assert [message["content"] for message in reload(session).view] == [f"new {number}" for number in range(300)]


# -- usage, model, notes, spilled texts


def test_usage_model_and_notes_survive_loading(session: Session) -> None:
    session.append(user("hello"))
    session.usage(Usage(10, 2, 5, 1, 0.25))
    session.usage(Usage(20, 3, 0, 0, 0.5))
    session.model("m2")
    session.note("cwd", path="/a")
    session.note("cwd", path="/b")
    again = reload(session)
    assert again.total_usage == session.total_usage == Usage(30, 5, 5, 1, 0.75)
    assert again.model_name == "m2"
    assert again.noted("cwd") == {"path": "/b"}
    assert again.noted("todo") is None
    again.usage(Usage(1, 1))
    assert reload(again).total_usage == Usage(31, 6, 5, 1, None)


def test_a_spilled_text_is_whole_and_beside_the_log(session: Session) -> None:
    paths = [session.spill(STRANGE), session.spill(STRANGE)]
    assert len(set(paths)) == 2
    session.append(user("hello"))
    for path in paths:
        assert path.parent == session.path.parent
        assert path.read_bytes().decode("utf-8", "surrogatepass") == STRANGE


def test_a_fresh_session_has_the_same_project_prompt_and_model(home: Path, project: Path, session: Session) -> None:
    session.append(user("hello"))
    other = session.fresh()
    assert other.id != session.id
    assert (other.system, other.model_name, other.view) == ("be brief", "m1", [])
    other.append(user("again"))
    assert len(Session.listing(home, project)) == 2
    other.close()


# -- damage


def whole_log(session: Session) -> bytes:
    session.append(user("one"))
    session.append(user("two"))
    session.append(user(f"three {STRANGE}"))
    session.close()
    return session.path.read_bytes()


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"], ids=["cut", "blank line", "two blank lines"])
def test_a_log_cut_at_any_byte_of_its_last_record_loads_and_goes_on(session: Session, ending: bytes) -> None:
    whole = whole_log(session)
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        session.path.write_bytes(whole[:cut] + ending)
        again = Session.load(session.path)
        complete = cut == len(whole) - 1
        expected = [user("one"), user("two"), *([user(f"three {STRANGE}")] if complete else [])]
        assert exact(again.view) == exact(expected)
        assert bool(again.notices) == (cut > last and not (complete and ending))
        again.append(user("new"))
        assert exact(reload(again).view) == exact([*expected, user("new")])
        assert session.path.read_bytes().startswith(whole[:last])
        for backup in session.path.parent.glob("*.torn-*"):
            assert backup.read_bytes() == whole[last:cut]
            backup.unlink()


def test_what_was_torn_off_is_kept_and_said(session: Session) -> None:
    whole = whole_log(session)
    session.path.write_bytes(whole[:-20])
    again = Session.load(session.path)
    (backup,) = session.path.parent.glob("*.torn-*")
    assert whole[:-20].endswith(backup.read_bytes())
    assert str(backup) in again.notices[0]
    assert session.path.read_bytes().endswith(b"\n")
    if os.name == "posix":
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    again.close()
    third = Session.load(session.path)
    assert third.notices == []
    third.close()


def test_damaged_lines_in_the_middle_are_left_out_and_counted(session: Session) -> None:
    first, one, two, three, _ = whole_log(session).split(b"\n")
    damage = [b"{", b"\x00" * 50, b"\xff\xfe", b"[1]", b'{"id": true, "type": "message", "message": {}}', two[:-9]]
    damage += [b'{"id": 9, "type": "view", "ranges": [["a", 1]]}', b'{"id": 9, "type": "message"}', b"[" * 5000]
    session.path.write_bytes(b"\n".join([first, one, *damage, b"", two, three, b""]))
    again = Session.load(session.path)
    assert exact(again.view) == exact([user("one"), user("two"), user(f"three {STRANGE}")])
    assert any(f"{len(damage)} damaged lines" in notice for notice in again.notices)
    before = session.path.read_bytes()
    again.append(user("new"))
    assert session.path.read_bytes().startswith(before)
    again.close()


def test_a_record_written_twice_is_used_once(session: Session) -> None:
    first, one, two, _ = whole_log(session).split(b"\n", 3)
    for repeat in ([one[:-12], one], [one, one], [one[:-12], one[:-12], one, one]):
        session.path.write_bytes(b"\n".join([first, *repeat, two, b""]))
        again = Session.load(session.path)
        assert again.view == [user("one"), user("two")]
        assert [message for _, message in again.messages()] == [user("one"), user("two")]
        again.close()


def test_a_damaged_id_costs_no_other_message(session: Session) -> None:
    whole = whole_log(session).replace(b'{"id": 1,', b'{"id": 7,')
    session.path.write_bytes(whole)
    again = Session.load(session.path)
    assert [message["content"][:3] for message in again.view] == ["one", "two", "thr"]
    assert [again.message(again.id_of(message) or 0) for message in again.view] == again.view
    assert again.append(user("new")) == 8
    again.close()


def test_a_compaction_after_a_damaged_id_is_loaded_as_it_was_live(session: Session) -> None:
    whole = whole_log(session).replace(b'{"id": 1,', b'{"id": 7,')
    session.path.write_bytes(whole)
    again = Session.load(session.path)
    for kept in (again.view[1:], [user("summary"), *again.view[:2]]):
        again.replace_view(kept, how="cut")
        assert again.view == kept
        again = reload(again)
        assert exact(again.view) == exact(kept)
    again.close()


def test_a_log_without_its_first_record_loads_and_says_so(home: Path, project: Path, session: Session) -> None:
    whole = whole_log(session)
    session.path.write_bytes(whole.partition(b"\n")[2])
    again = Session.load(session.path)
    assert again.system == ""
    assert "system prompt" in again.notices[0]
    again.system = "be brief again"
    again.append(user("new"))
    third = reload(again)
    assert third.system == "be brief again"
    assert third.notices == []
    assert len(third.view) == 4
    third.close()


def test_a_log_cut_in_its_first_record_is_an_empty_session(session: Session) -> None:
    first = whole_log(session).partition(b"\n")[0]
    for cut in range(len(first)):
        session.path.write_bytes(first[:cut])
        again = Session.load(session.path)
        assert again.view == []
        again.system = "s"
        again.append(user("new"))
        third = reload(again)
        assert (third.system, third.view) == ("s", [user("new")])
        third.close()


@pytest.mark.parametrize("content", [b"hello", b"hello\n", b'{"a": 1}\n', b"\n\nPK\x03\x04", b"[]\n[]\n"])
def test_a_file_that_is_no_log_is_refused_and_left_as_it_is(session: Session, content: bytes) -> None:
    session.path.parent.mkdir(parents=True)
    session.path.write_bytes(content)
    with pytest.raises(SessionError, match="it was left as it is"):
        Session.load(session.path)
    assert session.path.read_bytes() == content
    assert list(session.path.parent.iterdir()) == [session.path]


def test_a_log_of_a_newer_version_is_refused_and_left_as_it_is(session: Session) -> None:
    whole = whole_log(session).replace(b'"version": 1', b'"version": 2')[:-5]
    session.path.write_bytes(whole)
    with pytest.raises(SessionError, match="newer CoreCoder"):
        Session.load(session.path)
    assert session.path.read_bytes() == whole


def test_records_of_an_unknown_type_are_passed_over(session: Session) -> None:
    whole = whole_log(session)
    session.path.write_bytes(whole + b'{"id": 4, "type": "weather", "sun": true}\n')
    again = Session.load(session.path)
    assert again.notices == []
    assert again.append(user("new")) == 5
    again.close()


@pytest.mark.parametrize("path", [".", "missing.jsonl", "project/x"])
def test_what_cannot_be_opened_is_named(path: str) -> None:
    with pytest.raises(SessionError, match="cannot open the session"):
        Session.load(Path(path).absolute())


# -- two processes


def test_a_log_that_is_open_elsewhere_is_continued_in_a_copy(session: Session) -> None:
    session.append(user("one"))
    session.replace_view([user("S")], how="summary")
    session.usage(Usage(1, 2))
    other = Session.load(session.path)
    assert other.id != session.id
    assert other.path.parent == session.path.parent
    assert session.id in other.notices[0]
    assert other.id in other.notices[0]
    assert (other.view, other.system, other.total_usage) == (session.view, "be brief", Usage(1, 2))
    session.append(user("mine"))
    other.append(user("theirs"))
    assert reload(session).view == [user("S"), user("mine")]
    again = reload(other)
    assert again.view == [user("S"), user("theirs")]
    assert again.notices == []
    assert again.undo()
    assert again.view == [user("one"), user("theirs")]
    assert [record["origin"] for record in lines(again) if "origin" in record] == [session.id]
    again.close()


def test_a_copy_of_an_open_log_leaves_out_what_is_being_written(session: Session) -> None:
    session.append(user("one"))
    with session.path.open("ab") as file:
        file.write(b'{"id": 2, "ty')
    other = Session.load(session.path)
    assert other.view == [user("one")]
    assert session.path.read_bytes().endswith(b'{"id": 2, "ty')
    other.append(user("two"))
    assert reload(other).view == [user("one"), user("two")]


TWO_WRITERS = """
import sys
from pathlib import Path
from corecoder.session import Session
session = Session.load(Path(sys.argv[1]))
print(session.path, flush=True)
sys.stdin.readline()
for number in range(200):
    session.append({"role": "user", "content": f"{sys.argv[2]} {number} " + "x" * 3000})
session.close()
"""


def test_two_processes_on_one_session_never_mix_or_lose_records(session: Session) -> None:
    session.append(user("seed"))
    session.close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_WRITERS, str(session.path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("ONE", "TWO")
    ]
    paths = []
    for worker in workers:
        assert worker.stdout is not None
        paths.append(worker.stdout.readline().strip())
    for worker in workers:
        worker.communicate("go\n", timeout=60)
        assert worker.returncode == 0
    assert len(set(paths)) == 2
    assert str(session.path) in paths
    for name, path in zip(("ONE", "TWO"), paths, strict=True):
        again = Session.load(Path(path))
        assert again.notices == []
        assert [message["content"].split(" x")[0] for message in again.view] == [
            "seed",
            *(f"{name} {number}" for number in range(200)),
        ]
        again.close()


def test_a_fork_is_a_session_of_its_own_and_leaves_the_first_as_it_is(home: Path, project: Path) -> None:
    session = Session.create(home, project, system="s", model="m")
    with pytest.raises(SessionError, match="nothing on disk to copy"):
        session.fork()
    session.append(user("one"), turn=True)
    session.append({"role": "assistant", "content": "two"})
    before = session.path.read_bytes()
    fork = Session.load(session.path.with_name(f"{session.fork()}.jsonl"))
    assert fork.notices == []
    assert fork.view == session.view
    assert (fork.system, fork.model_name, fork.turns) == ("s", "m", session.turns)
    record = fork.append(user("three"), turn=True)
    session.append(user("other"), turn=True)
    assert fork.turns == [*session.turns[:1], (fork.id, record)]
    assert session.turns[-1][0] == session.id
    assert session.path.read_bytes().startswith(before)
    assert {info.id for info in Session.listing(home, project)} == {session.id, fork.id}
    fork.close()
    again = Session.load(fork.path)
    assert again.view == fork.view
    assert again.turns == fork.turns
    for each in (session, again):
        each.close()


def test_a_fork_that_cannot_be_written_leaves_nothing_behind(home: Path, project: Path) -> None:
    session = Session.create(home, project)
    session.append(user("one"))
    session.keep_in_memory()
    with pytest.raises(SessionError, match="kept in memory only"):
        session.fork()
    assert [path.name for path in session.path.parent.iterdir()] == [session.path.name]
    session.close()


# -- a disk that refuses


def test_a_home_that_cannot_be_written_is_said_and_the_session_goes_on_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    session = Session.create(tmp_path / "file" / "home", tmp_path, system="s")
    message = user("one")
    with pytest.raises(SessionError, match=r"cannot write the session log .*Not a directory.*Nothing was logged yet"):
        session.append(message)
    with pytest.raises(SessionError, match="beside the session log"):
        session.spill("text")
    assert session.view == []
    assert session.on_disk
    session.keep_in_memory()
    assert not session.on_disk
    behaves_like_a_session(session)
    assert session.spill("text").read_text() == "text"


def test_a_session_in_memory_is_a_session_without_a_file(home: Path) -> None:
    session = Session.in_memory(system="s", model="m")
    behaves_like_a_session(session)
    other = session.fresh()
    behaves_like_a_session(other)
    assert not home.exists()
    assert not session.path.exists()


def behaves_like_a_session(session: Session) -> None:
    one, two = user("one"), user(STRANGE)
    first, second = session.append(one), session.append(two)
    session.usage(Usage(1, 1))
    session.note("kind", fact=1)
    session.replace_view([user("S"), two], how="summary")
    assert session.message(first) == one
    assert list(session.messages()) == [(first, one), (second, two)]
    assert session.undo()
    assert session.view == [one, two]
    session.sync()
    session.close()


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from corecoder.errors import SessionError
from corecoder.session import Session

session = Session.create(Path(sys.argv[1]), Path.cwd(), system="s")
session.append({"role": "user", "content": "one"})
size = session.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
big = {"role": "user", "content": "two " + "x" * 1000}
try:
    session.append(big)
    said = ""
except SessionError as error:
    said = str(error)
cut = session.path.stat().st_size == size
view = len(session.view)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if sys.argv[2] == "memory":
    session.keep_in_memory()
number = session.append(big)
session.replace_view([{"role": "user", "content": "S"}], how="summary")
session.undo()
fetched = session.message(1)["content"], session.message(number)["content"] == big["content"]
live = [message["content"][:3] for message in session.view]
session.close()
print(json.dumps([said, cut, view, number, fetched, live, str(session.path)]))
"""


@posix
@pytest.mark.parametrize("mode", ["retry", "memory"])
def test_a_full_disk_leaves_no_half_record_and_the_append_can_be_tried_again(home: Path, mode: str) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL_DISK, str(home), mode], capture_output=True, text=True, check=True)
    said, cut, view, number, fetched, live, path = json.loads(ran.stdout)
    assert "cannot write the session log" in said
    assert "Everything logged before is kept" in said
    assert cut
    assert (view, number) == (1, 2)
    assert fetched == ["one", True]
    assert live == ["one", "two"]
    again = Session.load(Path(path))
    assert again.notices == []
    assert [message["content"][:3] for message in again.view] == (["one", "two"] if mode == "retry" else ["one"])
    again.close()


NO_ROOM = """
import resource, sys
from pathlib import Path
from corecoder.errors import SessionError
from corecoder.session import Session

resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
session = Session.create(Path(sys.argv[1]), Path.cwd())
try:
    session.append({"role": "user", "content": "one"})
except SessionError as error:
    print(error)
print(session.path.exists())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(session.append({"role": "user", "content": "one"}))
"""


@posix
def test_a_log_that_cannot_take_its_first_record_is_not_left_behind(home: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", NO_ROOM, str(home)], capture_output=True, text=True, check=True)
    said, exists, number = ran.stdout.splitlines()
    assert "Nothing was logged yet" in said
    assert (exists, number) == ("False", "1")


TORN_AND_FULL = """
import resource, sys
from pathlib import Path
from corecoder.session import Session

resource.setrlimit(resource.RLIMIT_FSIZE, (3, resource.RLIM_INFINITY))
session = Session.load(Path(sys.argv[1]))
print(session.notices, len(session.notices))
print(session.on_disk, session.append({"role": "user", "content": "new"}), len(session.view), session.message(1))
"""


@posix
def test_a_torn_log_on_a_full_disk_is_loaded_and_left_as_it_is(session: Session) -> None:
    torn = whole_log(session)[:-9]
    session.path.write_bytes(torn)
    command = [sys.executable, "-c", TORN_AND_FULL, str(session.path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "not kept on disk" in ran.stdout
    assert ran.stdout.splitlines()[1] == f"False 3 3 {user('one')}"
    assert session.path.read_bytes() == torn
    assert list(session.path.parent.iterdir()) == [session.path]


@posix
def test_a_last_record_without_its_line_end_counts_also_where_the_end_cannot_be_written(session: Session) -> None:
    unended = whole_log(session)[:-1]
    session.path.write_bytes(unended)
    program = TORN_AND_FULL.replace("(3,", f"({len(unended)},")
    ran = subprocess.run([sys.executable, "-c", program, str(session.path)], capture_output=True, text=True, check=True)
    assert "not kept on disk" in ran.stdout
    assert ran.stdout.splitlines()[1] == f"False 4 4 {user('one')}"
    assert session.path.read_bytes() == unended


ROOM_FOR_ONE = """
import resource, sys
from pathlib import Path
from corecoder.errors import SessionError
from corecoder.session import Session

session = Session.create(Path(sys.argv[1]), Path.cwd())
session.note("long", text="x" * 1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
try:
    session.append({"role": "user", "content": "one"})
except SessionError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
session.append({"role": "user", "content": "one"})
print(session.path)
"""


@posix
def test_a_note_that_waited_for_the_log_is_not_lost_on_a_full_disk(home: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", ROOM_FOR_ONE, str(home)], capture_output=True, text=True, check=True)
    said, path = ran.stdout.splitlines()
    assert "cannot write the session log" in said
    again = Session.load(Path(path))
    assert again.noted("long") == {"text": "x" * 1000}
    assert again.view == [user("one")]
    again.close()


@posix
def test_a_log_that_may_only_be_read_is_loaded_and_continued_in_memory(session: Session) -> None:
    whole_log(session)
    session.path.chmod(0o400)
    if os.access(session.path, os.W_OK):
        pytest.skip("this user may write everything")
    again = Session.load(session.path)
    assert "not kept on disk" in again.notices[0]
    again.append(user("new"))
    assert len(again.view) == 4
    again.close()


# -- finding sessions


def test_the_latest_session_is_the_one_written_last(home: Path, project: Path) -> None:
    sessions = [Session.create(home, project) for _ in range(3)]
    for number, session in enumerate(sessions):
        session.append(user(str(number)))
        os.utime(session.path, (1000 + number, 1000 + number))
    assert Session.latest(home, project) == sessions[2].path
    os.utime(sessions[0].path, (5000, 5000))
    assert Session.latest(home, project) == sessions[0].path
    empty = sessions[0].path.with_name("20990101-000000-abcdef.jsonl")
    empty.touch()
    assert Session.latest(home, project) == sessions[0].path
    for session in sessions:
        session.close()


def test_projects_do_not_see_each_others_sessions_and_links_are_one_project(home: Path, tmp_path: Path) -> None:
    for name in ("a/src", "b/src"):
        (tmp_path / name).mkdir(parents=True)
    session = Session.create(home, tmp_path / "a/src")
    session.append(user("hello"))
    session.close()
    assert Session.latest(home, tmp_path / "b/src") is None
    assert "a-src" in session.path.parent.name
    if os.name == "posix":
        (tmp_path / "link").symlink_to(tmp_path / "a/src")
        assert Session.latest(home, tmp_path / "link") == session.path


@pytest.mark.parametrize("name", ["ü中文 \udcff", "..x", "a" * 200, "-rf", ".hidden", "a\nb", "C: *?"])
def test_any_project_name_makes_a_usable_directory_name(home: Path, tmp_path: Path, name: str) -> None:
    slug = project_directory(home, tmp_path / name).name
    assert slug.isascii()
    assert len(slug) < 60
    assert slug[0] not in "-."
    assert not set(slug) & set("/\\:*?\n ")


def test_a_session_is_found_by_the_start_of_its_id(home: Path, project: Path, tmp_path: Path) -> None:
    directory = project_directory(home, project)
    with pytest.raises(SessionError, match="no session yet"):
        Session.find(home, project, "")
    directory.mkdir(parents=True)
    for name in ("20250101-000000-aaaaaa", "20250101-000000-bbbbbb", "20250202-000000-cccccc"):
        (directory / f"{name}.jsonl").write_text('{"id": 0, "type": "session", "project": "/p"}\n')
    assert Session.find(home, project, "202502").stem == "20250202-000000-cccccc"
    assert Session.find(home, project, "20250101-000000-a").stem == "20250101-000000-aaaaaa"
    with pytest.raises(SessionError, match=r"2 sessions .*aaaaaa, 20250101-000000-bbbbbb.* more of the id"):
        Session.find(home, project, "20250101")
    for nothing in ("2026", "*", "../x", "20250202-000000-cccccc.jsonl"):
        with pytest.raises(SessionError, match="no session of this project starts with"):
            Session.find(home, project, nothing)
    with pytest.raises(SessionError, match="belongs to /p"):
        Session.find(home, tmp_path, "202502")


def test_the_list_shows_the_first_words_the_size_and_the_number_of_messages(home: Path, project: Path) -> None:
    session = Session.create(home, project, system="s" * 100_000, model="m1")
    session.append({"role": "user", "content": [{"type": "text", "text": "Fix\nthe \x1b[31mbug " + "x" * 200}]})
    session.append({"role": "assistant", "content": "y" * 300_000})
    session.model("m2")
    session.append(user("z" * 300_000))
    session.note("kind", text="n" * 300_000)
    (info,) = Session.listing(home, project)
    assert info.title.startswith("Fix the bug xxx")
    assert len(info.title) == 60
    assert (info.id, info.path, info.messages, info.model) == (session.id, session.path, 3, "m1")
    assert info.size == session.path.stat().st_size
    session.usage(Usage(1, 1))
    (info,) = Session.listing(home, project)
    assert info.model == "m2"
    session.close()


def test_the_number_of_messages_is_found_behind_any_number_of_other_records(home: Path, project: Path) -> None:
    session = Session.create(home, project)
    session.append(user("one"))
    for notes in range(0, 1600, 100):
        session.append(user("x" * 40_000))
        for number in range(notes):
            session.note("kind", text=f"{number} {'n' * 60}")
        (info,) = Session.listing(home, project)
        assert info.messages == 2 + notes // 100
    session.close()


def test_the_list_shows_what_a_session_has_cost_whatever_came_last(home: Path, project: Path) -> None:
    def cost() -> float | None:
        (info,) = Session.listing(home, project)
        return info.cost

    session = Session.create(home, project)
    session.append(user("one"))
    assert cost() == 0
    session.usage(Usage(10, 1, cost=0.25))
    assert cost() == 0.25
    session.append({"role": "assistant", "content": "y" * 300_000})
    session.usage(Usage(10, 1, cost=0.5))
    session.note("kind", text="n" * 300_000)
    assert cost() == 0.75
    session.append(user("two"))
    session.close()
    again = Session.load(session.path)
    again.append(user("three"))
    assert cost() == 0.75
    again.usage(Usage(10, 1))
    assert cost() is None
    again.append(user("four"))
    assert cost() is None
    again.close()


def test_damaged_and_foreign_files_do_not_break_the_list(home: Path, project: Path, session: Session) -> None:
    whole = whole_log(session)
    session.path.write_bytes(whole[:-20])
    (session.path.parent / "x.jsonl").write_bytes(b"\xff\x00" * 200_000)
    (session.path.parent / "y.jsonl").write_bytes(b"\n" * 200_000)
    (session.path.parent / "dir.jsonl").mkdir()
    found = {info.id: info for info in Session.listing(home, project)}
    assert found[session.id].messages == 2
    assert found[session.id].title == "one"
    assert found["x"].messages == found["y"].messages == 0


@posix
def test_a_list_does_not_read_what_lies_between_head_and_tail(home: Path, project: Path, session: Session) -> None:
    session.append(user("one"))
    session.close()
    with session.path.open("r+b") as file:
        file.seek(4 << 30)  # a hole: reading it would take 4 GB of memory
        file.write(b'\n{"id": 2, "type": "message", "n": 2, "message": {"role": "user", "content": "two"}}\n')
    (info,) = Session.listing(home, project)
    assert (info.title, info.messages) == ("one", 2)


def test_a_session_in_memory_leaves_nothing_behind() -> None:
    session = Session.in_memory()
    path = session.spill("long")
    assert path.read_text() == "long"
    session.close()
    assert not path.parent.exists()


def test_the_view_can_be_read_while_it_is_replaced(session: Session) -> None:
    for number in range(50):
        session.append(user(str(number)))
    stop, faults = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            try:
                assert session.view
            except KeyError as error:
                faults.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(300):
        session.replace_view([*session.view[2:], user(f"new {number}")], how="test")
        session.append(user("one"))
        session.append(user("two"))
        if number % 3 == 0:
            session.undo()
    stop.set()
    reader.join()
    assert faults == []
