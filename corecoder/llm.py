"""The model: one `chat` that streams a reply, and the one place where anything is tried again.

A request is built as the standard has it, shaped for its endpoint (`dialects.py`), sent over a `Wire`, put together by
`reader.py`. What goes wrong becomes one of our errors (`refusals.py`), and `chat` decides what follows: fix the request
and remember, wait and repeat (`retries.py`), or give up. Every repetition starts the reply afresh and is announced by
`on_retry`.

The price of deciding here: nobody above may retry, and nobody below does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import dialects, models, shapes
from .errorbody import gather
from .errors import ContextOverflow, ProviderError, RequestRefused, RequestTooLarge, ServerFailed
from .events import Usage
from .jobs import CancelToken
from .messages import Message, Reply
from .models import ModelInfo
from .providers import checked_url, is_local, preset_for
from .reader import judged, read
from .refusals import classify, output_cap, overflow_figures
from .retries import LLMSettings, Retries
from .stream import ReplyBuilder
from .tokens import estimate_tokens, schema_tokens
from .wire import HTTPAnswer, Silence, SilenceLimits, StaleConnection, Wire

__all__ = ["LLM", "LLMSettings"]

OnText = Callable[[str], None]
OnRetry = Callable[[str, float, int], None]

SMALLEST_REPLY = 256  # tokens; max_tokens is never fitted below this


class LLM:
    """One model at one endpoint.

    `base_url` None is OpenAI's own. `window` is the user's word on the context window in tokens. `home` is where
    lessons about the endpoint are kept, None to keep none. Raises ConfigError for a `base_url` that is no address. Safe
    to use from several threads.
    """

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None = None,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        window: int | None = None,
        settings: LLMSettings | None = None,
        home: Path | None = None,
    ) -> None:
        self.model = model
        self.base_url = checked_url(base_url)
        self.settings = settings or LLMSettings()
        self.total = Usage()
        self._limits = SilenceLimits(
            self.settings.first_byte_timeout, self.settings.idle_timeout, self.settings.keepalive_timeout
        )
        self._api_key = api_key
        self._temperature, self._max_tokens, self._window = temperature, max_tokens, window
        self._memory = models.Memory(home, base_url, model)
        self._lessons = self._memory.load()
        preset = preset_for(base_url)
        self._preset_quirks = preset.quirks if preset else frozenset()
        self._lock = threading.Lock()
        self._idle: list[Wire] = []
        self._refused_images: frozenset[str] = frozenset()
        self._closed = False
        # A server on this machine may have been started anew with another window: it is asked in every process.
        self._looked_up = not (self._lessons.stale or is_local(base_url))

    @property
    def info(self) -> ModelInfo:
        """What is known of the model now; more may be known after the first reply."""
        return models.describe(self.model, self._lessons, self._window)

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        on_token: OnText | None = None,
        on_reasoning: OnText | None = None,
        *,
        on_retry: OnRetry | None = None,
        token: CancelToken | None = None,
        max_tokens: int | None = None,
        tool_choice: str | None = None,
    ) -> Reply:
        """Sends `messages` (the system message first) and returns the whole reply.

        `on_token` and `on_reasoning` get text as it arrives, on the calling thread. `on_retry(reason, delay, attempt)`
        is called before each repetition, after which the text starts from nothing. Blocks until the reply is whole;
        raises the ProviderError tree, or Cancelled as soon as `token` is set.
        """
        token = token or CancelToken()
        request = _Request(messages, tools or (), max_tokens or self._max_tokens, tool_choice)
        retries = Retries(self.settings)
        while True:
            token.check()
            body = self._body(request)
            try:
                reply = self._once(body, request, token, on_token, on_reasoning)
            except ProviderError as error:
                fixed = self._fix(error, body, request)
                reason, delay = (fixed, 0.0) if fixed else retries.after(error)
            else:
                self._keep(request)
                return self._accounted(reply, token)
            if on_retry:
                on_retry(reason, delay, retries.attempt)
            token.sleep(delay)

    def warm_up(self) -> None:
        """Loads the SDK and builds a client, so that the first request need not wait for it."""
        with self._wire():
            pass

    def look_up(
        self, token: CancelToken | None = None, timeout: float = 3.0, *, forget_window: bool = False
    ) -> ModelInfo:
        """Asks the provider's model list and the offline catalogue, once in a week (a local server: once in a process).
        `chat` does it after its first reply. `forget_window` gives up the window that a refusal taught."""
        token = token or CancelToken()
        if forget_window and self._lessons.window:
            self._learn(window=None)
        if not self._looked_up:
            self._looked_up = True
            with self._wire() as wire:
                listing = wire.get_json("/models", token, timeout)
            listed = {**models.from_listing(listing, self.model), "names": models.listed_names(listing) or None}
            listed["catalogue"] = models.catalogue_window(self.model, self.base_url)
            known = {key: value for key, value in listed.items() if value is not None}
            self._learn(listed=known, at=time.time())
            if is_local(self.base_url) and known.get("window"):
                self._learn(window=None)
        return self.info

    def close(self) -> None:
        """Closes the connections; a request that is under way breaks off."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    # -- one request

    def _body(self, request: _Request) -> dict[str, Any]:
        """The request as the standard has it; messages last, so that a longer one has the shorter as its prefix."""
        body: dict[str, Any] = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if request.max_tokens:
            body["max_tokens"] = self._fitted(request)
        if request.tools:
            body["tools"] = list(request.tools)
            if request.tool_choice:
                body["tool_choice"] = request.tool_choice
        body["messages"] = list(request.messages)
        return body

    def _fitted(self, request: _Request) -> int:
        """`max_tokens` held to what the model can write and to the room that the prompt leaves."""
        info = self.info
        limit = min(request.max_tokens or 0, info.output_limit or request.max_tokens or 0)
        if info.window:
            prompt = estimate_tokens(request.messages) + schema_tokens(request.tools)
            limit = min(limit, info.window - prompt - SMALLEST_REPLY)
        return max(limit, min(SMALLEST_REPLY, request.max_tokens or SMALLEST_REPLY))

    def _once(
        self,
        body: dict[str, Any],
        request: _Request,
        token: CancelToken,
        on_token: OnText | None,
        on_reasoning: OnText | None,
    ) -> Reply:
        """One attempt."""
        left_out = self._refused_images | request.suspects
        if left_out:
            messages = [shapes.images_replaced(item, shapes.REFUSED_IMAGE, left_out) for item in body["messages"]]
            body = {**body, "messages": messages}
        shaped = dialects.shaped(body, self._quirks(request))
        content = json.dumps(shaped, ensure_ascii=False).encode("utf-8", "replace")
        names = [tool["function"]["name"] for tool in request.tools]
        for last_try in (False, True):
            builder = ReplyBuilder(names, on_token, on_reasoning)
            try:
                with self._wire() as wire:
                    silence = Silence(self._limits)
                    with closing(wire.post(content, token, silence)) as pieces:
                        read(pieces, builder, silence)
                return self._priced(judged(builder), builder.raw_usage)
            except HTTPAnswer as answer:
                raise classify(answer.status, answer.text, answer.headers) from None
            except StaleConnection:
                if last_try:
                    raise ServerFailed("the server closes every connection without an answer") from None
        raise AssertionError("unreachable")

    def _priced(self, reply: Reply, raw: dict[str, Any]) -> Reply:
        if reply.usage is None:
            return reply
        cost = models.cost_of(reply.usage, raw, self.model, self.base_url)
        return replace(reply, usage=replace(reply.usage, cost=cost))

    def _accounted(self, reply: Reply, token: CancelToken) -> Reply:
        with self._lock:
            self.total += reply.usage or Usage()
        if reply.usage and reply.usage.prompt > (self._lessons.window or reply.usage.prompt):
            self._learn(window=None)  # a longer prompt went through than the one that was refused
        if not self._looked_up:
            self.look_up(token)
        return reply

    # -- what a refusal teaches

    def _quirks(self, request: _Request) -> frozenset[str]:
        return dialects.adopted(self._preset_quirks | self._lessons.quirks, *request.learnt, *request.bare)

    def _fix(self, error: ProviderError, body: dict[str, Any], request: _Request) -> str:
        """Changes the request so that this refusal will not come again; what was done, "" if nothing can be."""
        if isinstance(error, ContextOverflow):
            return self._smaller_reply(error, request)
        if not isinstance(error, (RequestRefused, RequestTooLarge, ServerFailed)) or len(request.learnt) > 8:
            return ""
        return self._reshaped(error, body, request) or self._guessed(error, body, request)

    def _reshaped(self, error: ProviderError, body: dict[str, Any], request: _Request) -> str:
        """Shapes the request as the refusal wants it."""
        words = gather(error.said).words
        cap = output_cap(words)
        if cap and cap < (request.max_tokens or dialects.DEFAULT_LIMIT):
            request.max_tokens = cap
            self._learn(output_limit=cap)
            return f"the model writes at most {cap:,} tokens; asking for no more"
        param = error.param if isinstance(error, RequestRefused) else ""
        name = dialects.remedy(words, param, body, self._quirks(request), request.learnt)
        if name is None:
            return ""
        request.learnt.append(name)
        return dialects.described(name)

    def _guessed(self, error: ProviderError, body: dict[str, Any], request: _Request) -> str:
        """Leaves out what may be the reason, one guess after the other: one bad thing in the conversation would else
        end every turn to come. Only a guess that helped is kept."""
        if isinstance(error, ServerFailed) or (isinstance(error, RequestRefused) and error.hint):
            return ""
        request.bare, request.suspects = frozenset(), frozenset()
        for guess in ("other providers' fields", "images")[request.guesses :]:
            request.guesses += 1
            if guess == "images":
                images = frozenset().union(*map(shapes.images_of, request.messages))
                request.suspects = images - self._refused_images
            else:
                request.bare = dialects.bare(body, self._quirks(request))
            if request.bare or request.suspects:
                return f"{error.said.removesuffix('.')}; sending it without {guess}"
        return ""

    def _smaller_reply(self, error: ContextOverflow, request: _Request) -> str:
        """Learns the window, and asks for less where prompt and reply together were too much."""
        if error.window:
            self._learn(window=error.window, taught=time.time())
        figures = overflow_figures(error.said)
        if not (figures and error.window and request.max_tokens):
            return ""
        room = error.window - figures[0] - SMALLEST_REPLY
        if not SMALLEST_REPLY <= room < min(request.max_tokens, figures[1]):
            return ""
        request.max_tokens = room
        return f"prompt and reply do not fit together; asking for {room:,} tokens"

    def _keep(self, request: _Request) -> None:
        """Keeps the lessons of a request that went through; which images are bad only for this process."""
        self._refused_images |= request.suspects
        if learnt := [*request.learnt, *request.bare]:
            self._learn(quirks=dialects.adopted(self._lessons.quirks, *learnt))

    def _learn(self, **lessons: Any) -> None:
        with self._lock:
            self._lessons = replace(self._lessons, **lessons)
            # A server on this machine may be started anew with eyes.
            passing = {"no images"} if is_local(self.base_url) else set()
            self._memory.save(replace(self._lessons, quirks=self._lessons.quirks - passing))

    # -- connections

    @contextmanager
    def _wire(self) -> Iterator[Wire]:
        """A connection that nobody else uses meanwhile."""
        with self._lock:
            wire = self._idle.pop() if self._idle else None
        wire = wire or Wire(self._api_key, self.base_url)
        try:
            yield wire
        finally:
            with self._lock:
                kept = not (wire.dead or self._closed)
                if kept:
                    self._idle.append(wire)
            if not kept:
                wire.close()


class _Request:
    """What is asked for, and what was learnt while asking."""

    def __init__(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        max_tokens: int | None,
        tool_choice: str | None,
    ) -> None:
        self.messages, self.tools, self.max_tokens, self.tool_choice = messages, tools, max_tokens, tool_choice
        self.learnt: list[str] = []
        # What is left out to see if it goes without: quirks, URLs of images; and how many guesses there were.
        self.bare: frozenset[str] = frozenset()
        self.suspects: frozenset[str] = frozenset()
        self.guesses = 0
