"""One connection to a provider: a request goes out, the bytes of its reply come in, and it can be cut at any moment.

The `openai` package sends the request, so its headers, addresses, proxies and certificates are the ones that
providers expect; the reply is read from its raw response, because the SDK's own iterator ends alike on [DONE] and on
a cut connection. A `Wire` serves one request at a time, which is why it knows the socket to shut down when the turn
is cancelled or the server has been silent for too long. While a connection is still being made there is no socket
to shut down; that wait is bounded by `CONNECT_TIMEOUT`.

The price: two requests at the same time need two wires, and one more TLS handshake.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Generator, Mapping
from typing import Any

from .errors import AuthFailed, ProviderError, ServerFailed, StreamBroken
from .jobs import CancelToken, alarm
from .providers import is_local
from .values import dataclass

CONNECT_TIMEOUT = 10.0
KEEP_OPEN = 60.0  # seconds for which an idle connection is kept
AFTER_FINISH = 10.0  # seconds that usage and [DONE] may still take
AFTER_DONE = 1.0  # seconds for the end of the body, which makes the connection usable again


@dataclass(frozen=True)
class SilenceLimits:
    """Seconds: until the first byte of the reply, between bytes, and with nothing but keep-alives."""

    first_byte: float
    idle: float
    keep_alive: float


class HTTPAnswer(Exception):
    """The server answered with a status that is no reply. Never leaves `llm.py`."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        super().__init__(status)
        self.status, self.headers, self.text = status, headers, text


class StaleConnection(Exception):
    """A connection that had been idle was closed by the server just as it was used again. Never leaves `llm.py`."""


class Silence:
    """How long the server may stay silent from now on; `fault` says in words which limit was passed."""

    def __init__(self, limits: SilenceLimits) -> None:
        self._limits = limits
        self._progress = time.monotonic()
        self._begun = False
        self._due = self._progress + limits.first_byte
        self.fault = ""

    def due(self) -> float:
        """When it has been too long, on the monotonic clock."""
        return self._due

    def heard(self) -> None:
        """Bytes came."""
        self._begun = True
        now = time.monotonic()
        self._due = min(now + self._limits.idle, self._progress + self._limits.keep_alive)

    def progressed(self) -> None:
        """Something of the reply came."""
        self._progress = time.monotonic()

    def finished(self) -> None:
        """The reply is whole; only usage and [DONE] may still come."""
        self._due = min(self._due, time.monotonic() + AFTER_FINISH)

    def ended(self) -> None:
        """[DONE] came; only the end of the body is due."""
        self._due = min(self._due, time.monotonic() + AFTER_DONE)

    def passed(self) -> None:
        """Notes which limit it was."""
        if not self._begun:
            self.fault = f"the server sent nothing for {self._limits.first_byte:g} s"
        elif time.monotonic() - self._progress >= self._limits.keep_alive:
            self.fault = f"the server sent nothing but keep-alives for {self._limits.keep_alive:g} s"
        else:
            self.fault = f"the server fell silent in the middle of the reply, for {self._limits.idle:g} s"


class Wire:
    """A client of its own with at most one connection."""

    def __init__(self, api_key: str, base_url: str | None) -> None:
        # Imported here to buy start-up time: the SDK takes longer to load than everything else together.
        import httpx2
        import openai

        self._tls = not (base_url or "").startswith("http://")
        plain = not self._tls and not _proxied()
        self._http = openai.DefaultHttpxClient(
            verify=not plain,  # loading the certificates takes 40 ms, for nothing where there is no TLS
            follow_redirects=not plain,
            limits=httpx2.Limits(keepalive_expiry=KEEP_OPEN),
            event_hooks={"request": [self._watch]},
        )
        self._client = openai.OpenAI(
            api_key=api_key or "none", base_url=base_url, max_retries=0, http_client=self._http
        )
        self._response_type = httpx2.Response
        self._errors = (httpx2.HTTPError, httpx2.StreamError, OSError)
        self._openai = openai
        self._base_url = base_url
        self._lock = threading.Lock()
        self._socket: Any = None
        self._connected = False  # during this request
        self.dead = False

    def cut(self) -> None:
        """Makes whatever this wire waits for return at once. From any thread; does not block."""
        with self._lock:
            self.dead = True
            if self._socket is not None:
                _shut(self._socket)

    def close(self) -> None:
        """Gives the connection back."""
        self.cut()
        self._client.close()
        if self._socket is not None:
            self._socket.close()

    def get_json(self, path: str, token: CancelToken, timeout: float) -> Any:
        """The JSON at `path` below the base URL, None if there is none."""
        try:
            with token.waker(self.cut):
                response = self._client.get(path, cast_to=self._response_type, options={"timeout": timeout})
                return response.json()
        except (self._openai.OpenAIError, *self._errors, ValueError):
            token.check()
            return None

    def post(self, content: bytes, token: CancelToken, silence: Silence) -> Generator[bytes, None, None]:
        """The body of the reply to a chat-completions request, piece by piece.

        Raises HTTPAnswer for an answer with an error status, ServerFailed before and StreamBroken within the body,
        StaleConnection if it is worth trying again at once, Cancelled when the token is set.
        """
        begun = False
        self._connected = False

        def ring() -> None:
            silence.passed()
            self.cut()

        with token.waker(self.cut), alarm(silence.due, ring):
            try:
                response = self._send(content)
                try:
                    for piece in response.iter_bytes():
                        begun = True
                        silence.heard()
                        yield piece
                finally:
                    response.close()
            except self._openai.APIStatusError as error:
                token.check()
                raise HTTPAnswer(error.response.status_code, error.response.headers, error.response.text) from None
            except (self._openai.OpenAIError, *self._errors) as error:
                token.check()
                raise self._fault(error, begun, silence) from None
            token.check()
            if silence.fault:  # a body that ends with its connection: it was us who cut it
                raise StreamBroken(silence.fault)

    def _send(self, content: bytes) -> Any:
        timeout = self._openai.Timeout(None, connect=CONNECT_TIMEOUT, pool=CONNECT_TIMEOUT)
        try:
            return self._client.post(
                "/chat/completions",
                cast_to=self._response_type,
                content=content,
                stream=True,
                stream_cls=self._openai.Stream[object],
                options={"timeout": timeout, "headers": {"Content-Type": "application/json"}},
            )
        except UnicodeError:
            raise AuthFailed("The API key has characters that cannot be sent.", hint="Copy it again.") from None

    def _fault(self, error: Exception, begun: bool, silence: Silence) -> ProviderError | StaleConnection:
        """Our error for one of the SDK's or the transport's."""
        if silence.fault:
            return StreamBroken(silence.fault) if begun else ServerFailed(silence.fault)
        cause = error.__cause__ or error
        words = str(cause).strip() or type(cause).__name__
        if begun:
            return StreamBroken(f"the connection broke in the middle of the reply ({words})")
        where = str(self._client.base_url).rstrip("/")
        if self._socket is not None and not self._connected:
            return StaleConnection()
        if self._connected:
            return ServerFailed(f"{where} closed the connection without an answer ({words})")
        hint = "Is the server running?" if is_local(self._base_url) else "Check the base URL and the network."
        return ServerFailed(f"{where} cannot be reached ({words}).", hint=hint)

    def _watch(self, request: Any) -> None:
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Learns the socket from the transport. TLS takes the plain one over before its handshake, so a duplicate
        stands for the connection until the handshake is done."""
        step = event.partition(".")[2]
        if step not in ("connect_tcp.complete", "start_tls.complete", "start_tls.failed"):
            return
        stream = info.get("return_value")
        connection = stream.get_extra_info("socket") if stream is not None else None
        with self._lock:
            if step == "connect_tcp.complete":
                connection = connection.dup() if self._tls and connection is not None else connection
            elif self._socket is not None:
                self._socket.close()
            self._socket, self._connected = connection, True
            if self.dead and connection is not None:
                _shut(connection)


def _shut(connection: socket.socket) -> None:
    try:
        # Not SSLSocket.shutdown, which takes the TLS state away from the thread that is reading.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        return


def _proxied() -> bool:
    return any(name.lower().endswith("_proxy") and value for name, value in os.environ.items())
