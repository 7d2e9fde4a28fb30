"""Every wording of every provider becomes the right error, in every shape and place; presets; local servers."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from server import StrictServer

from corecoder import dialects
from corecoder.errorbody import gather, is_error, retry_after
from corecoder.errors import (
    AuthFailed,
    ConfigError,
    ContextOverflow,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    ServerFailed,
)
from corecoder.llm import LLM
from corecoder.providers import PRESETS, Preset, find_local_servers, is_local, preset_for
from corecoder.refusals import classify, output_cap, overflow_figures

# Status, body text, window that the refusal names.
OVERFLOWS = [
    (400, "This model's maximum context length is 4097 tokens. However, your messages resulted in 4294 tokens.", 4097),
    (400, "Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    (400, "prompt token count of 1459028 exceeds the limit of 922000", 922000),
    (400, "prompt is too long: 213462 tokens > 200000 maximum", 200000),
    (400, "input length and max_tokens exceeded context limit", None),
    (400, "Input is too long for requested model", None),
    (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)", 1048575),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens", 131072),
    (400, "Please reduce the length of the messages or completion.", None),
    (
        400,
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        32768,
    ),
    (
        400,
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of "
        'text input). Please reduce the length of either one, or use the "middle-out" transform.',
        32768,
    ),
    (400, "Input length 300000 exceeds the maximum allowed input length of 262144 tokens.", 262144),
    (400, "The input (1492905 tokens) is longer than the model's context length (1048576 tokens).", 1048576),
    (400, "Requested token count exceeds the model's maximum context length of 131072 tokens", 131072),
    (400, "Input length (265330) exceeds model's maximum context length (262144).", 262144),
    (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]", 204800),
    (400, "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)", 262144),
    (400, "invalid params, context window exceeds limit", None),
    (400, "max_tokens must be at least 1, got -186.", None),
    (400, "request (25837 tokens) exceeds the available context size (25088 tokens), try increasing it", 25088),
    (500, "the request exceeds the available context size. try increasing the context size", None),
    (500, "Requested tokens (2285) exceed context window of 2048", 2048),
    (
        None,
        "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context "
        "length of only 7866 tokens, which is not enough.",
        7866,
    ),
    (500, "prompt too long; exceeded max context length by 512 tokens", None),
    (400, "This model's maximum context length is 3 tokens. However, your request has 8 input tokens.", None),
    (400, "input length and `max_tokens` exceed context limit: 198000 + 21333 > 200000, decrease input length", 200000),
    (400, "The input token count exceeds the maximum number of tokens allowed 1048575.", 1048575),
    (400, "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000.", 272000),
    (400, "Prompt exceeds max length", None),
    (
        422,
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 500 `max_new_tokens`",
        4096,
    ),
    (422, "`inputs` must have less than 4095 tokens. Given: 5000", 4095),
    (400, "The prompt exceeds the context length of 8192", 8192),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 128000 - received 140000", 128000),
    (400, "total tokens 140000 exceed 131072", 131072),
    (422, "inputs too long: 9000 > 8192", 8192),
    (400, "Prompt length 9000 exceeds maximum context length 8192", 8192),
]


def in_every_shape(message: str, code: Any = None) -> list[Any]:
    """One error in all the bodies that have been seen."""
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    return [
        {"error": error},
        {"error": message},
        [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}],
        {"object": "error", **error},
        {"message": {"detail": [{"type": "x", "loc": ["body", "messages"], "msg": message}]}},
        {"detail": message},
        {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": error})}}},
        {"error": {"message": json.dumps({"error": error})}},
        {"choices": None, "error_type": "BadRequestError", "error_message": message},
        {"choices": [{"delta": {}, "finish_reason": "error", "error": error}]},
        json.dumps({"error": error}),
        message,
    ]


@pytest.mark.parametrize(("status", "message", "window"), OVERFLOWS)
def test_an_overflow_is_known_in_every_wording_shape_and_place(
    status: int | None, message: str, window: int | None
) -> None:
    for body in in_every_shape(message):
        for seen in (status, None):
            error = classify(seen, body)
            assert isinstance(error, ContextOverflow), body
            assert error.window == window
            assert message[:60] in error.said


def test_an_error_body_that_says_nothing_is_an_overflow_only_where_it_is_known_to_be() -> None:
    assert isinstance(classify(400, ""), ContextOverflow)
    assert isinstance(classify(413, ""), ContextOverflow)
    assert isinstance(classify(500, ""), ServerFailed)
    assert isinstance(classify(422, ""), RequestRefused)


OTHERS: list[tuple[int | None, Any, type[ProviderError]]] = [
    (413, "Request too large for model `M` in organization on tokens per minute (TPM): Limit 10000, Requested 15088, "
     "please reduce your message size and try again. Need more tokens? Upgrade", RequestTooLarge),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request too big"}}, RequestTooLarge),
    (400, "total message size 2100954 exceeds limit 2097152", RequestTooLarge),
    (429, "ThrottlingException: Too many tokens, please wait before trying again.", RateLimited),
    (400, "ThrottlingException: Too many tokens, please wait before trying again.", RateLimited),
    (429, {"error": {"type": "rate_limit_reached_error", "message": "max RPM: 3"}}, RateLimited),
    (429, {"error": {"type": "engine_overloaded_error", "message": "busy"}}, RateLimited),
    (429, "You have exhausted your capacity on this model. Your quota will reset after 0s.", RateLimited),
    (None, {"error": {"code": 429, "message": "Worker local total request limit reached (33/32)"}}, RateLimited),
    (None, {"error": {"code": 502, "message": "Worker local request limit"}}, ServerFailed),
    (429, {"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}, QuotaExhausted),
    (402, "Insufficient Balance", QuotaExhausted),
    (402, "This request requires more credits. You can only afford 3324.", QuotaExhausted),
    (429, {"error": {"type": "exceeded_current_quota_error", "message": "suspended"}}, QuotaExhausted),
    (400, "Your credit balance is too low to access the API", QuotaExhausted),
    (401, "whatever", AuthFailed),
    (400, "Incorrect API key provided: sk-x", AuthFailed),
    (None, {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}, AuthFailed),
    (404, "The model `gpt-9` does not exist or you do not have access to it.", RequestRefused),
    (404, "<html><title>404 Not Found</title></html>", RequestRefused),
    (503, "no healthy upstream", ServerFailed),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ServerFailed),
    (None, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ServerFailed),
    (None, {"error": "boom"}, RequestRefused),
    (None, {"error": {"message": "bad", "code": "400"}}, RequestRefused),
    (400, {"error": {"message": "odd", "code": 1214}}, RequestRefused),
    (408, "timeout", ServerFailed),
    (429, {"error": {"code": "1308", "message": "Usage limit reached for 5 hour. Your limit will reset at 2027-12-30"}},
     QuotaExhausted),
    (429, "Tokens per day limit exceeded - too many tokens processed.", QuotaExhausted),
    (429, "Rate limit reached on tokens per day (TPD): Limit 100000. Please try again in 14m24s.", RateLimited),
    (403, "Key limit exceeded (total limit)", QuotaExhausted),
    (400, "Budget has been exceeded! Current cost: 10", QuotaExhausted),
    (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, RateLimited),
    (403, {"error": {"code": "model_not_found", "message": "Project x does not have access to model `y`"}},
     RequestRefused),
    (403, "<html><title>Attention Required! | Cloudflare</title></html>", RequestRefused),
    (400, "API key not valid. Please pass a valid API key.", AuthFailed),
    (308, "", RequestRefused),
    (400, {"error": {"code": "0500" + "5" * 5000, "message": "odd"}}, RequestRefused),
    (None, {"error": "Provider returned error"}, ServerFailed),
    (None, {"error": {"message": "internal"}}, ServerFailed),
    (400, "You have exceeded token limit per minute: rate limit", RateLimited),
    (429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}, QuotaExhausted),
    (429, "Insufficient account balance", QuotaExhausted),
    (429, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 requests", QuotaExhausted),
    (400, "You have reached your specified API usage limits. You will regain access on 2027-01-01", QuotaExhausted),
    (403, {"code": "AllocationQuota.FreeTierOnly", "message": "The free tier has been exhausted."}, QuotaExhausted),
    (403, "Your newly created team doesn't have any credits yet.", QuotaExhausted),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind"), OTHERS)
def test_what_looks_like_another_error_is_told_apart(status: int | None, body: Any, kind: type[ProviderError]) -> None:
    error = classify(status, body)
    assert type(error) is kind
    assert error.said
    assert error.status == status


def test_a_quota_of_a_minute_is_a_rate_and_one_of_a_day_is_not() -> None:
    words = "You exceeded your current quota, please check your plan and billing details."

    def gemini(quota: str) -> Any:
        details = [
            {"@type": "QuotaFailure", "violations": [{"quotaId": f"GenerateRequests{quota}PerProject"}]},
            {"@type": "RetryInfo", "retryDelay": "26s"},
        ]
        return [{"error": {"code": 429, "message": words, "status": "RESOURCE_EXHAUSTED", "details": details}}]

    error = classify(429, gemini("PerMinute"))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 26
    assert isinstance(classify(429, gemini("PerDay")), QuotaExhausted)


@pytest.mark.parametrize(
    ("headers", "words", "wanted"),
    [
        ({"Retry-After": "3"}, "", 3),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({"Retry-After": "soon"}, "", None),
        ({"Retry-After": "-5"}, "", None),
        ({"Retry-After": "soon"}, "please try again in 20s", 20),
        ({}, "please try again in 1h12m5.5s", 4325.5),
        ({}, "your quota will reset after 11h23m4s.", 40984),
        ({}, "please try again after 1 seconds", 1),
        ({}, "retry after 2 minutes and 3 seconds", 123),
        ({"Retry-After": "99999999999999999999"}, "", None),
        ({}, "please try again in 1m2.5s.", 62.5),
        ({}, "please try again in 20ms", 0.02),
        ({}, "please try again later", None),
        ({}, "", None),
    ],
)
def test_the_wait_is_read_from_headers_and_words(headers: dict[str, str], words: str, wanted: float | None) -> None:
    assert retry_after(headers, words) == wanted


def test_the_wait_may_be_in_the_headers_of_the_provider_behind() -> None:
    error = classify(429, {"error": {"message": "slow down", "metadata": {"headers": {"Retry-After": "7"}}}})
    assert isinstance(error, RateLimited)
    assert error.retry_after == 7


def test_the_wait_may_be_a_date() -> None:
    wait = retry_after({"Retry-After": formatdate(time.time() + 100, usegmt=True)})
    assert wait is not None
    assert 90 < wait <= 100
    assert retry_after({"Retry-After": formatdate(time.time() - 100, usegmt=True)}) == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"error": {"message": "x", "param": "temperature"}}, "temperature"),
        ({"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "no"}]}, "stream_options"),
        (
            {"detail": [{"type": "x", "loc": ["body", "stream_options", "include_usage"], "msg": "no"}]},
            "stream_options",
        ),
        ("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("This model only supports single tool-calls at once!", "parallel_tool_calls"),
        ("`tools` must not be an empty array. (unsupported)", "tools"),
        ("I do not like it", ""),
        ({"error": {"message": "Expected a value <= 2, but got 3.", "param": "temperature"}}, ""),
    ],
)
def test_the_refused_field_is_named(body: Any, param: str) -> None:
    error = classify(400, body)
    assert isinstance(error, RequestRefused)
    assert error.param == param


def test_output_caps_and_figures_are_read() -> None:
    assert output_cap("max_tokens: 250000 > 128000, which is the maximum allowed") == 128000
    assert output_cap("`max_tokens` must be less than or equal to `16384`, the maximum value") == 16384
    assert output_cap("max_tokens is refused") is None
    assert output_cap("invalid 'max_tokens': integer above maximum value. expected a value <= 8192, but got 9") == 8192
    assert output_cap("invalid max_tokens value, the valid range of max_tokens is [1, 8192]") == 8192
    assert output_cap("range of max_tokens should be [1, 8192]") == 8192
    assert overflow_figures("exceed context limit: 198000 + 21333 > 200000") == (198000, 21333)
    error = classify(400, "max_tokens: 250000 > 128000, which is the maximum allowed number of output tokens for x")
    assert isinstance(error, RequestRefused)
    assert error.param == "max_tokens"
    assert overflow_figures("(122942 in the messages, 8192 in the completion)") == (122942, 8192)


def test_the_text_for_a_person_is_the_providers_own_and_bounded() -> None:
    raw = json.dumps({"error": {"message": "the true reason"}})
    error = classify(400, {"error": {"message": "Provider returned error", "metadata": {"raw": raw}}})
    assert error.said == "Provider returned error: the true reason"
    assert str(classify(502, "<!DOCTYPE html><html><title>502 Bad\nGateway</title>")).startswith(
        "502 Bad Gateway (HTTP 502)"
    )
    assert len(classify(400, "x" * 10_000).said) <= 600
    assert classify(400, {}).said
    assert "base URL" in str(classify(400, "<html><body>Welcome</body></html>"))
    assert "base URL" not in str(classify(404, "No endpoints found that support tool use."))
    for words, advice in (
        ("This model is only supported in v1/responses and not in v1/chat/completions.", "chat completions"),
        ("No endpoints found matching your data policy", "privacy"),
        ("model: claude-foo", "--model"),
        ("xyz is not a valid model ID", "--model"),
        ("The response was filtered due to Azure OpenAI's content management policy.", "filter"),
    ):
        assert advice in str(classify(404 if "found" in words else 400, words))
    assert "https://x/v1" in str(classify(308, "", {"location": "https://x/v1"}))
    assert "CORECODER_TEMPERATURE" in str(classify(400, {"error": {"message": "Must be <= 2", "param": "temperature"}}))
    assert classify(418, {"error": {}}).said == "HTTP 418 without a text"


@pytest.mark.parametrize(
    "body", [None, 7, True, [], [[[]]], {"error": {"error": {"error": 1}}}, "[" * 5000, b"\xff", {"message": []}]
)
def test_no_body_breaks_the_reader(body: Any) -> None:
    for status in (None, 200, 400, 429, 500):
        assert isinstance(classify(status, body), ProviderError)
    assert gather(body).words is not None


def test_chunks_of_a_reply_are_no_errors() -> None:
    assert not is_error({"choices": [{"delta": {"content": "error"}}], "error": None})
    assert not is_error({"choices": [], "usage": {"prompt_tokens": 1}})
    assert not is_error({"usage": {"prompt_tokens": 1}})
    for chunk in in_every_shape("boom"):
        assert not isinstance(chunk, dict) or is_error(chunk)


# -- presets and local servers


def test_presets_are_found_by_their_address() -> None:
    assert preset_for(None) is PRESETS["openai"]
    assert preset_for("https://api.openai.com/v1/") is PRESETS["openai"]
    assert preset_for("https://api.deepseek.com/beta") is PRESETS["deepseek"]
    assert preset_for("https://api.moonshot.cn/v1") is PRESETS["kimi"]
    assert preset_for("http://127.0.0.1:11434/v1") is PRESETS["ollama"]
    assert preset_for("http://127.0.0.1:9/v1") is None


@pytest.mark.parametrize("url", ["nonsense", "http://[bad", "http://x:99999/v1", "ftp://x/v1", "http://", ""])
def test_an_address_that_is_none_is_refused_in_words(url: str) -> None:
    with pytest.raises(ConfigError, match="must look like"):
        LLM("m", "key", url)


def test_every_quirk_of_a_preset_is_known() -> None:
    for preset in PRESETS.values():
        assert all(dialects.known(name) for name in preset.quirks), preset.name
        assert preset.local == is_local(preset.base_url)
        assert preset.default_model or preset.local


def test_local_servers_are_found_with_their_models() -> None:
    with StrictServer(models=[{"id": "qwen3"}, {"id": "llama"}]) as server, StrictServer() as empty:
        presets = (
            Preset("ollama", "", server.base_url, ""),
            Preset("vllm", "", empty.base_url, ""),
            Preset("lmstudio", "", "http://127.0.0.1:1/v1", ""),
            Preset("openai", "KEY", server.base_url, ""),
        )
        (found,) = find_local_servers(5, presets)
    assert (found.preset.name, found.models) == ("ollama", ("qwen3", "llama"))
    assert "4,096" in found.note


# -- dialects


def test_a_healthy_request_without_quirks_is_sent_as_it_is() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert dialects.shaped(body, ()) is body


def test_shaping_is_stable_and_changes_no_message_it_is_given() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "bash", "arguments": "{}"}, "extra_content": {"a": 1}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [call, {**call, "id": "y"}]},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        {"role": "user", "content": "b"},
        {"role": "system", "content": "later"},
    ]
    body = {"model": "m", "max_tokens": 5, "temperature": 0, "messages": messages}
    before = json.dumps(body)
    names = [*(quirk.name for quirk in dialects.QUIRKS), *dialects.ORDERS, "drop max_tokens", "drop temperature"]
    for name in names:
        once = dialects.shaped(body, {name})
        assert json.dumps(body) == before
        assert dialects.shaped(once, {name}) == once, name
        assert dialects.known(name)
        assert dialects.described(name)


def test_quirks_that_rule_each_other_out_replace_each_other() -> None:
    assert dialects.adopted({"plain messages", "nine ids"}, "reasoning required") == {"reasoning required", "nine ids"}


def test_only_a_quirk_that_changes_the_request_is_a_remedy() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert dialects.remedy("roles must alternate", "", body, (), ()) is None
    body["messages"] = [*body["messages"], *body["messages"]]
    assert dialects.remedy("roles must alternate", "", body, (), ()) == "one voice"
    assert dialects.remedy("roles must alternate", "", body, (), ("one voice",)) is None
