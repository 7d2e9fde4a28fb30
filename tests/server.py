"""A scripted chat-completions server on the loopback, as strict as the strictest provider, for tests and by hand.

    with StrictServer([call("bash", command="ls")], "done") as server:
        llm = LLM("scripted", "key", server.base_url)
        ...
        assert server.faults == []

Each request takes the next step of the script. A step is a text, a `Call` or a list of them (with `Text` beside
calls), raw stream `Events`, an `HTTPError`, or a function of the request body that returns one of these. The last
step can be made to repeat with `forever`. Every request is checked against the rules that providers enforce; one that
breaks a rule is answered 400 in the provider's words and noted in `server.faults`.

By hand: `python tests/server.py 8123 script.py`, where script.py assigns a list of steps to SCRIPT.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer, ThreadingMixIn
from typing import Any, TypeAlias

Body = dict[str, Any]

DONE = "data: [DONE]"


@dataclass(frozen=True)
class Pause:
    """Nothing is sent for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Marker:
    """Something done to the connection instead of sending."""

    name: str


STALL = Marker("stall")  # the socket stays open and silent until the client or the server goes away
HANGUP = Marker("hangup")  # the connection is reset in the middle of the body
EOF = Marker("eof")  # the connection is closed without the end of the chunked body


@dataclass(frozen=True)
class Text:
    """A text; `delay` seconds pass before each of its deltas of `size` characters. `reasoning` comes before it."""

    text: str
    reasoning: str = ""
    size: int = 40
    delay: float = 0.0


@dataclass(frozen=True)
class Call:
    """One tool call; `raw` replaces the JSON of `arguments`."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    raw: str | None = None


def call(name: str, /, **arguments: Any) -> Call:
    """`call("bash", command="ls")`."""
    return Call(name, arguments)


@dataclass(frozen=True)
class Events:
    """A stream as it is written: dicts become `data:` lines, strings are sent as they are, each with a blank line."""

    events: Sequence[dict[str, Any] | str | bytes | Pause | Marker]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def sse(*events: dict[str, Any] | str | bytes | Pause | Marker) -> Events:
    """A raw stream."""
    return Events(events)


@dataclass(frozen=True)
class HTTPError:
    """An answer with a status; `body` is sent as JSON unless it is text or bytes; `pause` seconds pass before it."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0


@dataclass(frozen=True)
class Plain:
    """A whole body with status 200 that is not a stream."""

    body: Any
    content_type: str = "application/json"


Part: TypeAlias = str | Text | Call
Step: TypeAlias = str | Text | Call | list[Part] | Events | HTTPError | Plain | Marker | Callable[[Body], Any]


def D(content: str | None = None, /, **delta: Any) -> dict[str, Any]:
    """A chunk with this delta."""
    if content is not None:
        delta["content"] = content
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def T(*calls: dict[str, Any]) -> dict[str, Any]:
    """A chunk with these tool-call deltas, written as they are."""
    return D(tool_calls=list(calls))


def F(reason: str) -> dict[str, Any]:
    """A chunk with an empty delta and this finish reason."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def fn(
    name: str | None = None, arguments: Any = None, *, index: Any = 0, id: str | None = None, **extra: Any
) -> dict[str, Any]:
    """One tool-call delta; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    delta: dict[str, Any] = {} if index is None else {"index": index}
    if id is not None:
        delta |= {"id": id, "type": "function"}
    return {**delta, "function": function, **extra}


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    """A usage chunk."""
    figures: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached:
        figures["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"object": "chat.completion.chunk", "choices": [], "usage": figures}


def api_error(message: str, *, status: int = 400, code: Any = None, param: Any = None, **more: Any) -> HTTPError:
    """An error in OpenAI's shape."""
    kind = more.pop("type", "invalid_request_error")
    headers = more.pop("headers", {})
    return HTTPError(status, {"error": {"message": message, "type": kind, "param": param, "code": code}}, headers)


class StrictServer:
    """See the module. `window` refuses longer prompts (tokens by `count(body)`, default a quarter of the characters);
    `forever` answers whatever comes after the script; `models` is what GET /v1/models lists; `strict` can be off."""

    def __init__(
        self,
        *steps: Step,
        forever: Step | None = None,
        window: int | None = None,
        count: Callable[[Body], int] | None = None,
        models: Sequence[dict[str, Any]] = (),
        strict: bool = True,
        port: int = 0,
    ) -> None:
        self.steps: list[Step] = list(steps)
        self.forever = forever
        self.window = window
        self.count = count or (lambda _body: len(self.raw[-1]) // 4)
        self.models = list(models)
        self.strict = strict
        self.requests: list[Body] = []
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.gets: list[str] = []
        self.faults: list[str] = []
        self.connections = 0
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._tcp = _TCP(("127.0.0.1", port), _Handler)
        self._tcp.owner = self
        self._thread = threading.Thread(target=self._tcp.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.port = int(self._tcp.server_address[1])
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> StrictServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._tcp.shutdown()
        self._tcp.close_all()
        self._tcp.server_close()
        self._thread.join()

    def prompts(self) -> list[str]:
        """The text of the last user message of every request."""
        users = [[m for m in body["messages"] if m.get("role") == "user"] for body in self.requests]
        return [str(found[-1]["content"]) if found else "" for found in users]

    def answer(self, body: Body, raw: bytes) -> Step:
        """The step for this request, after checking it."""
        with self.lock:
            self.requests.append(body)
            self.raw.append(raw)
            self.times.append(time.monotonic())
            fault = next(broken_rules(body), None) if self.strict else None
            if fault:
                self.faults.append(fault)
                return api_error(fault)
            if self.window and (tokens := self.count(body)) > self.window:
                return api_error(
                    f"This model's maximum context length is {self.window} tokens. However, your messages resulted in "
                    f"{tokens} tokens. Please reduce the length of the messages.",
                    code="context_length_exceeded",
                    param="messages",
                )
            if self.steps:
                return self.steps.pop(0)
            if self.forever is not None:
                return self.forever
            self.faults.append(f"request {len(self.requests)} is not in the script")
            return api_error("the script is over", status=400, code="script_over")

    def prefix_tokens(self) -> int:
        """Tokens that this request shares with the one before, as a provider's prompt cache would count them."""
        with self.lock:
            before, now = self.raw[-2:] if len(self.raw) > 1 else (b"", b"")
        same, beyond = 0, min(len(before), len(now)) + 1
        while beyond - same > 1:
            middle = (same + beyond) // 2
            same, beyond = (middle, beyond) if before[:middle] == now[:middle] else (same, middle)
        return same // 4 // 64 * 64


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ROLES = ("system", "user", "assistant", "tool")


def broken_rules(body: Body) -> Iterator[str]:
    """What a strict provider refuses in this request, in the words of one that does."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    if body.get("tools") == []:
        yield "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
    if "tools" not in body and ("tool_choice" in body or "parallel_tool_calls" in body):
        yield "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
    for tool in body.get("tools", []):
        if not _NAME.match(tool["function"]["name"]):
            yield "Invalid 'tools[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
    limit = body.get("max_tokens", body.get("max_completion_tokens", 1))
    if not isinstance(limit, int) or limit < 1:
        yield f"max_tokens must be at least 1, got {limit}."
    for at, message in enumerate(messages):
        yield from _broken_message(at, message)
    yield from _broken_pairs(messages)
    if not any(message.get("role") == "user" for message in messages):
        yield "No user query found in messages."


def _broken_message(at: int, message: dict[str, Any]) -> Iterator[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in _ROLES:
        expected = ", ".join(f"`{known}`" for known in _ROLES)
        yield f"messages[{at}].role: unknown variant `{role}`, expected one of {expected}"
    if not isinstance(content, (str, list, type(None))):
        yield f"Invalid type for 'messages[{at}].content': expected a string or an array"
    texts = [content] if isinstance(content, str) else [part.get("text") for part in content or [] if "text" in part]
    if any(not isinstance(text, str) or not text.strip() for text in texts) or content == []:
        yield f"messages.{at}: text content blocks must be non-empty"
    if content is None and (role != "assistant" or not calls):
        yield f"Invalid assistant message: content or tool_calls must be set (messages[{at}], role {role})"
    if calls is not None and role == "assistant" and not calls:
        yield f"[] is too short - 'messages.{at}.tool_calls'"
    for made in calls or []:
        yield from _broken_call(at, made)


def _broken_call(at: int, made: dict[str, Any]) -> Iterator[str]:
    if set(made) & {"index"} or made.get("type") != "function":
        yield f"Missing or unknown parameter: 'messages[{at}].tool_calls[0].type'"
    name, arguments = made["function"].get("name"), made["function"].get("arguments")
    if not isinstance(name, str) or not _NAME.match(name):
        yield f"Invalid 'messages[{at}].tool_calls[0].function.name': string does not match '^[a-zA-Z0-9_-]+$'."
    try:
        sound = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError):
        sound = False
    if not sound:
        yield 'The "function.arguments" parameter of the code model must be in JSON format.'


def _broken_pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"tool_call_id {message.get('tool_call_id')} is not found (messages[{at}])"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            )
        waiting = [made.get("id") for made in message.get("tool_calls") or []]
        if len(set(waiting)) != len(waiting) or not all(waiting):
            yield f"Duplicate or empty tool call id in messages[{at}]: {waiting}"
    if waiting:
        yield f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"


class _TCP(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64
    owner: StrictServer

    def __init__(self, *arguments: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*arguments)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def close_all(self) -> None:
        """Wakes every handler that waits for its client."""
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _TCP

    def handle(self) -> None:
        self.owner = self.server.owner
        self.server.open.add(self.connection)
        self.owner.connections += 1
        try:
            while not self.owner.stopping.is_set() and self._one():
                pass
        finally:
            self.server.open.discard(self.connection)

    def _one(self) -> bool:
        """One request; whether the connection goes on."""
        request = self.rfile.readline()
        if not request:
            return False
        method, path = request.decode("latin-1").split()[:2]
        headers: dict[str, str] = {}
        while line := self.rfile.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        raw = self.rfile.read(int(headers.get("content-length", 0)))
        if method == "GET":
            return self._get(path) and headers.get("connection", "").lower() != "close"
        self.owner.headers.append(headers)
        try:
            body = json.loads(raw)
        except ValueError as error:
            self.owner.faults.append(f"the body is not JSON: {error}")
            return self._plain(400, {"error": "not JSON"})
        return self._send(self.owner.answer(body, raw), body)

    def _get(self, path: str) -> bool:
        self.owner.gets.append(path)
        if path.endswith("/models"):
            return self._plain(200, {"object": "list", "data": self.owner.models})
        return self._plain(404, {"error": {"message": "Not Found"}})

    def _send(self, step: Any, body: Body) -> bool:
        while callable(step):
            step = step(body)
        if isinstance(step, HTTPError):
            time.sleep(step.pause)
            return self._plain(step.status, step.body, step.headers)
        if isinstance(step, Plain):
            return self._plain(200, step.body, {"Content-Type": step.content_type})
        if step is HANGUP or step is EOF:
            return self._mark(step)
        if step is STALL:
            return self._mark(STALL)
        return self._stream(step if isinstance(step, Events) else self._scripted(step, body))

    def _scripted(self, step: str | Text | Call | list[Part], body: Body) -> Events:
        parts = step if isinstance(step, list) else [step]
        events: list[Any] = [D(role="assistant", content="")]
        number = 0
        for part in parts:
            part = Text(part) if isinstance(part, str) else part
            if isinstance(part, Call):
                identity = part.id or f"call_{len(self.owner.requests)}_{number}"
                arguments = json.dumps(part.arguments, ensure_ascii=False) if part.raw is None else part.raw
                events.append(T(fn(part.name, "", index=number, id=identity)))
                events += [
                    T(fn(arguments=arguments[at : at + 40], index=number)) for at in range(0, len(arguments), 40)
                ]
                number += 1
                continue
            for key, text in (("reasoning_content", part.reasoning), ("content", part.text)):
                for at in range(0, len(text), part.size):
                    events += [Pause(part.delay)] if part.delay else []
                    events.append(D(**{key: text[at : at + part.size]}))
        events.append(F("tool_calls" if number else "stop"))
        if body.get("stream_options", {}).get("include_usage"):
            written = sum(len(json.dumps(event)) // 40 for event in events if isinstance(event, dict))
            events.append(usage(self.owner.count(body), max(1, written), self.owner.prefix_tokens()))
        return Events([*events, DONE])

    def _stream(self, step: Events) -> bool:
        kind = {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked", **step.headers}
        pending = [self._head(step.status, kind)]
        for event in step.events:
            if isinstance(event, (Pause, Marker)):
                self._write(b"".join(pending))
                pending = []
                if isinstance(event, Marker):
                    return self._mark(event)
                if self.owner.stopping.wait(event.seconds):
                    return False
                continue
            text = f"data: {json.dumps(event, ensure_ascii=False)}" if isinstance(event, dict) else event
            data = text if isinstance(text, bytes) else (text + "\n\n").encode("utf-8", "surrogatepass")
            pending.append(b"%x\r\n%s\r\n" % (len(data), data))
        self._write(b"".join([*pending, b"0\r\n\r\n"]))
        return True

    def _mark(self, marker: Marker) -> bool:
        if marker is STALL:
            self.connection.recv(1)  # until the client goes away or close_all
        if marker is HANGUP:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        return False

    def _plain(self, status: int, body: Any, headers: dict[str, str] | None = None) -> bool:
        data = (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
        kind = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
        self._write(self._head(status, kind) + data)
        return True

    def _head(self, status: int, headers: dict[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    def _write(self, data: bytes) -> None:
        self.connection.sendall(data)


def main(port: str, script: str) -> None:
    """Serves the SCRIPT of a Python file until interrupted; prints one line per request."""
    names = {name: value for name, value in globals().items() if not name.startswith("_")}
    exec(compile(Path(script).read_text(encoding="utf-8"), script, "exec"), names)
    with StrictServer(*names["SCRIPT"], forever=names.get("FOREVER"), port=int(port)) as server:
        print(f"listening on {server.base_url}", flush=True)
        seen = 0
        try:
            while True:
                time.sleep(0.2)
                for body in server.requests[seen:]:
                    seen += 1
                    print(f"request {seen}: {len(body['messages'])} messages, faults {server.faults}", flush=True)
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
