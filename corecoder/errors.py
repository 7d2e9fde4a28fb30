"""Everything CoreCoder raises on purpose, as one tree.

    CoreCoderError
    ├── ConfigError            a setting, a flag or a file of ours is wrong
    ├── SessionError           a session log cannot be found, read or written
    ├── ToolError              words for the model: why a call failed and what to do next
    ├── Cancelled              the user, a signal or a front end ended the turn
    └── ProviderError          the model's server; carries its own words
        ├── ContextOverflow    the prompt is larger than the window; goes to the context manager
        ├── RateLimited        wait `retry_after` seconds, then try again
        ├── QuotaExhausted     no money or quota left: never retried
        ├── AuthFailed         the key is missing or wrong: never retried
        ├── RequestRefused     a field or a message shape is refused (`param` names it)
        ├── RequestTooLarge    bytes, or tokens per minute: neither an overflow nor a wait
        ├── ServerFailed       5xx, overload, unreachable: retried, then reported
        ├── StreamBroken       the reply was cut off or unreadable: retried, then reported
        └── EmptyReply         neither text nor tool calls: retried, then reported

`str(error)` is a sentence for the person at the terminal. It says what happened and, where there is one,
the next thing to try; front ends add what was kept.
"""

from __future__ import annotations


class CoreCoderError(Exception):
    """Base of everything raised on purpose; its text can be shown to a person as it is."""


class ConfigError(CoreCoderError):
    """A setting is wrong. The text names the source of the value and the accepted form."""


class SessionError(CoreCoderError):
    """A session log cannot be used. The text says which file and what was kept."""


class ToolError(CoreCoderError):
    """A tool call failed in a way that the model can act on; the text becomes the tool result."""


class Cancelled(CoreCoderError):
    """The turn was cancelled while this piece of work was under way."""


class ProviderError(CoreCoderError):
    """A request to the model failed.

    `said` is the provider's own text, `status` the HTTP status or None when the error came inside a stream or
    before any answer, `hint` what the person can do next. `retryable` says whether the same request may succeed
    later, which front ends turn into exit code 75.
    """

    retryable = False

    def __init__(self, said: str, *, status: int | None = None, hint: str = "") -> None:
        self.said = said.strip()
        self.status = status
        self.hint = hint
        super().__init__(said)

    def __str__(self) -> str:
        status = f" (HTTP {self.status})" if self.status else ""
        return f"{self.said.removesuffix('.')}{status}. {self.hint}" if self.hint else f"{self.said}{status}"


class ContextOverflow(ProviderError):
    """The prompt does not fit. `window` is the size in tokens that the refusal named, if it named one."""

    def __init__(self, said: str, *, status: int | None = None, hint: str = "", window: int | None = None) -> None:
        super().__init__(said, status=status, hint=hint)
        self.window = window


class RateLimited(ProviderError):
    """Too many requests. `retry_after` is the wait in seconds that the provider asked for, if it did."""

    retryable = True

    def __init__(
        self, said: str, *, status: int | None = None, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(said, status=status, hint=hint)
        self.retry_after = retry_after


class QuotaExhausted(ProviderError):
    """The account has no quota or balance left."""


class AuthFailed(ProviderError):
    """The key was not accepted."""


class RequestRefused(ProviderError):
    """The request was understood and refused. `param` names the refused field or shape, "" when unknown."""

    def __init__(self, said: str, *, status: int | None = None, hint: str = "", param: str = "") -> None:
        super().__init__(said, status=status, hint=hint)
        self.param = param


class RequestTooLarge(ProviderError):
    """The body has too many bytes, or the request alone exceeds a tokens-per-minute budget."""


class ServerFailed(ProviderError):
    """The server could not be reached or failed on its side."""

    retryable = True


class StreamBroken(ProviderError):
    """The reply started and did not arrive whole."""

    retryable = True


class EmptyReply(ProviderError):
    """A whole reply with neither text nor tool calls."""
