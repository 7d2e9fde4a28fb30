"""What a turn says while it runs: frozen dataclasses of plain data, the only thing a front end reads.

Order within one turn, all from one generator:

    TurnStarted                                   exactly one, first
    per step:
        StepStarted
        (ReasoningDelta | TextDelta | Retrying)*  after a Retrying the deltas of this step start again from nothing
        UsageUpdated                              at most one, when the provider reported usage
        MessageCompleted                          the reply as it was logged
        Question*                                 consent for the calls of this reply, one at a time, before any runs
        ToolStarted ToolOutput* ToolFinished      per call; neighbours that run together interleave, and every
                                                  ToolFinished comes in the order of the calls
    Compacting, Compacted, Notice, TodoChanged,   anywhere between the first and the last
    Retrying, Steered, ModeChanged
    TurnFinished                                  exactly one, last, unless the generator is closed

A refused call has ToolStarted and ToolFinished like any other, with `ok` false. Every event carries `agent`, empty
for the main agent and the name of a sub-agent otherwise. Values are str, int, float, bool, None, tuples and dicts of
these, so `dataclasses.asdict` gives JSON.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from .values import dataclass

StopReason = Literal["end_turn", "max_tokens", "max_steps", "limit", "cancelled", "refused", "error"]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request or of several added up. `cached` is the part of `prompt` that came from a cache.

    `cost` is in US dollars, None as soon as one part has no known price.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        if self == Usage():
            return other
        known = self.cost is not None and other.cost is not None
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            (self.cost or 0) + (other.cost or 0) if known else None,
        )

    def __sub__(self, other: Usage) -> Usage:
        """What was used since `other`, an earlier state of the same sum."""
        return Usage(
            self.prompt - other.prompt,
            self.completion - other.completion,
            self.cached - other.cached,
            self.reasoning - other.reasoning,
            None if self.cost is None else self.cost - (other.cost or 0),
        )


@dataclass(frozen=True)
class Event:
    """Base of all events; `agent` is keyword-only so that subclasses keep their own order."""

    agent: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class TurnStarted(Event):
    """Before any other event of the turn, once the prompt is in the log (or will not be: nothing can be sent)."""

    prompt: str


@dataclass(frozen=True)
class StepStarted(Event):
    """Before each model request; `step` counts from 1 within the turn."""

    step: int


@dataclass(frozen=True)
class TextDelta(Event):
    """A piece of the visible answer, as it arrives."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta(Event):
    """A piece of the model's reasoning, as it arrives; never part of the answer."""

    text: str


@dataclass(frozen=True)
class MessageCompleted(Event):
    """The assistant message of this step is whole and logged; `calls` is the number of tool calls in it."""

    text: str
    calls: int


@dataclass(frozen=True)
class ToolStarted(Event):
    """A call is about to run or to be refused. `arguments` are parsed; {} if they were not a JSON object."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolOutput(Event):
    """Live output of a running call, between its ToolStarted and its ToolFinished; may be clipped."""

    call_id: str
    text: str


@dataclass(frozen=True)
class ToolFinished(Event):
    """The call has its tool message. `content` is what the model reads, `display` what a person is shown instead
    ("" for the same), `ok` false for an error or a refusal, `seconds` its running time, `refused` true if consent,
    plan mode or a hook kept it from running."""

    call_id: str
    name: str
    content: str
    ok: bool
    seconds: float = 0.0
    display: str = ""
    refused: bool = False


NOBODY = "no, nobody is there"
"""The answer to a question that nobody can be asked."""


@dataclass(frozen=True)
class Question(Event):
    """The turn waits for `agent.answer(question_id, answer)`. `kind` is "consent", "plan" or "ask"; `detail` holds the
    whole command, diff or plan; `choices` are the accepted answers, the first of them the safe default; `why` says why
    it is asked. "edit" goes with the command to run instead; those of a plan are no and the modes to go on in."""

    question_id: str
    kind: str
    text: str
    detail: str = ""
    choices: tuple[str, ...] = ("no", "yes")
    why: str = ""


@dataclass(frozen=True)
class Retrying(Event):
    """A request failed and is sent again after `delay` seconds; `attempt` counts the repetitions from 1, and stays
    where a request was mended rather than repeated."""

    reason: str
    delay: float
    attempt: int


@dataclass(frozen=True)
class Compacting(Event):
    """The view is about to be made smaller, which may take a request; Compacted follows if it got smaller."""


@dataclass(frozen=True)
class Compacted(Event):
    """The view was made smaller: tokens and messages before and after, `how` in a word or two (snip, summary,
    extract, collapse), what the summary cost in dollars (None if unknown or free) and took in seconds."""

    before: int
    after: int
    messages: int
    how: str
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class UsageUpdated(Event):
    """After a reply with reported usage: this request, the whole session, and the fill of the window in tokens."""

    usage: Usage
    total: Usage
    context: int
    window: int


@dataclass(frozen=True)
class TodoChanged(Event):
    """The model rewrote its task list; each task is (status, text)."""

    tasks: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Notice(Event):
    """One line that the person should see; `level` is "info" or "warning"."""

    text: str
    level: str = "info"


@dataclass(frozen=True)
class Steered(Event):
    """Words given to `agent.steer` are in the log now; the next request holds them."""

    text: str


@dataclass(frozen=True)
class ModeChanged(Event):
    """From here on the mode is another one, because the person accepted a plan."""

    mode: str


@dataclass(frozen=True)
class TurnFinished(Event):
    """Last event. `text` is the final answer ("" if there is none), `error` a sentence when the stop reason is error,
    `retryable` true if the same prompt may succeed later, `refused` true if the last step had a call refused,
    `unsent` the steering words that never reached the model."""

    stop_reason: StopReason
    text: str
    usage: Usage
    steps: int = 0
    error: str = ""
    retryable: bool = False
    refused: bool = False
    unsent: tuple[str, ...] = ()
