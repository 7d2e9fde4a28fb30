"""How often and how long for one reply, by the kind of fault: the policy of the one place that tries again."""

from __future__ import annotations

import random

from .errors import EmptyReply, ProviderError, RateLimited, ServerFailed, StreamBroken
from .values import dataclass

LONGEST_BACKOFF = 30.0


@dataclass(frozen=True)
class LLMSettings:
    """Limits in seconds and numbers of repetitions; the defaults are for people, tests set smaller ones."""

    first_byte_timeout: float = 300.0
    idle_timeout: float = 120.0
    keepalive_timeout: float = 600.0
    retry_wait_limit: float = 300.0  # all waits for one reply together
    retries: int = 4  # of server faults and broken streams
    rate_retries: int = 8  # of rate limits
    unreachable_retries: int = 2  # of a server that answers nothing
    empty_retries: int = 2
    backoff: float = 1.0  # the first wait, doubled each time


class Retries:
    """How often and how long for one reply, by the kind of fault."""

    def __init__(self, settings: LLMSettings) -> None:
        self._settings = settings
        self._counts: dict[str, int] = {}
        self._waited = 0.0
        self.attempt = 0

    def after(self, error: ProviderError) -> tuple[str, float]:
        """Reason and delay of the next attempt; raises `error` if there is to be none."""
        if isinstance(error, RateLimited):
            delay = self._told(error)
        else:
            kind, limit = self._limit(error)
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            if count > limit:
                if kind == "empty" and not error.hint:
                    error.hint = "Try again, say it in other words, or take another model."
                raise error
            delay = 0.0 if kind == "empty" else self._backoff(count)
        if self._waited + delay > self._settings.retry_wait_limit:
            longest = _span(self._settings.retry_wait_limit)
            error.hint = (
                f"The next wait is {_span(delay)}; all waits for one reply may take {longest} "
                "(CORECODER_RETRY_WAIT_LIMIT). Try again later."
            )
            raise error
        self._waited += delay
        self.attempt += 1
        return error.said.removesuffix("."), delay

    def _told(self, error: RateLimited) -> float:
        """The wait that was asked for, or longer: a server that names one second every time means more."""
        count = self._counts["rate"] = self._counts.get("rate", 0) + 1
        delay = max(error.retry_after or 0.0, self._backoff(count - 1 if error.retry_after else count + 1))
        overloaded = error.status is not None and error.status >= 500
        if count > (self._settings.retries if overloaded else self._settings.rate_retries):
            error.hint = "Try again later."
            raise error
        return delay

    def _limit(self, error: ProviderError) -> tuple[str, int]:
        if isinstance(error, EmptyReply):
            return "empty", self._settings.empty_retries if error.hint == "" else 0
        if isinstance(error, ServerFailed) and error.status is None:
            return "unreachable", self._settings.unreachable_retries
        if isinstance(error, (ServerFailed, StreamBroken)):
            return "fault", self._settings.retries
        return "final", 0

    def _backoff(self, count: int) -> float:
        return min(self._settings.backoff * 2.0 ** (count - 1), LONGEST_BACKOFF) * random.uniform(0.8, 1.2)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
