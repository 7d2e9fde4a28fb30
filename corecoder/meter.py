"""How full the context window is, as well as it can be known before the provider says it.

Two figures, of which the larger counts: an estimate of everything that will be sent, scaled by what the last reply
taught about this model's vocabulary; and the usage last reported plus the estimate of what came since, as long as the
messages it was reported for still stand. Every message is counted once and known by its identity from then on, so a
step costs what is new in it. The price of that is one rule: a message is replaced, never changed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from .events import Usage
from .messages import Message
from .tokens import Count, estimate_text, load_ranks, message_tokens, schema_tokens

DEFAULT_WINDOW = 128_000
LEAST_USABLE = 8_000
LEAST_ROOM = 4_000
_RATIO = (0.5, 3.0)  # reported to estimated; what lies outside is an error of one of them
_LEAST_WINDOW = 1_000  # an error that names less names something else
_BELOW_REFUSED = 0.875  # of what was refused although the window has room for it: an eighth is left for the reply
_LEAST_SEEN = 0.45  # reported to estimated; a server that reports less has not read all of the prompt
_GROWN = 1_000  # tokens by which a prompt must have grown before a usage that has not can mean a cut
_RANKS_FROM = 0.40  # of the usable window: below it the cheap estimate is good enough


def _goes_on(old: Sequence[Message], view: Sequence[Message]) -> bool:
    """Whether `view` begins with the very messages of `old`."""
    return len(view) >= len(old) and all(map(operator.is_, old, view))


def _held(ratio: float) -> float:
    """`ratio` within reason."""
    return min(max(ratio, _RATIO[0]), _RATIO[1])


class Meter:
    """Counts tokens for one model and one frozen prefix (system prompt and tool schemas)."""

    def __init__(
        self,
        window: int | None,
        *,
        reserve: int | None = None,
        system: Message | None = None,
        tools: list[dict[str, Any]] | None = None,
    ) -> None:
        self.system = system
        self.tools = tools
        self.count: Count = estimate_text
        self._reserve = reserve
        self._known: dict[int, tuple[Message, int]] = {}
        self._summed: tuple[tuple[Message, ...], int] = ((), 0)
        self._ranks_tried = False
        self._ready: tuple[Count, dict[int, tuple[Message, int]]] | None = None
        self.set_window(window)

    def set_window(self, window: int | None, *, same_model: bool = False) -> None:
        """The window in tokens (None for the default); of another model, of whose vocabulary nothing is known, or of
        the same, from which it has now been learnt."""
        self.window = window or DEFAULT_WINDOW
        if same_model:
            return
        self._ratio = 1.0
        self._calibrated = False
        self._reported: tuple[tuple[Message, ...], int] | None = None  # tokens, and for which messages
        self._anchor: tuple[tuple[Message, ...], int] | None = None  # the same, of some 1,000 tokens ago or more
        self._sure = (1.0, 1.0)  # the ratios at the last two anchors
        self._cut = 0  # tokens; the largest usage reported for a prompt that the server had cut
        self._warned = False
        self._refused: float | None = None  # in the units of `measure`, until the next reply tells their scale
        self._most = float("inf")  # tokens; what a refusal showed, whatever the window is said to be

    @property
    def reserve(self) -> int:
        """Tokens kept free for the reply: an eighth of the window within 2k and 16k, or what the user set."""
        wanted = self._reserve or min(max(self.window // 8, 2_000), 16_000)
        return min(wanted, self.window // 2)

    @property
    def promised(self) -> int:
        """The window less the reserve, in the provider's tokens: what a prompt may take if no refusal showed less."""
        return self.window - self.reserve

    @property
    def usable(self) -> int:
        """U: tokens of the window that a prompt may take."""
        refused = float("inf") if self._refused is None else self._refused * self._ratio
        return int(min(self.promised, self._most, refused))

    # -- in the units of `measure`, before scaling

    def measure(self, message: Message) -> int:
        """Tokens of one message, counted once."""
        known = self._known.get(id(message))
        if known and known[0] is message:
            return known[1]
        size = message_tokens(message, self.count)
        self._known[id(message)] = (message, size)
        return size

    def _sum(self, view: Sequence[Message]) -> int:
        """Tokens of all messages; of a view that has only grown since the last call, just the new ones are added."""
        summed, total = self._summed
        if not _goes_on(summed, view):
            summed, total = (), 0
        total += sum(map(self.measure, view[len(summed) :]))
        self._summed = (tuple(view), total)
        return total

    @property
    def prefix(self) -> int:
        """F: the frozen prefix."""
        system = self.measure(self.system) if self.system else 0
        known = self._known.get(id(self.tools))
        if known is None and self.tools:
            known = self._known[id(self.tools)] = ({}, schema_tokens(self.tools, self.count))
        return system + (known[1] if known and self.tools else 0)

    @property
    def budget(self) -> int:
        """U in the units of `measure`."""
        return int(self.usable / self._ratio)

    @property
    def room(self) -> int:
        """R in the units of `measure`; where the prefix leaves nothing, as much as a tier needs to work at all."""
        return max(self.budget - self.prefix, self.budget // 4, 64)

    # -- in tokens as the provider counts them

    def fill(self, view: Sequence[Message]) -> int:
        """Tokens of a request with `view`: prefix and messages, as well as is known."""
        total = (self.prefix + self._sum(view)) * self._ratio
        reported, since = self._since(self._reported, view)
        return int(max(total, reported + since) + 0.5)

    def _since(self, point: tuple[tuple[Message, ...], int] | None, view: Sequence[Message]) -> tuple[int, float]:
        """The usage reported at `point` and the estimate of what came since, while the messages it was for still
        stand."""
        if not point or not _goes_on(point[0], view):
            return 0, 0.0
        return point[1], sum(map(self.measure, view[len(point[0]) :])) * self._ratio

    def note_usage(self, usage: Usage, sent: Sequence[Message]) -> str:
        """Learns from the usage reported for a request with `sent`. Returns words for the user, once, if the server
        must have cut the prompt: such a figure teaches nothing."""
        estimate = self.prefix + self._sum(sent)
        if usage.prompt <= 0 or not estimate:
            return ""
        if usage.prompt <= self._cut or self._was_cut(usage.prompt, estimate, sent):
            self._cut = max(self._cut, usage.prompt)
            self._ratio = max(self._sure)  # the last replies may have been to a prompt that was cut a little
            self._reported = None
            if self._warned:
                return ""
            self._warned = True
            return (
                f"the server counted {usage.prompt:,} tokens where about {int(estimate * self._ratio):,} were sent: it "
                "seems to cut off the front of the prompt, instructions and tools included. Give it a larger context "
                "(Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH) or set CORECODER_MAX_CONTEXT to the one it has."
            )
        self._ratio = _held(usage.prompt / estimate)
        if self._refused:
            self._most, self._refused = self.usable, None
        if usage.prompt > self._most:
            self._most = float("inf")  # it was refused for another reason
        self._calibrated = True
        self._reported = (tuple(sent), usage.prompt)
        if self._anchor is None or not 0 < self._since(self._anchor, sent)[1] <= _GROWN:
            self._anchor, self._sure = self._reported, (self._sure[1], self._ratio)
        return ""

    def _was_cut(self, reported: int, estimate: int, sent: Sequence[Message]) -> bool:
        """Whether the server saw far less than was sent: of the whole, or of what came since the anchor. Neither
        hangs on what the replies since then taught, or a cut that sets in slowly would excuse itself."""
        if reported < _LEAST_SEEN * estimate and estimate - reported > _GROWN:
            return True
        before, since = self._since(self._anchor, sent)
        return since > _GROWN and reported - before < 0.2 * since

    def learn_window(self, window: int | None, fill: int) -> None:
        """Learns from a refusal, as too long, of a request that we took for `fill` tokens.

        `window` is the size that the refusal named, None if it named none. It is believed unless it is absurd or
        larger than what is known (servers are known to name wrong ones). Where there would still be room for what was
        refused, less than that is used from now on, whatever the next reply says of the scale.
        """
        if window is not None and _LEAST_WINDOW <= window < self.window:
            self.window = window
        if fill < self.usable:
            self._refused = max(fill * _BELOW_REFUSED, _LEAST_WINDOW) / self._ratio
        self._reported = None

    def forget(self, view: Iterable[Message]) -> None:
        """Lets go of every message that is not in `view`, where many have left it."""
        view = list(view)
        if len(self._known) > 2 * len(view) + 100:
            standing = {id(message) for message in view} | {id(self.system), id(self.tools)}
            self._known = {key: known for key, known in list(self._known.items()) if key in standing}

    # -- the exact count

    def ranks_wanted(self, view: Sequence[Message]) -> bool:
        """Whether the exact count is worth loading now."""
        return not self._ranks_tried and self.fill(view) > _RANKS_FROM * self.usable

    def load_ranks(self, view: Sequence[Message]) -> bool:
        """Loads the exact count if its ranks are on this machine; half a second, for a background job. `adopt` then
        goes over to it, so that nothing changes under a run of the tiers."""
        self._ranks_tried = True
        count = load_ranks()
        if count is not None:
            self._ready = (count, {id(message): (message, message_tokens(message, count)) for message in view})
        return count is not None

    def adopt(self, view: Sequence[Message]) -> None:
        """Goes over to the exact count where it is loaded. What was learnt stays true: the scale changes with it."""
        if self._ready is None:
            return
        before = self.prefix + self._sum(view)
        (self.count, self._known), self._ready = self._ready, None
        self._summed = ((), 0)
        after = self.prefix + self._sum(view)
        if self._calibrated:
            self._ratio, *sure = (_held(ratio * before / max(1, after)) for ratio in (self._ratio, *self._sure))
            self._sure = (sure[0], sure[1])
