"""The client through the real SDK and a real socket: what a provider does, and what the user and the history get."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from fuzz import random_stream
from server import (
    DONE,
    EOF,
    HANGUP,
    STALL,
    Call,
    D,
    Events,
    F,
    HTTPError,
    Pause,
    Plain,
    StrictServer,
    T,
    Text,
    api_error,
    broken_rules,
    call,
    fn,
    sse,
    usage,
)

from corecoder.errors import (
    AuthFailed,
    Cancelled,
    ContextOverflow,
    EmptyReply,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    ServerFailed,
    StreamBroken,
)
from corecoder.events import Usage
from corecoder.jobs import CancelToken
from corecoder.llm import LLM, LLMSettings
from corecoder.messages import Message, Reply, repair, unpaired
from corecoder.reader import FILTERED

FAST = LLMSettings(first_byte_timeout=20, idle_timeout=20, keepalive_timeout=20, retry_wait_limit=10, backoff=0.01)
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "x", "parameters": {"type": "object"}}}
    for name in ("bash", "read_file", "write_file", "edit_existing_file")
]
HI: list[Message] = [{"role": "user", "content": "hi"}]

Make = Callable[..., LLM]


@pytest.fixture
def make() -> Iterator[Make]:
    """Builds clients and closes them."""
    made: list[LLM] = []

    def build(server: StrictServer | str, **options: Any) -> LLM:
        url = server if isinstance(server, str) else server.base_url
        made.append(LLM("scripted", "key", url, **{"settings": FAST, **options}))
        return made[-1]

    yield build
    for llm in made:
        llm.close()


def after(*replies: Reply, then: str = "go on") -> list[Message]:
    """The history after these replies, each call of them answered."""
    history = list(HI)
    for reply in replies:
        history.append(reply.message)
        history += [{"role": "tool", "tool_call_id": made.id, "content": "ok"} for made in reply.tool_calls]
    if not replies[-1].tool_calls:
        history.append({"role": "user", "content": then})
    return repair(history)


# -- a reply


def test_a_reply_arrives_in_pieces_and_whole(make: Make) -> None:
    with StrictServer([Text("Let me look.", reasoning="a plan"), call("bash", command="ls é")], "done") as server:
        llm = make(server)
        text: list[str] = []
        thought: list[str] = []
        reply = llm.chat(HI, TOOLS, text.append, thought.append)
        assert ("".join(text), "".join(thought)) == ("Let me look.", "a plan")
        assert (reply.content, reply.reasoning, reply.finish_reason, reply.cut) == (
            "Let me look.",
            "a plan",
            "tool_calls",
            False,
        )
        assert [(made.name, made.arguments) for made in reply.tool_calls] == [("bash", {"command": "ls é"})]
        assert llm.chat(after(reply), TOOLS).content == "done"
        assert server.faults == []


def test_what_was_not_asked_for_is_not_sent(make: Make) -> None:
    with StrictServer("hi", forever="hi") as server:
        make(server).chat(HI)
        assert server.requests[0] == {
            "model": "scripted",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": HI,
        }
        assert server.headers[0]["authorization"] == "Bearer key"
        make(server, temperature=0.0, max_tokens=500).chat(HI, TOOLS, tool_choice="none")
        sent = server.requests[1]
        assert (sent["temperature"], sent["max_tokens"], sent["tool_choice"]) == (0.0, 500, "none")


def test_a_longer_request_has_the_shorter_one_as_its_prefix(make: Make) -> None:
    with StrictServer([call("bash", command="ls")], "done") as server:
        llm = make(server)
        reply = llm.chat(HI, TOOLS)
        llm.chat(after(reply), TOOLS)
        first, second = server.raw
        assert second.startswith(first.rstrip(b"]}"))


def test_one_connection_serves_many_requests(make: Make) -> None:
    with StrictServer(forever="hi") as server:
        llm = make(server)
        for _ in range(20):
            llm.chat(HI)
        assert server.connections == 1


def test_two_threads_may_ask_at_the_same_time(make: Make) -> None:
    with StrictServer(forever=Text("hello", size=1, delay=0.01)) as server:
        llm = make(server)
        said: list[str] = []
        threads = [threading.Thread(target=lambda: said.append(llm.chat(HI).content)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert said == ["hello"] * 3
        assert llm.total.prompt == 3 * llm.chat(HI).usage.prompt  # type: ignore[union-attr]


def test_usage_is_added_up_with_cached_tokens(make: Make) -> None:
    with StrictServer(forever=sse(D("hi"), F("stop"), usage(100, 7, cached=64), DONE)) as server:
        llm = make(server)
        assert llm.chat(HI).usage == Usage(100, 7, 64)
        llm.chat(HI)
        assert llm.total == Usage(200, 14, 128)


def test_a_cost_that_the_provider_reports_is_believed(make: Make) -> None:
    chunk = usage(100, 7)
    chunk["usage"]["cost"] = 0.25
    with StrictServer(forever=sse(D("hi"), F("stop"), chunk, DONE)) as server:
        llm = make(server)
        llm.chat(HI)
        llm.chat(HI)
        assert llm.total.cost == 0.5


# -- streams of every dialect: each case is one reply and what must come of it

READ_A = '{"file_path":"a.txt"}'
CALLS: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "no index": (
        [
            T(fn("bash", '{"comm', index=None, id="c1")),
            T(fn(None, 'and":"echo hi"}', index=None)),
            F("tool_calls"),
            DONE,
        ],
        [("bash", '{"command":"echo hi"}')],
    ),
    "no id": ([T(fn("read_file", READ_A)), F("tool_calls")], [("read_file", READ_A)]),
    "one index": (
        [*[T(fn("read_file", f'{{"file_path":"{n}.txt"}}')) for n in (1, 2, 3, 4)], F("tool_calls")],
        [("read_file", f'{{"file_path":"{n}.txt"}}') for n in (1, 2, 3, 4)],
    ),
    "stop": ([T(fn("bash", '{"command":"echo hi"}', id="a")), F("stop")], [("bash", '{"command":"echo hi"}')]),
    "no finish": ([T(fn("bash", '{"command":"echo hi"}', id="a")), DONE], [("bash", '{"command":"echo hi"}')]),
    "one id": (
        [T(fn("read_file", '{"p":"a"}', id="x")), T(fn("read_file", '{"p":"b"}', index=1, id="x")), F("tool_calls")],
        [("read_file", '{"p":"a"}'), ("read_file", '{"p":"b"}')],
    ),
    "arguments as an object": (
        [T(fn("bash", {"command": "ls"}, id="a")), F("tool_calls")],
        [("bash", '{"command": "ls"}')],
    ),
    "not json": ([T(fn("bash", 'description": "x"}', id="a")), F("tool_calls")], [("bash", 'description": "x"}')]),
    "garbage name": (
        [T(fn("bash \u0648:{", '{"command":"ls"}', id="a")), F("tool_calls")],
        [("bash \u0648:{", '{"command":"ls"}')],
    ),
    "no name": ([T(fn("", '{"command":"ls"}', id="a")), F("tool_calls")], [("", '{"command":"ls"}')]),
    "repeated": (
        [T(fn("read_file", '{"file', id="a")), T(fn("read_file", '_path":"a"}')), F("tool_calls")],
        [("read_file", '{"file_path":"a"}')],
    ),
    "split": (
        [T(fn("edit_ex", "", id="a")), T(fn("isting_file", "{}")), F("tool_calls")],
        [("edit_existing_file", "{}")],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_come_out_right_and_their_replay_is_accepted(case: str, make: Make) -> None:
    events, wanted = CALLS[case]
    with StrictServer(sse(*events), "done") as server:
        llm = make(server)
        reply = llm.chat(HI, TOOLS)
        assert [(made.name, made.raw) for made in reply.tool_calls] == wanted
        assert reply.content == ""
        assert llm.chat(after(reply), TOOLS).content == "done"
        assert server.faults == []
        replayed = server.requests[1]["messages"][1]
        assert [made["id"] for made in replayed["tool_calls"]] == [made.id for made in reply.tool_calls]


def test_a_whole_reply_without_a_stream_is_a_reply(make: Make) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [fn("bash", {"command": "ls"}, index=None, id="a")]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage(5, 6)["usage"]}
    with StrictServer(Plain(body)) as server:
        reply = make(server).chat(HI, TOOLS)
        assert [(made.name, made.arguments) for made in reply.tool_calls] == [("bash", {"command": "ls"})]
        assert reply.usage == Usage(5, 6)


def test_chunks_without_choices_do_no_harm(make: Make) -> None:
    with StrictServer(
        sse({"choices": [], "prompt_filter_results": []}, D("hi"), F("stop"), usage(10, 2), DONE),
        sse({"choices": None}, {"choices": [{"delta": None}], "usage": None}, D("hi"), F("stop"), DONE),
    ) as server:
        llm = make(server)
        assert llm.chat(HI).usage == Usage(10, 2)
        assert llm.chat(HI).content == "hi"


@pytest.mark.parametrize(
    ("deltas", "wanted"),
    [
        (["<th", "ink>secret</th", "ink>\n\nHello"], "Hello"),
        (["</think>\nHello"], "Hello"),
        (["Use the `<think>` tag in HTML"], "Use the `<think>` tag in HTML"),
        (["ab", "ab", "c"], "ababc"),
    ],
)
def test_only_what_is_meant_to_be_seen_is_passed_on(deltas: list[str], wanted: str, make: Make) -> None:
    with StrictServer(Events([*map(D, deltas), F("stop"), DONE])) as server:
        text: list[str] = []
        assert make(server).chat(HI, None, text.append).content == "".join(text) == wanted


@pytest.mark.parametrize("reason", ["length", "tool_calls", "stop"])
def test_a_call_that_was_cut_off_is_marked_cut_under_every_finish_reason(reason: str, make: Make) -> None:
    half = '{"file_path":"a.txt","content":"line1\\nline2'
    with StrictServer(sse(T(fn("write_file", half, id="a")), F(reason), DONE), "done") as server:
        llm = make(server)
        reply = llm.chat(HI, TOOLS)
        assert reply.cut
        assert reply.tool_calls[0].raw == half
        llm.chat(after(reply), TOOLS)
        assert server.faults == []


def test_whole_arguments_under_the_output_limit_are_marked_cut_too(make: Make) -> None:
    with StrictServer(sse(T(fn("write_file", '{"content":"x"}', id="a")), F("length"), DONE)) as server:
        assert make(server).chat(HI, TOOLS).cut


def test_a_filtered_reply_is_told_from_an_empty_one(make: Make) -> None:
    with StrictServer(sse(D(""), F("content_filter"), DONE)) as server:
        reply = make(server).chat(HI)
        assert (reply.content, reply.finish_reason) == (FILTERED, "content_filter")


# -- what has to come back


def test_reasoning_is_echoed_word_for_word(make: Make) -> None:
    words = "The `reasoning_content` in the thinking mode must be passed back to the API."

    def second(body: dict[str, Any]) -> Any:
        return "done" if body["messages"][-2].get("reasoning_content") == "plan é" else api_error(words)

    with StrictServer(
        sse(D(reasoning_content="plan é"), T(fn("bash", "{}", id="a")), F("tool_calls"), DONE), second
    ) as server:
        llm = make(server)
        reply = json.loads(json.dumps(llm.chat(HI, TOOLS).message))
        history = [*HI, reply, {"role": "tool", "tool_call_id": "a", "content": "ok"}]
        assert llm.chat(repair(history), TOOLS).content == "done"
        assert len(server.requests) == 2


def test_calls_of_another_model_get_the_reasoning_that_this_one_misses(make: Make) -> None:
    def wants_reasoning(body: dict[str, Any]) -> Any:
        missing = any("reasoning_content" not in m for m in body["messages"] if m["role"] == "assistant")
        return (
            api_error("Missing `reasoning_content` field in the assistant message at message index 2.")
            if missing
            else "ok"
        )

    with StrictServer(forever=wants_reasoning) as server:
        llm = make(server)
        assert llm.chat(_one_call(), TOOLS).content == "ok"
        assert llm.chat(_one_call(), TOOLS).content == "ok"
        assert len(server.requests) == 3


def test_a_signature_is_echoed_and_foreign_calls_get_the_one_for_foreigners(make: Make) -> None:
    words = "Function call is missing a thought_signature in functionCall parts. function call `default_api:bash`."

    def wants_signature(body: dict[str, Any]) -> Any:
        made = [c for m in body["messages"] for c in m.get("tool_calls") or []]
        signed = all(c.get("extra_content", {}).get("google", {}).get("thought_signature") for c in made)
        return "ok" if signed else api_error(words)

    signed = fn("bash", "{}", id="a", extra_content={"google": {"thought_signature": "SIG"}})
    with StrictServer(sse(T(signed), F("tool_calls"), DONE), forever=wants_signature) as server:
        llm = make(server)
        reply = llm.chat(HI, TOOLS)
        assert llm.chat(after(reply), TOOLS).content == "ok"
        assert len(server.requests) == 2
        assert server.requests[1]["messages"][1]["tool_calls"][0]["extra_content"]["google"] == {
            "thought_signature": "SIG"
        }
        assert llm.chat(_one_call(), TOOLS).content == "ok"


def test_only_the_system_role_is_used_and_text_is_never_empty(make: Make) -> None:
    with StrictServer(sse(D("\n\n"), T(fn("bash", "{}", id="a")), F("tool_calls"), DONE), "done") as server:
        llm = make(server)
        reply = llm.chat([{"role": "system", "content": "be good"}, *HI], TOOLS)
        history = [*HI, reply.message, {"role": "tool", "tool_call_id": "a", "content": ""}]
        llm.chat(repair([{"role": "system", "content": "be good"}, *history]), TOOLS)
        assert server.faults == []


# -- silence, cuts, cancels


def test_an_empty_reply_is_asked_for_again_within_a_bound_and_then_reported(make: Make) -> None:
    for nothing in (D(role="assistant", content=""), D(reasoning_content="I should")):
        events: list[Any] = [nothing, F("stop"), DONE]
        with StrictServer(forever=Events(events)) as server:
            with pytest.raises(EmptyReply):
                make(server).chat(HI)
            assert len(server.requests) == 1 + FAST.empty_retries


def test_an_empty_reply_may_be_followed_by_a_good_one(make: Make) -> None:
    with StrictServer(sse(D(""), F("stop"), DONE), "hello") as server:
        said: list[str] = []
        reply = make(server).chat(HI, on_retry=lambda reason, delay, attempt: said.append(f"{attempt} {reason}"))
        assert reply.content == "hello"
        assert said == ["1 the model sent an empty reply"]


def test_a_limit_reached_while_thinking_is_not_asked_for_again(make: Make) -> None:
    with StrictServer(forever=sse(D(reasoning_content="hm"), F("length"), DONE)) as server:
        with pytest.raises(EmptyReply, match="CORECODER_MAX_TOKENS"):
            make(server).chat(HI)
        assert len(server.requests) == 1


def test_an_empty_body_says_what_it_may_mean(make: Make) -> None:
    with StrictServer(forever=sse()) as server, pytest.raises(StreamBroken, match="CORECODER_MAX_CONTEXT"):
        make(server).chat([{"role": "user", "content": "x"}])


@pytest.mark.parametrize("end", [HANGUP, EOF, "data: {torn", None])
def test_a_broken_stream_is_asked_for_again_and_starts_afresh(end: Any, make: Make) -> None:
    broken = Events([D("par"), *([end] if end is not None else [])])
    with StrictServer(broken, "whole") as server:
        text: list[str] = []
        reply = make(server).chat(HI, None, text.append, on_retry=lambda *_: text.clear())
        assert reply.content == "whole" == "".join(text)


def test_a_stream_that_always_breaks_is_reported_after_a_bound(make: Make) -> None:
    with StrictServer(forever=sse(T(fn("bash", '{"a":1}', id="a")), EOF)) as server:
        with pytest.raises(StreamBroken):
            make(server).chat(HI, TOOLS)
        assert len(server.requests) == 1 + FAST.retries


def test_a_reply_that_is_whole_survives_what_follows_it(make: Make) -> None:
    for end in (EOF, HANGUP, "data: {torn", {"error": {"message": "late", "code": 500}}):
        with StrictServer(sse(D("hi"), F("stop"), end)) as server:
            assert make(server).chat(HI).content == "hi"


def test_nothing_more_is_waited_for_once_all_has_come(make: Make) -> None:
    with StrictServer(sse(D("hi"), F("stop"), DONE, STALL), "again") as server:
        llm = make(server)
        begun = time.monotonic()
        assert llm.chat(HI).content == "hi"
        assert time.monotonic() - begun < 8
        assert llm.chat(HI).content == "again"


@pytest.mark.parametrize(
    ("events", "limit", "words"),
    [
        ([STALL], {"first_byte_timeout": 0.2}, "sent nothing for 0.2 s"),
        ([D("x"), STALL], {"idle_timeout": 0.2}, "silent in the middle"),
        ([D("x"), *[": ping", Pause(0.05)] * 20, STALL], {"keepalive_timeout": 0.4}, "nothing but keep-alives"),
    ],
)
def test_each_kind_of_silence_has_its_limit(events: list[Any], limit: dict[str, float], words: str, make: Make) -> None:
    settings = replace(FAST, retries=1, unreachable_retries=1, **limit)  # type: ignore[arg-type]
    with StrictServer(forever=Events(events)) as server:
        reasons: list[str] = []
        with pytest.raises((StreamBroken, ServerFailed), match=words):
            make(server, settings=settings).chat(HI, on_retry=lambda reason, *_: reasons.append(reason))
        assert len(server.requests) == 2
        assert words in reasons[0]


def test_keep_alives_hold_a_connection_that_is_slow(make: Make) -> None:
    settings = LLMSettings(idle_timeout=0.4, first_byte_timeout=0.4, keepalive_timeout=20, retries=0)
    slow: list[Any] = [": ping", Pause(0.1)] * 8
    with StrictServer(sse(*slow, D("hi"), F("stop"), DONE)) as server:
        assert make(server, settings=settings).chat(HI).content == "hi"


@pytest.mark.parametrize(
    "step",
    [
        STALL,
        sse(STALL),
        sse(D("x"), STALL),
        sse(T(fn("bash", '{"a', id="a")), STALL),
        HTTPError(503, "down", {"Retry-After": "8"}),
        HTTPError(429, pause=8),
    ],
    ids=["headers", "first byte", "text", "arguments", "backoff", "slow error"],
)
def test_a_cancel_ends_every_phase_at_once(step: Any, make: Make) -> None:
    with StrictServer(step, "fine") as server:
        llm = make(server)
        token = CancelToken()
        cancelled: list[float] = []

        def cancel() -> None:
            cancelled.append(time.monotonic())
            token.cancel()

        timer = threading.Timer(0.2, cancel)
        timer.start()
        with pytest.raises(Cancelled):
            llm.chat(HI, TOOLS, token=token)
        assert time.monotonic() - cancelled[0] < 2
        timer.join()
        server.steps[:] = ["fine"]
        assert llm.chat(HI, TOOLS).content == "fine"


def test_a_cancel_ends_a_handshake_that_does_not_come(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        token = CancelToken()
        timer = threading.Timer(0.3, token.cancel)
        timer.start()
        begun = time.monotonic()
        with pytest.raises(Cancelled):
            make(f"https://127.0.0.1:{silent.getsockname()[1]}/v1").chat(HI, token=token)
        assert time.monotonic() - begun < 5
        timer.join()


def test_a_cancelled_token_sends_nothing(make: Make) -> None:
    with StrictServer() as server:
        token = CancelToken()
        token.cancel()
        with pytest.raises(Cancelled):
            make(server).chat(HI, token=token)
        assert server.requests == []


def test_closing_the_client_ends_what_it_holds(make: Make) -> None:
    with StrictServer(forever="hi") as server:
        llm = make(server)
        llm.warm_up()
        assert llm.chat(HI).content == "hi"
        llm.close()
        llm.close()


# -- errors


def test_an_unreachable_server_is_named_with_what_to_do(make: Make) -> None:
    with StrictServer() as server:
        url = server.base_url
    with pytest.raises(ServerFailed, match=r"cannot be reached .*Is the server running\?") as failure:
        make(url).chat(HI)
    assert url in str(failure.value)


def test_a_server_that_hangs_up_without_an_answer_is_a_server_fault(make: Make) -> None:
    with StrictServer(EOF, EOF, "hi") as server:
        assert make(server).chat(HI).content == "hi"


def test_an_idle_connection_that_the_server_closed_is_replaced_without_a_word(make: Make) -> None:
    with StrictServer("one", EOF, "two") as server:
        llm = make(server)
        llm.chat(HI)
        said: list[str] = []
        assert llm.chat(HI, on_retry=lambda reason, *_: said.append(reason)).content == "two"
        assert said == []


@pytest.mark.parametrize(
    ("answer", "kind", "requests"),
    [
        (api_error("Incorrect API key provided", status=401, code="invalid_api_key"), AuthFailed, 1),
        (HTTPError(403, "Forbidden"), AuthFailed, 1),
        (api_error("Insufficient Balance", status=402), QuotaExhausted, 1),
        (
            api_error(
                "You exceeded your current quota, please check your plan and billing details.",
                status=429,
                type="insufficient_quota",
                code="insufficient_quota",
            ),
            QuotaExhausted,
            1,
        ),
        (HTTPError(413, "<html><title>413 Request Entity Too Large</title></html>"), RequestTooLarge, 1),
        (api_error("The model `x` does not exist", status=404, code="model_not_found"), RequestRefused, 1),
        (HTTPError(400, {"error": "something odd"}), RequestRefused, 1),
        (HTTPError(500, "oops"), ServerFailed, 5),
        (api_error("Failed to call a function.", code="tool_use_failed"), StreamBroken, 5),
        (HTTPError(502, b"\xff\xfe"), ServerFailed, 5),
        (api_error("maximum context length is 8192 tokens", code="context_length_exceeded"), ContextOverflow, 1),
    ],
)
def test_each_class_of_error_does_one_thing(answer: Any, kind: type[ProviderError], requests: int, make: Make) -> None:
    with StrictServer(forever=answer) as server:
        with pytest.raises(kind) as failure:
            make(server).chat(HI)
        assert len(server.requests) == requests
        assert type(failure.value) is kind
        assert f"(HTTP {answer.status})" in str(failure.value)


OVERFLOW = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"


@pytest.mark.parametrize(
    ("events", "kind", "words", "requests"),
    [
        ([{"choices": None, "error_type": "BadRequestError", "error_message": OVERFLOW}], ContextOverflow, "8192", 1),
        ([D("par"), {"error": {"message": "Worker limit reached", "code": 502}}], ServerFailed, "Worker limit", 3),
        ([{"choices": [], "error": {"message": "Worker limit reached", "code": 502}}, DONE], ServerFailed, "Worker", 3),
        ([{**F("error"), "error": {"message": "Overloaded", "code": 529}}], ServerFailed, "Overloaded", 3),
        ([{"error": "boom"}], RequestRefused, "boom", 1),
        ([T(fn("bash", '{"x":1}', id="a")), F("error")], StreamBroken, "error", 5),
        ([T(fn("bash", '{"x":1}', id="a")), F("insufficient_system_resource"), DONE], StreamBroken, "resource", 5),
        ([D("par"), F("network_error"), {"error": {"message": "Overloaded"}}], ServerFailed, "Overloaded", 3),
        (["<html><title>Welcome</title></html>"], RequestRefused, "base URL", 1),
        ([D("call:bash"), F("function_call_filter: MALFORMED_FUNCTION_CALL")], StreamBroken, "MALFORMED", 5),
        ([D("par"), {"error": {"message": "unexpected EOF", "type": "api_error"}}], ServerFailed, "EOF", 3),
        ([{"error": {"message": "InternalError.Algo.InvalidParameter: odd"}}], RequestRefused, "odd", 1),
        ([{"object": "error", "message": "bad field", "code": 400}], RequestRefused, "bad field", 1),
        (['event: error\ndata: {"message": "' + OVERFLOW + '"}'], ContextOverflow, "8192", 1),
    ],
)
def test_an_error_inside_a_stream_is_read_like_any_other(
    events: list[Any], kind: type[ProviderError], words: str, requests: int, make: Make
) -> None:
    with StrictServer(forever=sse(*events)) as server:
        with pytest.raises(kind, match=words):
            make(server).chat(HI)
        assert len(server.requests) == requests


def test_retry_after_is_kept_in_seconds_and_as_a_date(make: Make) -> None:
    limited = api_error("Rate limit reached", status=429, headers={"Retry-After": "1"})
    dated = api_error(
        "Rate limit reached", status=429, headers={"Retry-After": formatdate(time.time() + 2, usegmt=True)}
    )
    with StrictServer(limited, dated, "hi") as server:
        waits: list[float] = []
        assert make(server).chat(HI, on_retry=lambda _reason, delay, _n: waits.append(delay)).content == "hi"
        assert waits[0] == 1.0
        assert 0 <= waits[1] <= 2
        gaps = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
        assert all(gap >= wait - 0.01 for gap, wait in zip(gaps, waits, strict=True))


def test_a_wait_longer_than_the_limit_is_not_waited(make: Make) -> None:
    with StrictServer(forever=api_error("slow down", status=429, headers={"Retry-After": "86400"})) as server:
        with pytest.raises(RateLimited, match="24 h") as failure:
            make(server).chat(HI)
        assert failure.value.retryable
        assert len(server.requests) == 1


def test_a_server_that_always_names_a_short_wait_is_given_up(make: Make) -> None:
    for status, requests in ((429, 1 + FAST.rate_retries), (503, 1 + FAST.retries)):
        with StrictServer(forever=api_error("slow down", status=status, headers={"Retry-After": "0"})) as server:
            with pytest.raises(RateLimited):
                make(server).chat(HI)
            assert len(server.requests) == requests


def test_waits_after_faults_count_against_the_limit_too(make: Make) -> None:
    with StrictServer(forever=HTTPError(502, "oops")) as server:
        with pytest.raises(ServerFailed, match="CORECODER_RETRY_WAIT_LIMIT"):
            make(server, settings=replace(FAST, backoff=1.0, retry_wait_limit=0.1)).chat(HI)
        assert len(server.requests) == 1


def test_a_wait_that_makes_no_sense_is_the_usual_one(make: Make) -> None:
    with StrictServer(api_error("slow down", status=429, headers={"Retry-After": "soon"}), "hi") as server:
        waits: list[float] = []
        make(server).chat(HI, on_retry=lambda _reason, delay, _n: waits.append(delay))
        assert 0 < waits[0] < 1


# -- refused fields and shapes: fixed once, remembered


def refuses(test: Callable[[dict[str, Any]], bool], error: HTTPError) -> Callable[[dict[str, Any]], Any]:
    return lambda body: error if test(body) else "ok"


UNSUPPORTED = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)
EXTRA = {
    "detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]
}
NESTED = {"object": "error", "message": EXTRA, "type": "invalid_request_error"}
FIELDS: dict[str, tuple[Callable[[dict[str, Any]], bool], HTTPError]] = {
    "max_tokens": (
        lambda body: "max_tokens" in body,
        api_error(UNSUPPORTED, param="max_tokens", code="unsupported_parameter"),
    ),
    "max_tokens at copilot": (
        lambda body: "max_tokens" in body,
        api_error(UNSUPPORTED, code="invalid_request_body"),
    ),
    "temperature": (
        lambda body: "temperature" in body,
        api_error(TEMPERATURE, param="temperature", code="unsupported_value"),
    ),
    "stream_options": (lambda body: "stream_options" in body, HTTPError(422, EXTRA)),
    "stream_options in an object": (lambda body: "stream_options" in body, HTTPError(422, NESTED)),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_refused_field_is_fixed_once_and_remembered(case: str, make: Make, home: Any) -> None:
    test, error = FIELDS[case]
    with StrictServer(forever=refuses(test, error)) as server:
        options = {"temperature": 0.0, "max_tokens": 900, "home": home}
        said: list[str] = []
        llm = make(server, **options)
        assert llm.chat(HI, on_retry=lambda reason, *_: said.append(reason)).content == "ok"
        assert len(said) == 1
        assert len(server.requests) == 2
        llm.chat(HI)
        make(server, **options).chat(HI)
        assert len(server.requests) == 4
        if case.startswith("max_tokens"):
            assert server.requests[-1]["max_completion_tokens"] == 900


def test_the_two_names_of_the_output_limit_are_tried_and_then_neither(make: Make) -> None:
    def fussy(body: dict[str, Any]) -> Any:
        for name in ("max_tokens", "max_completion_tokens"):
            if name in body:
                return HTTPError(
                    422, {"detail": [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs"}]}
                )
        return "ok"

    with StrictServer(forever=fussy) as server:
        assert make(server, max_tokens=900).chat(HI).content == "ok"
        assert len(server.requests) == 3


BAD_VALUE = "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead."


def test_a_refused_value_is_the_users_to_change_and_teaches_nothing(make: Make, home: Any) -> None:
    refused = api_error(BAD_VALUE, param="temperature", code="decimal_above_max_value")
    with StrictServer(refused, "ok") as server:
        with pytest.raises(RequestRefused, match="Set CORECODER_TEMPERATURE"):
            make(server, temperature=3.0, home=home).chat(HI)
        make(server, temperature=1.0, home=home).chat(HI)
        assert server.requests[-1]["temperature"] == 1.0


STRANGE: dict[str, tuple[Message, str, HTTPError]] = {
    "thinking at openai": (
        {"role": "assistant", "content": "hi", "thinking": "so"},
        '"thinking"',
        api_error("Unknown parameter: 'messages[2].thinking'."),
    ),
    "reasoning_text at groq": (
        {"role": "assistant", "content": "hi", "reasoning_text": "so"},
        '"reasoning_text"',
        api_error("'messages.2' : for 'role:assistant' the following must be satisfied[property is unsupported]"),
    ),
    "a call's field": (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "bash", "arguments": "{}"},
                    "provider_specific_fields": {"x": 1},
                }
            ],
        },
        '"provider_specific_fields"',
        HTTPError(422, {"error": {"message": "messages[2].tool_calls[0]: unknown field"}}),
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_what_another_provider_left_in_the_conversation_never_ends_it(case: str, make: Make, home: Any) -> None:
    message, field, error = STRANGE[case]
    calls = message.get("tool_calls") or []
    results = [{"role": "tool", "tool_call_id": "a", "content": "ok"}] if calls else []
    history = [*HI, message, *results, {"role": "user", "content": "go on"}]
    with StrictServer(forever=refuses(lambda body: field in json.dumps(body), error)) as server:
        assert make(server, home=home).chat(history).content == "ok"
        assert len(server.requests) == 2
        make(server, home=home).chat(history)
        assert len(server.requests) == 3


def test_kimi_gets_reasoning_that_is_not_empty(make: Make) -> None:
    missing = api_error(
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
    )

    def kimi(body: dict[str, Any]) -> Any:
        asked = [message for message in body["messages"] if message.get("tool_calls")]
        return "ok" if all(message.get("reasoning_content") for message in asked) else missing

    with StrictServer(forever=kimi) as server:
        assert make(server).chat(_one_call(then={"role": "user", "content": "go on"})).content == "ok"


@pytest.mark.parametrize("chunks", [[], [": keep-alive\n\n"] * 3])
def test_a_silence_in_a_body_that_ends_with_its_connection_is_named(chunks: list[str], make: Make) -> None:
    """HTTP without a length: when we cut it, the body just ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                for chunk in chunks:
                    connection.sendall(chunk.encode())
                while connection.recv(65536):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        limits = replace(
            FAST, first_byte_timeout=0.3, idle_timeout=0.3, keepalive_timeout=0.3, retries=0, unreachable_retries=0
        )
        llm = make(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", settings=limits)
        with pytest.raises(ProviderError, match=r"nothing for|nothing but keep-alives|fell silent"):
            llm.chat(HI)


def test_a_call_that_the_server_left_as_text_is_named(make: Make) -> None:
    text = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    with StrictServer(forever=text) as server:
        with pytest.raises(EmptyReply, match="--jinja"):
            make(server).chat(HI, TOOLS)
        assert len(server.requests) == 1
        assert make(server).chat(HI).content == text


PICTURE = "data:image/png;base64,iVBORw0KGgo="
OTHER_PICTURE = "data:image/gif;base64,R0lGODlhAQ=="


def _with_images(*urls: str) -> list[Message]:
    parts = [{"type": "text", "text": "look"}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    return [*HI[:1], {"role": "user", "content": parts}]


@pytest.mark.parametrize(
    "error",
    [
        api_error("Could not process image", code="invalid_image_format"),
        api_error("messages.1.content.1: image exceeds 5 MB maximum", status=413),
        HTTPError(422, {"detail": "odd"}),
        HTTPError(415, "Unsupported Media Type"),
    ],
)
def test_a_request_whose_images_are_refused_is_sent_once_without_them(error: HTTPError, make: Make, home: Any) -> None:
    with StrictServer(forever=refuses(lambda body: PICTURE in json.dumps(body), error)) as server:
        llm = make(server, home=home)
        said: list[str] = []
        assert llm.chat(_with_images(PICTURE), on_retry=lambda reason, *_: said.append(reason)).content == "ok"
        assert len(said) == 1
        assert "image" in said[0]
        llm.chat(_with_images(PICTURE, OTHER_PICTURE))
        assert len(server.requests) == 3  # the refused one is left out from now on, another is sent
        assert OTHER_PICTURE in json.dumps(server.requests[-1])


def test_images_are_not_blamed_for_what_fails_without_them_too(make: Make) -> None:
    with StrictServer(forever=api_error("odd")) as server:
        llm = make(server)
        with pytest.raises(RequestRefused, match="odd"):
            llm.chat(_with_images(PICTURE))
        with pytest.raises(RequestRefused):
            llm.chat(_with_images(PICTURE))
        assert [PICTURE in json.dumps(body) for body in server.requests] == [True, False, True, False]


def test_a_refusal_that_cannot_be_fixed_is_not_repeated(make: Make) -> None:
    with StrictServer(forever=api_error(TEMPERATURE, param="temperature")) as server:
        with pytest.raises(RequestRefused, match="temperature"):
            make(server, temperature=0.5).chat(HI)
        assert len(server.requests) == 2
        with pytest.raises(RequestRefused):
            make(server).chat(HI)
        assert len(server.requests) == 3


def _one_call(*, then: Message | None = None, content: Any = "ok", identity: str = "call_1") -> list[Message]:
    made = {"id": identity, "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    history: list[Message] = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": identity, "content": content},
    ]
    return [*history, then] if then else history


def _roles(body: dict[str, Any]) -> str:
    return " ".join(message["role"][0] for message in body["messages"])


PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SHAPES: dict[str, tuple[list[Message], Callable[[dict[str, Any]], bool], str]] = {
    "user after tool": (
        _one_call(then={"role": "user", "content": "stop"}),
        lambda body: "t u" in _roles(body),
        "Unexpected role 'user' after role 'tool'",
    ),
    "roles in turn": (
        [*HI, {"role": "user", "content": "two"}],
        lambda body: "u u" in _roles(body),
        "Conversation roles must alternate user/assistant/user/assistant/...",
    ),
    "no system": (
        [{"role": "system", "content": "be good"}, *HI],
        lambda body: "s" in _roles(body),
        "System role not supported",
    ),
    "late system": (
        [{"role": "system", "content": "be good"}, *HI, {"role": "system", "content": "new"}],
        lambda body: "s" in _roles(body)[1:],
        "System message must be at the beginning.",
    ),
    "content null": (
        _one_call(),
        lambda body: any(message["content"] is None for message in body["messages"]),
        "1 validation error: messages.1.content Input should be a valid string",
    ),
    "parts": (
        _one_call(then={"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        lambda body: any(isinstance(message["content"], list) for message in body["messages"]),
        "Failed to deserialize: messages[3].content: invalid type: sequence, expected a string",
    ),
    "images": (
        _one_call(then={"role": "user", "content": [{"type": "text", "text": "see"}, PNG]}),
        lambda body: "image_url" in json.dumps(body),
        "unknown variant `image_url`, expected `text`",
    ),
    "nine ids": (
        _one_call(identity="functions.bash:0"),
        lambda body: any(len(message.get("tool_call_id", "123456789")) != 9 for message in body["messages"]),
        "Tool call id was functions.bash:0 but must be a-z, A-Z, 0-9, with a length of 9.",
    ),
    "long ids": (
        _one_call(identity="x" * 64),
        lambda body: any(len(message.get("tool_call_id", "")) > 40 for message in body["messages"]),
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40",
    ),
    "extra fields": (
        [*HI, {"role": "assistant", "content": "a", "reasoning_content": "r"}, *HI],
        lambda body: any("reasoning_content" in message for message in body["messages"]),
        "property 'reasoning_content' is unsupported",
    ),
    "named results": (
        _one_call(),
        lambda body: body["messages"][-1].get("name") != "bash",
        "GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_refused_shape_is_changed_once_and_remembered(case: str, make: Make, home: Any) -> None:
    history, test, words = SHAPES[case]
    with StrictServer(forever=refuses(test, api_error(words)), strict=False) as server:
        before = json.dumps(history)
        assert make(server, home=home).chat(history, TOOLS).content == "ok"
        assert len(server.requests) == 2
        make(server, home=home).chat(history, TOOLS)
        # A server on this machine may be started anew with eyes: in another process it is tried again.
        assert len(server.requests) == (4 if case == "images" else 3)
        assert json.dumps(history) == before


def test_parallel_calls_are_taken_apart_for_a_model_of_single_ones(make: Make) -> None:
    def single(body: dict[str, Any]) -> Any:
        many = any(len(message.get("tool_calls") or ()) > 1 for message in body["messages"])
        return api_error("This model only supports single tool-calls at once!") if many else "ok"

    both = sse(T(fn("bash", "{}", id="a")), T(fn("bash", "{}", index=1, id="b")), F("tool_calls"), DONE)
    with StrictServer(both, forever=single) as server:
        llm = make(server)
        assert llm.chat(after(llm.chat(HI, TOOLS)), TOOLS).content == "ok"
        assert _roles(server.requests[-1]) == "u a t a t"
        assert server.faults == []


def test_calls_become_text_where_a_request_without_tools_may_have_none(make: Make) -> None:
    words = "Requests which have `tool_use` or `tool_result` blocks in messages must define tools."
    with StrictServer(forever=refuses(lambda body: "t" in _roles(body), api_error(words))) as server:
        assert make(server).chat(_one_call()).content == "ok"
        assert server.requests[-1]["messages"][-1] == {"role": "user", "content": "Result: ok"}


def test_a_limit_that_the_endpoint_insists_on_is_sent(make: Make) -> None:
    words = "max_tokens: Field required"
    with StrictServer(forever=refuses(lambda body: "max_tokens" not in body, api_error(words))) as server:
        assert make(server).chat(HI).content == "ok"


def test_max_tokens_is_held_to_what_the_model_can_write(make: Make, home: Any) -> None:
    error = api_error("max_tokens: 250000 > 8192, which is the maximum allowed number of output tokens for x")
    with StrictServer(forever=refuses(lambda body: body["max_tokens"] > 8192, error)) as server:
        llm = make(server, max_tokens=250_000, home=home)
        assert llm.chat(HI).content == "ok"
        assert server.requests[-1]["max_tokens"] == 8192
        assert llm.info.output_limit == 8192
        assert make(server, max_tokens=250_000, home=home).chat(HI).content == "ok"
        assert len(server.requests) == 3


def test_max_tokens_fits_the_room_that_the_prompt_leaves(make: Make) -> None:
    with StrictServer(forever="hi") as server:
        make(server, max_tokens=65_000, window=10_000).chat([{"role": "user", "content": "word " * 4000}])
        assert 256 <= server.requests[0]["max_tokens"] < 7000


def test_prompt_and_reply_that_do_not_fit_together_are_no_overflow(make: Make) -> None:
    words = (
        "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your "
        "prompt contains at least 62466 input tokens, for a total of at least 128001 tokens."
    )
    with StrictServer(forever=refuses(lambda body: body["max_tokens"] > 65_500, api_error(words))) as server:
        llm = make(server, max_tokens=65_535)
        assert llm.chat(HI).content == "ok"
        assert server.requests[-1]["max_tokens"] <= 128_000 - 62_466
        assert llm.info.window == 128_000


def test_an_overflow_teaches_the_window_for_good(make: Make, home: Any) -> None:
    with StrictServer(api_error(OVERFLOW, code="context_length_exceeded")) as server:
        llm = make(server, home=home)
        with pytest.raises(ContextOverflow) as failure:
            llm.chat(HI)
        assert failure.value.window == 8192
        assert llm.info.window == 8192
        assert make(server, home=home).info.window == 8192
        assert make(server, home=home, window=4000).info.window == 4000


@pytest.mark.parametrize(
    "events",
    [
        [F("model_context_window_exceeded"), DONE],
        [F("length"), {"choices": [], "usage": {"prompt_tokens": 32768, "completion_tokens": 0}}, DONE],
    ],
)
def test_a_window_overflow_told_by_the_finish_reason_is_one(events: list[Any], make: Make) -> None:
    with StrictServer(sse(*events)) as server, pytest.raises(ContextOverflow):
        make(server).chat(HI)


def test_a_window_that_was_outgrown_is_forgotten(make: Make) -> None:
    overflow = api_error(OVERFLOW, code="context_length_exceeded")
    with StrictServer(overflow, sse(D("hi"), F("stop"), usage(9000, 1), DONE)) as server:
        llm = make(server)
        with pytest.raises(ContextOverflow):
            llm.chat(HI)
        llm.chat(HI)
        assert llm.info.window is None


def test_the_model_list_of_a_local_server_is_asked_once_in_a_process(make: Make, home: Any) -> None:
    listing = [{"id": "other", "max_model_len": 1}, {"id": "scripted", "max_model_len": 32_768}]
    with StrictServer(forever="hi", models=listing) as server:
        llm = make(server, home=home)
        assert llm.info.window is None
        llm.chat(HI)
        llm.chat(HI)
        assert llm.info.window == 32_768
        assert make(server, home=home).info.window == 32_768
        assert server.gets == ["/v1/models"]
        server.models[1]["max_model_len"] = 65_536
        again = make(server, home=home)
        again.chat(HI)
        assert again.info.window == 65_536


def test_a_read_only_home_is_no_reason_to_stop(make: Make, tmp_path: Any) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with StrictServer(
        forever=refuses(lambda body: "temperature" in body, api_error(TEMPERATURE, param="temperature"))
    ) as server:
        llm = make(server, temperature=0.0, home=blocked / "home")
        assert llm.chat(HI).content == "ok"
        llm.chat(HI)
        assert len(server.requests) == 3


def test_a_conversation_of_many_steps_keeps_every_rule(make: Make) -> None:
    steps: list[Any] = [[Text("go"), Call("bash", {"command": f"echo {n}"})] for n in range(30)]
    with StrictServer(*steps, "done") as server:
        llm = make(server)
        history = list(HI)
        while True:
            reply = llm.chat(repair(history), TOOLS)
            history.append(reply.message)
            if not reply.tool_calls:
                break
            history += [{"role": "tool", "tool_call_id": made.id, "content": "x" * 100} for made in reply.tool_calls]
        assert (reply.content, server.faults, server.connections) == ("done", [], 1)


def test_random_streams_end_in_a_reply_or_in_one_of_our_errors(make: Make) -> None:
    chance = random.Random(7)
    settings = LLMSettings(retries=0, unreachable_retries=0, empty_retries=0, retry_wait_limit=0)
    replies = 0
    said: list[str] = []
    with StrictServer(forever=lambda _body: random_stream(chance), strict=False) as server:
        llm = make(server, settings=settings)
        for _ in range(400):
            try:
                reply = llm.chat(HI, TOOLS)
            except ProviderError as error:
                said.append(str(error))
                continue
            replies += 1
            history = after(reply)
            assert unpaired(history) == []
            assert list(broken_rules({"messages": history})) == []
            json.dumps(reply.message).encode()
    assert 100 < replies < 400
    assert all(words.strip() for words in said)
