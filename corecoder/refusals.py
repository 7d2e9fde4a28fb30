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
    StreamBroken,
)

LOADING_WAIT = 15.0  # seconds
SMALLEST_WINDOW = 512  # a limit below this in an overflow message is a mistake of the server (vLLM once said 3)

# Window overflow, by who says so. Group "window" is the size that the text names, where it names one; the first of two
# numbers that are added up is none.
_N = r"(?P<window>\d[\d,]*)(?![\d,]| \+)"
OVERFLOWS = (
    # OpenAI, Anthropic, LiteLLM, OpenRouter, llama.cpp, llama-cpp-python, Ollama
    r"exceed(?:s|ed|ing)? (?:the |its )?(?:model(?:'s)? |max(?:imum)? |allowed |available )*"
    rf"(?:context|input|prompt) (?:length|window|size|limit)(?: of)?:?(?: \(?{_N})?",
    rf"maximum (?:context|prompt) length (?:is|of) {_N}",  # OpenAI, DeepSeek, vLLM, OpenRouter, xAI
    rf"context length \({_N} tokens\)",  # Together
    rf"input tokens exceed the configured limit of {_N}",  # OpenAI
    rf"exceeded model token limit: {_N}",  # Kimi
    r"context window exceeds",  # MiniMax
    rf"context limit: [\d,]+ \+ [\d,]+ > {_N}",  # Anthropic
    rf"prompt token count of [\d,]+ exceeds the limit of {_N}",  # Copilot
    rf"prompt is too long(?:: [\d,]+ tokens > {_N})?|prompt too long",  # Anthropic, Ollama
    r"input is too long for requested model",  # Bedrock
    rf"input token count (?:\([\d,]+\) )?exceeds the maximum number of tokens allowed \(?{_N}",  # Gemini
    r"reduce the length of the (?:messages|prompt|input)",  # Groq
    rf"too large for model with {_N} maximum context length",  # Mistral
    rf"tokens in the prompt cannot exceed {_N}",  # Cohere
    rf"(?:total tokens [\d,]+ exceed|inputs? too long: [\d,]+ >) {_N}",
    rf"range of input length should be \[\d+, {_N}\]",  # Qwen
    r"prompt exceeds max length",  # GLM
    rf"loaded with context length of only {_N}|greater than the context length",  # LM Studio
    rf"(?:max_new_tokens.? must be <=|inputs.? must have less than) {_N}",  # TGI
    r"max_tokens must be at least 1, got -\d+",  # vLLM: the prompt leaves less than nothing
    r"context_length_exceeded|exceed_context_size|model_max_prompt_tokens_exceeded|contextwindowexceeded",
)
# Prompt and completion apart: the prompt would fit with a smaller completion (OpenAI, DeepSeek; vLLM;
# Anthropic; TGI).
_FIGURES = (
    r"\((?P<prompt>[\d,]+) in the messages, (?P<output>[\d,]+) in the completion\)",
    r"requested (?P<output>[\d,]+) output tokens and your prompt contains at least (?P<prompt>[\d,]+) input tokens",
    r"context limit: (?P<prompt>[\d,]+) \+ (?P<output>[\d,]+) >",
    r"given: (?P<prompt>[\d,]+) .?inputs.? tokens and (?P<output>[\d,]+) .?max_new_tokens",
)
# max_tokens above what the model can write (Anthropic; OpenAI; DeepSeek, Qwen; Groq and others).
_OUTPUT_CAPS = (
    r"max_(?:completion_)?tokens: [\d,]+ > (?P<cap>[\d,]+)",
    r"max_(?:completion_)?tokens is too large: [\d,]+\. this model supports at most (?P<cap>[\d,]+)",
    r"range of max_(?:completion_)?tokens (?:is|should be) \[\d+, ?(?P<cap>[\d,]+)",
    r"max_(?:completion_)?tokens.{0,60}(?:less than or equal to|expected a value <=|must be <=) `?(?P<cap>[\d,]+)",
)
_PER_MINUTE_TOO_BIG = r"request too large.*tokens per min|tokens per min.*requested [\d,]+, please reduce"  # Groq
_BYTES = (
    r"request_too_large|exceeds the maximum size|payload too large|entity too large|body too large"
    r"|total message size [\d,]+ exceeds limit"
)
_QUOTA = (
    r"insufficient_quota|exceeded_current_quota|exceeded your current quota|quota exceeded|requires more credits"
    r"|insufficient (?:account )?(?:balance|credits|funds)|credit balance is too low|out of credits|any credits yet"
    r"|used all available credits|spending limit|billing_hard_limit|billing_not_active|arrearage"
    r"|specified api usage limits|free-models-per-day|free ?tier.{0,40}(?:exhausted|only)"
    r"|key limit exceeded|budget has been exceeded|usage.?limit.?reached"
    r"|余额不足|欠费"  # GLM and others: balance too low, in arrears
)
_SHORT_QUOTA = r"per ?minute|retrydelay|quota will reset after"  # Gemini: a rate in the words of a quota
_DAILY_QUOTA = r"per ?day"
_DAILY_RATE = r"(?:tokens|requests) per day|daily limit"  # a quota, unless it says how long to wait
_RATE = (
    r"rate.?limit|too many requests|throttling|too many tokens, please wait|exhausted your capacity"
    r"|tokens per min|request limit reached|resource_exhausted|engine_overloaded"
)
_SMALLER = (
    "The limit is on bytes: leave out images or large pastes, or make the conversation smaller with /compact "
    "(corecoder -c opens it)."
)
_AUTH = (
    r"invalid.{0,12}api.?key|api.?key not valid|api_key_invalid|incorrect api key|authentication_error|unauthorized"
    r"|no auth credentials"
)
_OVERLOADED = (
    r"overloaded|unavailable|internal.{0,8}error|timed? ?out|try again|upstream|bad gateway|limit reached"
    r"|server.?error|connection (?:error|reset)|at capacity|^provider returned error$|^internal$"
    r"|unexpected eof|has crashed|error was encountered while running the model"  # Ollama, LM Studio
)
_INVALID = r"invalid.?parameter|invalid.?request"
# What a person can do about a refusal: wording, what it is about, what to do. The base URL and the key come last.
_EXPLAINED = (
    (
        r"model.{0,80}(?:not found|not exist|does not exist|unknown)|model_not_found|no such model|not a valid model"
        r"|invalid model\b|access to (?:the )?model|^model: \S+$",  # the last: Anthropic
        "model",
        "Check the model's name (--model), and that the key may use it.",
    ),
    (
        r"support tool use|not support (?:tools|tool (?:use|call)|function call)",  # OpenRouter, Ollama
        "tools",
        "CoreCoder needs a model that calls tools; choose one with --model.",
    ),
    (
        r"v1/responses|not a chat model",
        "model",
        "This model cannot be used through chat completions; choose another with --model.",
    ),
    (r"data policy", "account", "Change it in the account's privacy settings, or choose another model."),
    (r"(?:country|region|location)\b.{0,40}not supported", "account", "The provider does not serve this region."),
    (
        r"content.?(?:filter|management policy)|responsibleaipolicy|requires moderation|input was flagged",
        "content",
        "The provider's filter refused the conversation: say it in other words, /compact, or start a new session.",
    ),
)
# A field that is taken, with another value (OpenAI, DeepSeek, vLLM).
_VALUE_REFUSED = r"expected a value|(?:less|greater) than or equal to|must be (?:between|in|<=|>=|at )|range"
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

_SETTINGS = {"max_tokens": "CORECODER_MAX_TOKENS", "temperature": "CORECODER_TEMPERATURE"}

# What a reader is given: status (or the code inside), all words in lower case, the text for a person, the collection,
# and the wait that was asked for.
Reader = Callable[["int | None", str, str, Refusal, "float | None"], "ProviderError | None"]


def classify(status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> ProviderError:
    """The error for an answer. `status` is None for one that came inside a stream; its own code is then read."""
    found = gather(body)
    if isinstance(body, dict) and isinstance(body.get("choices"), list):
        for choice in body["choices"][:1]:
            gather(choice.get("error") if isinstance(choice, dict) else None, found)
    inner = next((int(code) for code in found.codes if re.fullmatch(r"[45]\d\d", code, re.ASCII)), None)
    effective = status if status is not None and status >= 400 else inner
    words = found.words
    said = found.said or (f"HTTP {effective} without a text" if effective else "an error without a text")
    wait = retry_after({**found.headers, **(headers or {})}, words)
    if status in (301, 302, 303, 307, 308):
        said = f"the server redirects to {(headers or {}).get('location', 'another address')}"
        return RequestRefused(said, status=status, hint="Set that as the base URL, without /chat/completions.")
    for read in (_rates, _quotas, _sizes, _overflows, _access, _refused):
        error = read(effective, words, said, found, wait)
        if error is not None:
            error.status = status if status != 200 else None
            return error
    return _fallback(effective, words, said, wait, status)


def _rates(status: int | None, words: str, said: str, _found: Refusal, wait: float | None) -> ProviderError | None:
    if re.search(_PER_MINUTE_TOO_BIG, words, re.DOTALL):
        return RequestTooLarge(said, hint="Waiting does not help: make the conversation smaller with /compact.")
    if _is_quota(status, words, wait):
        return None
    if "loading model" in words:  # llama.cpp: it may take minutes
        return RateLimited(said, retry_after=wait or LOADING_WAIT)
    if status == 429 or re.search(_RATE, words) or (status in (503, 529) and wait is not None):
        return RateLimited(said, retry_after=wait)
    return None


def _is_quota(status: int | None, words: str, wait: float | None) -> bool:
    return status == 402 or bool(re.search(_QUOTA, words) or (wait is None and re.search(_DAILY_RATE, words)))


def _quotas(status: int | None, words: str, said: str, _found: Refusal, wait: float | None) -> ProviderError | None:
    if not _is_quota(status, words, wait):
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
        return RequestTooLarge(said, hint=_SMALLER)
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


def _access(status: int | None, words: str, said: str, found: Refusal, _wait: float | None) -> ProviderError | None:
    if status is None or 400 <= status < 500:
        for wording, about, hint in _EXPLAINED:
            if re.search(wording, words, re.MULTILINE):
                return RequestRefused(said, param=about, hint=hint)
    if "tool_use_failed" in words:  # Groq: the model wrote a call that cannot be read; the next one may be better
        return StreamBroken(said)
    if status == 403 and found.html:
        return RequestRefused(said, hint="It comes from a firewall or a proxy in front of the server.")
    if status in (401, 403, 407) or (status in (400, None) and re.search(_AUTH, words)):
        return AuthFailed(said, hint="Check the key, and that it belongs to this base URL.")
    return None


def _refused(status: int | None, words: str, said: str, found: Refusal, _wait: float | None) -> ProviderError | None:
    if status is not None and (status >= 500 or status in (408, 409, 425)):
        return None
    if status is None and re.search(_OVERLOADED, words, re.MULTILINE) and not re.search(_INVALID, words):
        return None
    if status == 404 or found.html:
        return RequestRefused(said, param="url", hint="Check the base URL; most end in /v1.")
    param = refused_field(found)
    if param in _SETTINGS and re.search(_VALUE_REFUSED, words):
        return RequestRefused(said, hint=f"Set {_SETTINGS[param]} to a value that the model takes.")
    return RequestRefused(said, param=param)


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
