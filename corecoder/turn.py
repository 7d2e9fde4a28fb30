"""What one turn has come to, as far as it has gone, and the message that begins it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .driver import Driver
from .events import StopReason, TurnFinished, Usage
from .messages import Message


class TurnState:
    """The fields of the TurnFinished to come. Cancelled until it ends in another way."""

    def __init__(self) -> None:
        self.begun = False  # the prompt is in the log
        self.stop_reason: StopReason = "cancelled"
        self.text = ""
        self.error = ""
        self.retryable = False
        self.refused = False
        self.steps = 0

    def finish(self, reason: StopReason, error: str = "") -> None:
        self.stop_reason, self.error = reason, error

    def fail(self, error: str, *, retryable: bool = False) -> None:
        self.finish("error", error)
        self.retryable = retryable

    def last_event(self, driver: Driver, usage: Usage) -> TurnFinished:
        """The last event of the turn that `driver` served; takes what steering is left."""
        return TurnFinished(
            self.stop_reason,
            self.text or driver.partial,
            usage,
            steps=self.steps,
            error=self.error,
            retryable=self.retryable,
            refused=self.refused,
            unsent=tuple(driver.take_steering()),
        )


def user_message(text: str, images: Sequence[str] = ()) -> Message:
    """A user message; `images` are data URLs."""
    if not images:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": parts + [{"type": "image_url", "image_url": {"url": url}} for url in images]}
