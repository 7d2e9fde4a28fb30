"""What a provider's error means: one of our errors for every status, code and wording that is known.

The readers below go from the exceptions to the rule: what looks like an overflow but is a rate, what looks like a
rate but is a quota, what looks like a refusal but is an overflow. Wordings are matched in lower case; they are plain
strings, so that nothing is compiled before the first error.

The price is a table of wordings, each labelled with who says so, that has to grow with the providers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .errorbody import Refusal, gather, retry_after
from .errors import (
    AuthFailed,
    ContextOverflow,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    ServerFailed,
)

SMALLEST_WINDOW = 512  # a limit below this in an overflow message is a mistake of the server (vLLM once said 3)

# Window overflow, by who says so. Group "window" is the size that the text names, where it names one.
_N = r"(?P<window>\d[\d,]*)"
OVERFLOWS = (
    rf"maximum context length (?:is|of) {_N}",  # OpenAI, DeepSeek, vLLM, OpenRouter, LiteLLM
    rf"context length \({_N} tokens\)",  # Together
    rf"exceeds (?:the )?model's maximum context length \({_N}\)",  # LiteLLM
    r"exceeds? the context window|context window exceeds|exceeded context limit",  # OpenAI, MiniMax, Anthropic
    rf"prompt token count of [\d,]+ exceeds the limit of {_N}",  # Copilot
    rf"prompt is too long(?:: [\d,]+ tokens > {_N})?|prompt too long",  # Anthropic, Ollama
    r"input is too long for requested model",  # Bedrock
    rf"input token count \([\d,]+\) exceeds the maximum number of tokens allowed \({_N}\)",  # Gemini
    rf"maximum prompt length is {_N}",  # xAI
    r"reduce the length of the (?:messages|prompt|input)",  # Groq
    rf"too large for model with {_N} maximum context length",  # Mistral
    rf"exceeds the maximum allowed input length of {_N} tokens",  # OpenRouter
    rf"range of input length should be \[\d+, {_N}\]",  # Qwen
    rf"exceeded model token limit: {_N}",  # Kimi
    rf"exceeds the available context size(?: \({_N} tokens\))?",  # llama.cpp
    rf"exceed context window of {_N}",  # llama-cpp-python
    rf"loaded with context length of only {_N}|greater than the context length",  # LM Studio
    r"exceeded max context length by [\d,]+ tokens",  # Ollama
    r"max_tokens must be at least 1, got -\d+",  # vLLM: the prompt leaves less than nothing
    r"context_length_exceeded|exceed_context_size|model_max_prompt_tokens_exceeded|contextwindowexceeded",
)
# Prompt and completion apart: the prompt would fit with a smaller completion (OpenAI, DeepSeek; vLLM).
_FIGURES = (
    r"\((?P<prompt>[\d,]+) in the messages, (?P<output>[\d,]+) in the completion\)",
    r"requested (?P<output>[\d,]+) output tokens and your prompt contains at least (?P<prompt>[\d,]+) input tokens",
)
# max_tokens above what the model can write (Anthropic; Groq; OpenAI).
_OUTPUT_CAPS = (
    r"max_(?:completion_)?tokens: [\d,]+ > (?P<cap>[\d,]+)",
    r"max_(?:completion_)?tokens`? must be less than or equal to `?(?P<cap>[\d,]+)",
    r"max_(?:completion_)?tokens is too large: [\d,]+\. this model supports at most (?P<cap>[\d,]+)",
)
_PER_MINUTE_TOO_BIG = r"request too large.*tokens per min|tokens per min.*requested [\d,]+, please reduce"  # Groq
_BYTES = (
    r"request_too_large|exceeds the maximum size|payload too large|entity too large|body too large"
    r"|total message size [\d,]+ exceeds limit"
)
_QUOTA = (
    r"insufficient_quota|exceeded_current_quota|exceeded your current quota|insufficient balance"
    r"|credit balance is too low|requires more credits|billing_hard_limit|quota exceeded|out of credits"
)
_SHORT_QUOTA = r"per ?minute|retrydelay|quota will reset after"  # Gemini: a rate in the words of a quota
_DAILY_QUOTA = r"per ?day"
_RATE = (
    r"rate.?limit|too many requests|throttling|too many tokens, please wait|exhausted your capacity"
    r"|tokens per min|request limit reached|resource_exhausted|engine_overloaded"
)
_AUTH = r"invalid.{0,12}api.?key|incorrect api key|authentication_error|unauthorized|no auth credentials"
_OVERLOADED = (
    r"overloaded|unavailable|internal.{0,8}error|timed? ?out|try again|upstream|bad gateway|limit reached"
    r"|server.?error|connection (?:error|reset)|at capacity"
)
_NO_MODEL = r"model.{0,80}(?:not found|not exist|does not exist|unknown)|model_not_found|no such model"
_FIELD_REFUSED = (
    r"unsupported|not support|extra_forbidden|extra inputs|unknown|unrecognized|unexpected|not permitted|not allowed"
    r"|invalid|only the default|only supports single|expected"
)
_QUOTED_FIELD = r"['\"`]([a-z][a-z_]{2,40})['\"`]"
_KNOWN_FIELDS = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "stream_options",
    "parallel_tool_calls",
    "tool_choice",
    "tools",
    "store",
    "stream",
)

# What a reader is given: status (or the code inside), all words in lower case, the text for a person, the collection,
# and the wait that was asked for.
Reader = Callable[["int | None", str, str, Refusal, "float | None"], "ProviderError | None"]


def classify(status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> ProviderError:
    """The error for an answer. `status` is None for one that came inside a stream; its own code is then read."""
    found = gather(body)
    if isinstance(body, dict) and isinstance(body.get("choices"), list):
        for choice in body["choices"][:1]:
            gather(choice.get("error") if isinstance(choice, dict) else None, found)
    inner = next((int(code) for code in found.codes if code.isdecimal() and 400 <= int(code[:4]) < 600), None)
    effective = status if status is not None and status >= 400 else inner
    words = found.words
    said = found.said or (f"HTTP {effective} without a text" if effective else "an error without a text")
    wait = retry_after(headers or {}, words)
    for read in (_rates, _quotas, _sizes, _overflows, _access, _refused):
        error = read(effective, words, said, found, wait)
        if error is not None:
            error.status = status if status != 200 else None
            return error
    return _fallback(effective, words, said, wait, status)


def _rates(status: int | None, words: str, said: str, _found: Refusal, wait: float | None) -> ProviderError | None:
    if re.search(_PER_MINUTE_TOO_BIG, words, re.DOTALL):
        return RequestTooLarge(said, hint="Waiting does not help: make the conversation smaller with /compact.")
    if re.search(_QUOTA, words) or status == 402:
        return None
    if status == 429 or re.search(_RATE, words) or (status in (503, 529) and wait is not None):
        return RateLimited(said, retry_after=wait)
    return None


def _quotas(status: int | None, words: str, said: str, _found: Refusal, wait: float | None) -> ProviderError | None:
    if status != 402 and not re.search(_QUOTA, words):
        return None
    if re.search(_SHORT_QUOTA, words) and not re.search(_DAILY_QUOTA, words):
        return RateLimited(said, retry_after=wait)
    afford = re.search(r"can only afford ([\d,]+)", words)
    hint = (
        f"Set CORECODER_MAX_TOKENS to at most {afford[1]}, or top up." if afford else "Check the account and its plan."
    )
    return QuotaExhausted(said, hint=hint)


def _sizes(status: int | None, words: str, said: str, found: Refusal, _wait: float | None) -> ProviderError | None:
    bare = not found.messages and not found.codes
    if status == 413 and bare:
        return ContextOverflow("the server refused the request as too large, without a text")  # Cerebras
    if (status == 413 and not any(re.search(pattern, words) for pattern in OVERFLOWS)) or re.search(_BYTES, words):
        return RequestTooLarge(said, hint="The limit is on bytes: leave out images or large pastes.")
    if output_cap(words) is not None:
        return RequestRefused(said, param="max_tokens")
    return None


def _overflows(status: int | None, words: str, said: str, found: Refusal, _wait: float | None) -> ProviderError | None:
    if status in (401, 403, 404):
        return None
    if status == 400 and not found.messages and not found.codes:
        return ContextOverflow("the server refused the request without a text")  # Cerebras
    matches = [match for pattern in OVERFLOWS if (match := re.search(pattern, words))]
    if not matches:
        return None
    windows = [_number(match["window"]) for match in matches if match.groupdict().get("window")]
    sizes = [size for size in windows if size >= SMALLEST_WINDOW]
    return ContextOverflow(said, window=min(sizes, default=None))


def _access(status: int | None, words: str, said: str, _found: Refusal, _wait: float | None) -> ProviderError | None:
    if status in (401, 403, 407) or (status in (400, None) and re.search(_AUTH, words)):
        return AuthFailed(said, hint="Check the key, and that it belongs to this base URL.")
    if status == 404:
        if re.search(_NO_MODEL, words):
            return RequestRefused(said, param="model", hint="Check the model's name (--model).")
        return RequestRefused(said, param="url", hint="Check the base URL; most end in /v1.")
    return None


def _refused(status: int | None, words: str, said: str, found: Refusal, _wait: float | None) -> ProviderError | None:
    if status is not None and (status >= 500 or status in (408, 409, 425)):
        return None
    if status is None and re.search(_OVERLOADED, words):
        return None
    if re.search(_NO_MODEL, words):
        return RequestRefused(said, param="model", hint="Check the model's name (--model).")
    return RequestRefused(said, param=refused_field(found))


def _fallback(status: int | None, words: str, said: str, wait: float | None, outer: int | None) -> ProviderError:
    del words
    hint = "The server failed on its side; try again later." if status or outer else "Try again later."
    error = ServerFailed(said, status=outer if outer != 200 else None, hint=hint)
    return error if wait is None else RateLimited(said, status=error.status, retry_after=wait)


def refused_field(found: Refusal) -> str:
    """The request field that a refusal names, "" if it names none."""
    for name in found.fields:
        parts = re.split(r"[.\[\]]+", name)
        if parts[0] in _KNOWN_FIELDS or len(parts) > 1:
            return parts[0] if parts[0] in _KNOWN_FIELDS else name
    words = found.words
    if "single tool-calls at once" in words:
        return "parallel_tool_calls"
    if re.search(_FIELD_REFUSED, words):
        quoted = [name for name in re.findall(_QUOTED_FIELD, words) if name in _KNOWN_FIELDS]
        if quoted:
            return str(quoted[0])
    return next((name for name in found.fields if name), "")


def output_cap(words: str) -> int | None:
    """The largest max_tokens that a refusal names."""
    for pattern in _OUTPUT_CAPS:
        if match := re.search(pattern, words):
            return _number(match["cap"])
    return None


def overflow_figures(said: str) -> tuple[int, int] | None:
    """Prompt and completion tokens that an overflow names, None if it does not tell them apart."""
    for pattern in _FIGURES:
        if match := re.search(pattern, said):
            return _number(match["prompt"]), _number(match["output"])
    return None


def _number(text: str) -> int:
    return int(text.replace(",", ""))
