"""The context manager: keeps the view of a session within the model's window, by three lazy tiers and a promise.

    tier 1   at 50 %   stale tool results become stubs; no model
    tier 2   at 70 %   old conversation becomes one message: ledger, summary, current request; one model request
    tier 3   at 90 %   hard collapse; no model, and for every history there is the result fits

Below the first watermark nothing is touched, so that each request is a byte prefix of the next and the provider's
prompt cache works. That is also the price: a tier runs rarely, and then it changes much at once.

It works on a plain list in place, whose leading system messages it leaves alone. With a session's log behind it, stubs
and notes carry record ids under which the `recall` tool brings back what they stand for. Its own state is set only at
the end of a run (notes on messages aside, which name none but their own), so a run on another thread can be abandoned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from . import summary, tiers
from .errors import SessionError
from .events import Usage
from .intake import Log, Records
from .jobs import CancelToken
from .ledger import Ledger, Words
from .memory import Memory, is_acknowledgement, memory, read_memory
from .messages import Message, calls_of, pictures_of, text_of
from .meter import LEAST_ROOM, LEAST_USABLE, Meter
from .summary import Model
from .text import one_line
from .values import dataclass

# Shares of R, the room for conversation.
FACTS = 0.10
SUMMARY = 0.05
PLAN = 0.10  # the plan that the user accepted
REQUEST = 0.40  # the prompt, of which intake lets 0.30 in, with what was thrown in since
COLLAPSED = 0.60
WORTH_SNIPPING = 0.20  # a change in the middle voids the prompt cache behind it, so it must free at least this
LEAST_GAIN = 0.10  # of the fill; a run that frees less is not repeated until the view has grown by as much
STEPS_BETWEEN_SUMMARIES = 5
MAX_FAILURES = 3  # summaries refused in a row, after which none is asked for until the user does
# The shares of their limits to which the facts and the summary are cut before the request is, and then the plan.
_REQUEST_FROM, _PLAN_FROM = 0.2, 0.1
_INSTRUCTION_ROOM = 600  # tokens for the request's instruction


@dataclass(frozen=True)
class Compaction:
    """The last run: tokens before and after, messages after, which tier came last (snip, summary, extract,
    collapse), what the model was paid in dollars (None if unknown or nothing) and the seconds it took. `failed` says
    why a model's summary was refused, "" if none was."""

    before: int
    after: int
    messages: int
    how: str
    cost: float | None = None
    seconds: float = 0.0
    failed: str = ""


@dataclass
class _Run:
    """What one run has at hand and finds out; the manager learns of it only when the run is over."""

    token: CancelToken = field(default_factory=CancelToken)
    focus: str = ""
    force: bool = False
    original: Sequence[Message] = ()  # the view before the first tier
    how: str = ""
    written_by: str = "extract"  # how the last summary came about
    cost: float | None = None
    failed: str = ""
    asked: bool = False


class ContextManager:
    """Watches the fill of the window and makes views smaller.

    `max_tokens` is the model's window (None for the default of 128,000), `system` and `tools` what goes with every
    request, `output_reserve` the tokens kept for a reply. `snip_at`, `summarize_at` and `collapse_at` are fractions of
    the usable window, `tail` the fraction of the room for conversation that stays whole, `summary_timeout` seconds.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        *,
        system: Message | None = None,
        tools: list[dict[str, Any]] | None = None,
        log: Log | None = None,
        output_reserve: int | None = None,
        snip_at: float = 0.5,
        summarize_at: float = 0.7,
        collapse_at: float = 0.9,
        tail: float = 0.2,
        summary_timeout: float = 120.0,
    ) -> None:
        self.meter = Meter(max_tokens, reserve=output_reserve, system=system, tools=tools)
        self.last: Compaction | None = None
        self._marks = (snip_at, summarize_at, collapse_at)
        self._tail = tail
        self._timeout = summary_timeout
        self.follow(log)

    # -- the session behind it

    def follow(self, log: Log | None) -> None:
        """Starts over with another session. Its ledger is read when it is first needed."""
        self._log = log
        self._records = Records(log)
        self._ledger = Ledger()
        self._behind = log is not None and next(log.messages(), None) is not None
        self._fed: dict[int, Message] = {}
        self._failures = 0
        self._rest_until = 0
        self._summary_at = -STEPS_BETWEEN_SUMMARIES
        self._held = log is not None and log.undone
        self._pressed = False
        self._fill_seen = 0

    def observe(self, message: Message, record: int | None) -> None:
        """Takes note of a message that was logged; in the order of the log."""
        if not self._behind:
            self._ledger.observe(message, record, self._records.kind(record))

    def meta(self, message: Message) -> dict[str, Any]:
        """What is to be kept in the log beside `message`, which intake or a tier made."""
        return self._records.meta(message)

    def undone(self) -> None:
        """The user took a compaction back: tiers 1 and 2 hold still until the third watermark."""
        self._held = True
        self._rest_until = 0

    # -- how full

    @property
    def window(self) -> int:
        """The model's context window in tokens, as it is known now."""
        return self.meter.window

    @property
    def usable(self) -> int:
        """The window less the output reserve."""
        return self.meter.usable

    def fill(self, view: Sequence[Message]) -> int:
        """Tokens of a request with `view`, system prompt and tools included, as best known."""
        return self.meter.fill(view)

    def set_window(self, window: int | None, *, same_model: bool = False) -> None:
        """The window of another model, or what is now known to be that of the same; None if unknown."""
        self.meter.set_window(window, same_model=same_model)
        self._rest_until = 0

    def learn_window(self, window: int | None) -> None:
        """The provider refused the view that `due` saw last, and named `window` or no size. The next forced run makes
        room whatever it takes."""
        self.meter.learn_window(window, self._fill_seen)
        self._pressed = True

    def note_usage(self, usage: Usage, sent: Sequence[Message]) -> str:
        """Learns from the usage reported for a request with the view `sent`. Returns words for the user or ""."""
        return self.meter.note_usage(usage, sent)

    def too_small(self) -> str:
        """Why no work is possible in this window, with what is needed; "" if it is.

        Only the size that is known or was named counts: what a refusal made us guess beyond that is in tokens of our
        own, and the server may well take more of them.
        """
        prefix, usable = self.meter.fill([]), self.meter.promised
        if usable >= LEAST_USABLE and usable - prefix >= LEAST_ROOM:
            return ""
        needed = max(LEAST_USABLE, prefix + LEAST_ROOM)
        return (
            f"the context window is too small: {usable:,} of its {self.window:,} tokens can be used for a prompt, "
            f"{needed:,} are needed ({prefix:,} of them for the system prompt and the tools). Use a model with a "
            "larger window, give a local server a larger one, or correct CORECODER_MAX_CONTEXT if the model has more."
        )

    def breakdown(self, view: Sequence[Message]) -> dict[str, int]:
        """Tokens by kind: `system`, `tools`, `compacted`, `user`, `assistant`, `results`, and `total` as it counts
        against `usable`; the kinds are scaled so that they add up to it."""
        sizes = dict.fromkeys(("system", "tools", "compacted", "user", "assistant", "results"), 0)
        sizes["system"] = self.meter.measure(self.meter.system) if self.meter.system else 0
        sizes["tools"] = self.meter.prefix - sizes["system"]
        start, head = self._head(view)
        for at, message in enumerate(view):
            kind = {"tool": "results", "assistant": "assistant"}.get(message.get("role", ""), "user")
            kind = "system" if at < start else "compacted" if at == start and head else kind
            sizes[kind] += self.meter.measure(message)
        total = self.fill(view)
        scale = total / max(1, sum(sizes.values()))
        return {**{kind: round(size * scale) for kind, size in sizes.items()}, "total": total}

    def ranks_wanted(self, view: Sequence[Message]) -> bool:
        """Whether `load_ranks` is worth a background job now."""
        return self.meter.ranks_wanted(view)

    def load_ranks(self, view: Sequence[Message]) -> bool:
        """Goes over to an exact count where that needs no network; takes half a second and may run beside a turn."""
        return self.meter.load_ranks(view)

    # -- intake and recall

    def intake(self, messages: Sequence[Message]) -> list[Message]:
        """The prompt, or the results of one step, with what is too big cut and kept whole beside the log."""
        return self._records.bounded(messages, self.meter.measure, self.meter.count, self.meter.room)

    def recall(self, record: int | str) -> str:
        """The whole text of a logged message with its calls, by record id, or of a spilled text, by the name that the
        place of its cut gives. Raises KeyError."""
        message = self._records.whole(record)
        calls = [call.get("function") or {} for call in calls_of(message)]
        return text_of(message) + "".join(f"\n-> {call.get('name')}({call.get('arguments')})" for call in calls)

    def pictures(self, record: int | str) -> list[str]:
        """The URLs of the pictures of a logged message, found like its text. Raises KeyError."""
        parts = pictures_of(self._records.whole(record))
        return [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]

    # -- the tiers

    def due(self, view: Sequence[Message]) -> bool:
        """Whether `maybe_compress` would look for something to do; costs next to nothing."""
        self.meter.adopt(view)
        self.meter.forget(view)
        fill = self._fill_seen = self.fill(view)
        return fill >= self._mark(2 if self._held else 0) and (fill >= self._rest_until or self._pressed)

    def maybe_compress(
        self,
        messages: list[Message],
        llm: Model | None = None,
        *,
        force: bool = False,
        token: CancelToken | None = None,
        focus: str = "",
    ) -> bool:
        """Makes `messages` smaller in place if a watermark is passed, or if `force`; True if anything changed.

        `llm` writes summaries; without one, code does. `focus` says what the user wants kept. `last` then tells what
        was done. Raises Cancelled, with `messages` and everything else as it was, if `token` is cancelled.
        """
        if not force and not self.due(messages):
            return False
        started = time.monotonic()
        run = _Run(token or CancelToken(), focus, force, original=tuple(messages))
        self._feed(messages, run)
        before = self.fill(messages)
        view = list(messages)
        self._run_tiers(view, llm, run)
        run.token.check()
        after = self.fill(view)
        if run.asked:
            self._failures = self._failures + 1 if run.failed else 0
            self._summary_at = self._ledger.replies
        if not run.how or self._size(view) >= self._size(messages):
            return False
        messages[:] = view
        self._held = self._pressed = False
        limit = self._mark(2) if after < self._mark(2) else self.usable
        self._rest_until = min(int(after * (1 + LEAST_GAIN)), limit) if after > before * (1 - LEAST_GAIN) else 0
        seconds = time.monotonic() - started
        self.last = Compaction(before, after, len(view), run.how, run.cost, seconds, run.failed)
        if self._log is None:
            self._fed = {id(message): message for message in view}
        self._records.forget(view)
        self.meter.forget(view)
        return True

    def _run_tiers(self, view: list[Message], llm: Model | None, run: _Run) -> None:
        before = self.fill(view)
        if run.force:
            if not self._summarize_old(view, llm, run=run):
                self._snip_tool_outputs(view, run=run)
            stuck = self._pressed and self.fill(view) > before * (1 - LEAST_GAIN)
        else:
            self._snip_tool_outputs(view, run=run)
            if self.fill(view) >= self._mark(1):
                self._summarize_old(view, llm, run=run)
            stuck = False
        if stuck or self.fill(view) >= self._mark(2):
            self._hard_collapse(view, run=run)

    def _snip_tool_outputs(self, messages: list[Message], run: _Run | None = None) -> bool:
        """Tier 1: stale results become stubs, all at once, if that frees enough to be worth the cache it voids."""
        run = run or _Run()
        measure, room = self.meter.measure, self.meter.room
        stubs = tiers.snip(messages, measure, int(room * self._tail), self._records.record_of)
        freed = sum(measure(messages[at]) - measure(stub) for at, stub in stubs.items())
        if not stubs or (not run.force and freed < WORTH_SNIPPING * room):
            return False
        for at, stub in stubs.items():
            messages[at] = self._records.stands_for(stub, messages[at])
        run.how = "snip"
        return True

    def _summarize_old(
        self,
        messages: list[Message],
        llm: Model | None = None,
        keep_recent: int | None = None,
        run: _Run | None = None,
    ) -> bool:
        """Tier 2: everything before the kept tail becomes one message. The tail is chosen by tokens, or is at
        least `keep_recent` messages."""
        run = run or _Run(original=tuple(messages))
        if keep_recent is not None:
            split = self._safe_split(messages, keep_recent)
        else:
            budget = self._tail_budget()
            if run.force:  # of a short conversation, too, the older part goes
                budget = min(budget, self._size(messages) // 3)
            split = tiers.tail_start(messages, self.meter.measure, budget)
        start, head = self._head(messages)
        if all(map(is_acknowledgement, messages[start + bool(head) : split])):
            return False
        if not run.force and self._ledger.replies - self._summary_at < STEPS_BETWEEN_SUMMARIES:
            return False
        text = self._get_summary(messages[:split], llm, run)
        smaller = tiers.joined(self._memory(text, messages[split:]), messages[split:])
        if self._size(smaller) >= self._size(messages[start:]):
            return False
        messages[start:] = smaller
        run.how = run.written_by
        return True

    def _hard_collapse(self, messages: list[Message], run: _Run | None = None) -> bool:
        """Tier 3: whatever the history, it then fits. No model is asked: it may be what fails."""
        run = run or _Run()
        start, head = self._head(messages)
        rest = messages[start + bool(head) :]
        text = (head and head.summary) or self._extract_key_info(rest)
        unseen = rest[tiers.unseen_start(rest) :]
        current = self._ledger.current
        since = max((at + 1 for at, each in enumerate(rest) if any(self._is(each, one) for one in current)), default=0)
        room = min(int(self.meter.room * COLLAPSED), self.meter.budget - self.meter.prefix)
        if self._pressed:  # whatever we count, the provider says it is too much
            room = min(room, int(self._size(messages) * COLLAPSED))
        leading = tiers.shrink(messages[:start], self.meter.measure, self.meter.count, room // 2) or []
        kept = tiers.collapse(
            rest,
            self.meter.measure,
            self.meter.count,
            lambda share: self._memory(text, unseen, share),
            room - self._size(leading),
            since=since,
            record_of=self._records.record_of,
            replace=self._records.stands_for,
        )
        messages[:] = [*leading, *kept]
        run.how = "collapse"
        return True

    @staticmethod
    def _safe_split(messages: Sequence[Message], keep_recent: int) -> int:
        """Index where the kept tail starts: never between a call and its results."""
        return tiers.safe_split(messages, keep_recent)

    def _get_summary(self, messages: Sequence[Message], llm: Model | None = None, run: _Run | None = None) -> str:
        """A summary of `messages` by the model; by code where there is none, it fails, or has failed too often.

        The model is shown everything it has seen before this run, so that the request is the last one continued.
        """
        run = run or _Run(original=tuple(messages))
        limit = int(self.meter.room * SUMMARY)
        _, head = self._head(messages)
        previous = summary.without_extract(head.summary) if head else ""
        if llm is not None and (run.force or self._failures < MAX_FAILURES):
            view = run.original
            got = summary.ask_for_summary(
                llm,
                self._summary_request(view[: tiers.unseen_start(view)], previous, limit, run),
                run.token,
                self._timeout,
            )
            run.asked, run.cost, run.failed = True, got.cost, got.failed
            if got.text:
                run.written_by = "summary"
                return summary.trimmed(got.text, limit, self.meter.count)
        run.written_by = "extract"
        extracted = self._extract_key_info(messages, limit - self.meter.count(previous))
        return f"{previous}\n{extracted}".strip()

    def _extract_key_info(self, messages: Sequence[Message], limit: int | None = None) -> str:
        """The summary that needs no model: telling sentences picked by code, in linear time."""
        least = int(self.meter.room * SUMMARY / 4)
        return summary.extract(messages, max(least, limit or 0), self.meter.count)

    def _summary_request(self, prefix: Sequence[Message], previous: str, limit: int, run: _Run) -> summary.Request:
        tools = self.meter.tools or None
        start, head = self._head(prefix)
        return summary.Request(
            prefix,
            prefix[start + bool(head) :],
            self.meter.system,
            tools,
            previous=previous,
            focus=one_line(run.focus, 500),
            words=max(60, int(limit * 0.6)),
            piece=max(4_000, self.meter.budget),  # characters: a third of the window or less, whatever the language
            # Strict servers refuse calls in a request without tools.
            whole=self.fill(prefix) + _INSTRUCTION_ROOM <= self.usable
            and (tools is not None or not any(calls_of(message) for message in prefix)),
        )

    def _memory(self, text: str, tail: Sequence[Message], share: float = 1.0) -> Message:
        """The message that takes the place of what is not in `tail`, its parts within `share` of their limits; the
        current request and the accepted plan are cut last. The plan is in it also where the tail has it: that is for
        a short while, and may be cut there."""
        room, count = self.meter.room * share, self.meter.count
        spoken = int(self.meter.room * REQUEST * min(1.0, share / _REQUEST_FROM))
        current = self._ledger.current
        missing = [item for item in current if not any(self._is(message, item) for message in tail)]
        facts = self._ledger.render(int(room * FACTS), count, without=current)
        records = {id(item.message): item.record for item in missing}
        said = [item.message for item in missing]
        said = tiers.shrink(said, self.meter.measure, count, spoken, lambda each: records[id(each)]) or []
        request = "\n\n".join(map(text_of, said))
        text = tiers.fit_text(text, int(room * SUMMARY * 1.5), count) if text else ""
        pictures = [part for message in said for part in pictures_of(message)]
        summary_text = "" if text == "…" else text
        return self._records.note(memory(summary_text, facts, request, pictures, self._plan(share)), kind="memory")

    def _plan(self, share: float) -> str:
        """The accepted plan, whole up to its limit."""
        said: list[Message] = [{"role": "user", "content": self._ledger.plan}] if self._ledger.plan else []
        limit = int(self.meter.room * PLAN * min(1.0, share / _PLAN_FROM))
        record = self._ledger.plan_record
        cut = tiers.shrink(said, self.meter.measure, self.meter.count, limit, lambda _: record) or []
        return "".join(map(text_of, cut))

    # -- small questions

    def _size(self, messages: Sequence[Message]) -> int:
        return sum(map(self.meter.measure, messages))

    def _mark(self, tier: int) -> int:
        return int(self.usable * self._marks[tier])

    def _tail_budget(self) -> int:
        """What the kept tail may take: its share, and less where the result would not land below the first mark."""
        room = self.meter.room
        request = sum(self.meter.count(words.text) for words in self._ledger.current)
        plan = min(self.meter.count(self._ledger.plan), room * PLAN)
        taken = self.meter.prefix + room * (FACTS + SUMMARY) + request + plan
        below = self.meter.budget * self._marks[0] - taken
        return int(max(room * self._tail / 4, min(room * self._tail, below)))

    def _head(self, view: Sequence[Message]) -> tuple[int, Memory | None]:
        """How many system messages lead `view`, and the memory that follows them, if one does."""
        at = next((at for at, each in enumerate(view) if each.get("role") not in ("system", "developer")), len(view))
        ours = at < len(view) and (self._log is None or self._records.meta(view[at]).get("kind") == "memory")
        return at, read_memory(view[at]) if ours else None

    def _is(self, message: Message, words: Words) -> bool:
        """Whether `message` is `words` as they were said."""
        if message is words.message:
            return True
        return words.record is not None and self._records.id_of(message) == words.record

    def _feed(self, messages: Sequence[Message], run: _Run) -> None:
        """Brings the ledger up to date: from the log after a resume, from the list itself where there is no log."""
        if self._log is None:
            if self._fed and not any(id(message) in self._fed for message in messages):
                self._ledger = Ledger()  # the list holds another conversation now
            start, head = self._head(messages)
            for at, message in enumerate(messages):
                if id(message) in self._fed:
                    continue
                if at == start and head:
                    self._ledger.read_back(head)
                else:
                    self._ledger.observe(message, None)
            self._fed = {id(message): message for message in messages}
        elif self._behind:
            ledger = Ledger()
            try:
                for record, message in self._log.messages():
                    ledger.observe(message, record, self._records.kind(record))
            except SessionError:
                pass  # what could be read is better than nothing
            run.token.check()
            self._ledger, self._behind = ledger, False
