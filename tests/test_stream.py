"""Whatever a provider streams, the same reply comes out: assembly, cuts, tags, bodies that are no streams."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server import D, F, T, fn, usage

from corecoder.events import Usage
from corecoder.messages import Reply, repair, unpaired
from corecoder.sse import DONE, KEEP_ALIVE, EventReader
from corecoder.stream import ReplyBuilder

TOOLS = ("bash", "read_file", "read_files", "write_file", "edit_existing_file", "grep")


def assembled(*chunks: dict[str, Any], names: tuple[str, ...] = TOOLS) -> Reply:
    builder = ReplyBuilder(names)
    for chunk in chunks:
        builder.add(chunk)
    return builder.reply()


def calls(*chunks: dict[str, Any]) -> list[tuple[str, str]]:
    return [(call.name, call.raw) for call in assembled(*chunks).tool_calls]


def shown(*deltas: str) -> tuple[str, str]:
    """The visible text as it was passed on, and the reasoning."""
    text: list[str] = []
    thought: list[str] = []
    builder = ReplyBuilder((), text.append, thought.append)
    for delta in deltas:
        builder.add(D(delta))
    reply = builder.reply()
    assert reply.content == "".join(text)
    assert reply.reasoning == "".join(thought)
    return reply.content, reply.reasoning


# -- from bytes to payloads


def payloads(data: bytes, size: int = 7) -> list[Any]:
    reader = EventReader()
    found = [item for at in range(0, len(data), size) for item in reader.feed(data[at : at + size])]
    return [item for item in [*found, *reader.close()] if item != KEEP_ALIVE]


@pytest.mark.parametrize("separator", ["\n\n", "\r\n\r\n", "\n", "\r\r", "\n\n\n", "\n: ping\n\n"])
@pytest.mark.parametrize("prefix", ["data: ", "data:", "event: message\ndata: "])
def test_events_read_alike_whatever_separates_them(separator: str, prefix: str) -> None:
    body = separator.join(f"{prefix}{json.dumps({'n': n, 'é': '日本'}, ensure_ascii=False)}" for n in range(3))
    body += f"{separator}data: [DONE]"
    wanted = [{"n": n, "é": "日本"} for n in range(3)] + [DONE]
    for size in (1, 2, 5, 1000):
        assert payloads(body.encode(), size) == wanted


def test_json_over_several_data_lines_is_one_event() -> None:
    assert payloads(b'data: {"a":\ndata: 1}\n\ndata: [DONE]\n\n') == [{"a": 1}, DONE]


def test_a_body_that_is_no_stream_is_one_payload() -> None:
    assert payloads(b'{\n "error": "boom"\n}') == [{"error": "boom"}]
    assert payloads(b'[{"error": {"message": "boom"}}]') == [{"error": {"message": "boom"}}]
    assert payloads(b"<html>502</html>") == ["<html>502</html>"]


def test_what_is_not_json_is_handed_on_as_text_and_a_torn_end_too() -> None:
    assert payloads(b'data: {"a": 1}\n\ndata: {"b": \n\ndata: [DONE]\n\n') == [{"a": 1}, '{"b":', DONE]
    assert payloads(b'data: {"a": 1}\n\ndata: {"b": 1') == [{"a": 1}, '{"b": 1']


def test_a_mark_of_byte_order_before_the_first_event_is_none_of_it() -> None:
    assert payloads(b'\xef\xbb\xbfdata: {"a": 1}\n\n') == [{"a": 1}]


def test_data_lines_that_never_become_json_are_given_up() -> None:
    found = payloads(b"data: {\n" + b"data: x\n" * 2500, 4000)
    assert found[0].startswith("{\nx\n")
    assert len(found) == 1


def test_an_error_event_is_marked_as_one() -> None:
    assert payloads(b'event: error\ndata: {"message": "no"}\n\n') == [{"error": {"message": "no"}}]


def test_comments_and_empty_events_are_keep_alives() -> None:
    reader = EventReader()
    assert list(reader.feed(b": OPENROUTER PROCESSING\n\ndata: \n\ndata: ping\n\n")) == [KEEP_ALIVE] * 3


# -- tool calls


def test_deltas_without_an_index_go_on_with_the_call_that_is_open() -> None:
    for index in ({}, {"index": None}):
        first = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"comm'}, **index}
        second = {"function": {"arguments": 'and":"echo hi"}'}, **index}
        assert calls(T(first), T(second), F("tool_calls")) == [("bash", '{"command":"echo hi"}')]


def test_a_call_without_an_id_gets_one() -> None:
    reply = assembled(T(fn("read_file", '{"file_path":"a.txt"}')), F("tool_calls"))
    (call,) = reply.tool_calls
    assert (call.name, reply.content) == ("read_file", "")
    assert call.id
    assert reply.message["tool_calls"][0]["id"] == call.id


def test_several_calls_without_ids_on_one_index_are_cut_at_the_end_of_each_object() -> None:
    whole = [T(fn("read_file", json.dumps({"file_path": f"{n}.txt"}))) for n in range(4)]
    assert calls(*whole, F("tool_calls")) == [("read_file", json.dumps({"file_path": f"{n}.txt"})) for n in range(4)]
    run_on = T(fn("read_file", '{"file_path":"1"}{"file_path":"2"}'))
    assert calls(run_on) == [("read_file", '{"file_path":"1"}'), ("read_file", '{"file_path":"2"}')]


def test_equal_ids_on_different_indexes_are_two_calls_with_two_ids() -> None:
    reply = assembled(
        T(fn("read_file", '{"p":"a"}', index=0, id="x")), T(fn("read_file", '{"p":"b"}', index=1, id="x"))
    )
    assert [call.raw for call in reply.tool_calls] == ['{"p":"a"}', '{"p":"b"}']
    assert len({call.id for call in reply.tool_calls}) == 2
    assert [call["id"] for call in reply.message["tool_calls"]] == [call.id for call in reply.tool_calls]


def test_different_ids_on_one_index_are_two_calls() -> None:
    first, second = T(fn("bash", '{"a":1}', id="x")), T(fn("bash", '{"a":2}', id="y"))
    assert calls(first, second) == [("bash", '{"a":1}'), ("bash", '{"a":2}')]


def test_a_new_id_in_every_delta_does_not_split_a_call() -> None:
    deltas = [T(fn("bash", '{"a"', id="x1")), T(fn(None, ": ", id="x2")), T(fn(None, "1}", id="x3"))]
    assert calls(*deltas) == [("bash", '{"a": 1}')]


def test_interleaved_calls_are_told_apart_by_index_or_id() -> None:
    by_index = [
        fn("bash", '{"a"', id="x"),
        fn("grep", '{"b"', index=1, id="y"),
        fn(None, ":1}"),
        fn(None, ":2}", index=1),
    ]
    by_id = [
        fn("bash", '{"a"', index=None, id="x"),
        fn("grep", '{"b"', index=None, id="y"),
        fn(None, ":1}", index=None, id="x"),
        fn(None, ":2}", index=None, id="y"),
    ]
    for deltas in (by_index, by_id):
        assert calls(*map(T, deltas)) == [("bash", '{"a":1}'), ("grep", '{"b":2}')]


def test_arguments_that_are_an_object_become_its_text() -> None:
    assert calls(T(fn("bash", {"command": "echo é"}, id="a"))) == [("bash", '{"command": "echo é"}')]


def test_json_in_a_json_string_is_unwrapped() -> None:
    assert calls(T(fn("bash", json.dumps('{"command": "ls"}'), id="a"))) == [("bash", '{"command": "ls"}')]


def test_an_empty_object_before_the_arguments_is_a_placeholder() -> None:
    assert calls(T(fn("bash", "{}", id="a")), T(fn(None, '{"x"')), T(fn(None, ":1}"))) == [("bash", '{"x":1}')]
    assert calls(T(fn("bash", "{}", id="a")), T(fn("grep", "{}", index=1, id="b"))) == [("bash", "{}"), ("grep", "{}")]


def test_whole_arguments_repeated_under_the_same_id_are_dropped() -> None:
    deltas = [T(fn("bash", '{"x"', id="a")), T(fn(None, ":1}")), T(fn("bash", '{"x":1}', id="a"))]
    assert calls(*deltas) == [("bash", '{"x":1}')]


@pytest.mark.parametrize(
    "deltas",
    [
        [fn("bash", "{}", id="a"), fn("bash", '{"x":1}', id="a")],
        [fn("bash", "{}", id="a"), fn("bash", '{"x":1}')],
        [fn("bash", '{"x":1}', id="a"), fn("bash", '{"x":1}')],
        [fn("bash", '{"x"', id="a"), fn("bash", ":1", id="b"), fn("bash", "}", id="c")],
        [fn("bash", '{"x"', index=None, id="a"), fn("bash", ":1", index=None, id="b"), fn(None, "}", index=None)],
    ],
)
def test_a_call_that_is_sent_again_whole_or_relabelled_inside_its_object_is_one(deltas: list[Any]) -> None:
    assert calls(*map(T, deltas)) == [("bash", '{"x":1}')]


def test_calls_of_a_whole_message_are_told_apart_by_their_places() -> None:
    both = [{"id": "x", "function": {"name": "bash", "arguments": '{"x":1}'}}] * 2
    reply = assembled({"choices": [{"message": {"tool_calls": both}, "finish_reason": "tool_calls"}]})
    assert len({call.id for call in reply.tool_calls}) == 2


def test_deltas_that_bring_nothing_are_no_progress() -> None:
    builder = ReplyBuilder(TOOLS)
    assert builder.add(T(fn("bash", "", id="a")))
    assert not builder.add(T(fn(None, "")))
    assert not builder.add(T(fn("bash", "", id="a")))
    assert builder.add(T(fn(None, "{")))


def test_only_one_choice_is_read_and_a_message_that_repeats_it_is_not() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
    whole = {"choices": [{"index": 0, "delta": {}, "message": {"content": "hello"}, "finish_reason": "stop"}]}
    assert assembled(D("hel"), other, D("lo"), whole).content == "hello"


@pytest.mark.parametrize("reason", ["content_filter", "sensitive", "SAFETY", "content_filter: RECITATION"])
def test_calls_of_a_reply_that_a_filter_ended_may_not_run(reason: str) -> None:
    reply = assembled(T(fn("bash", '{"x":1}', id="a")), F(reason))
    assert (reply.cut, reply.finish_reason) == (True, "content_filter")
    assert not assembled(D("half"), F(reason)).cut


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["read_file", "read_file", "read_file"], "read_file"),
        (["read_", "file", None], "read_file"),
        (["edit_ex", "isting_file", None], "edit_existing_file"),
        (["read_", "read_file", "read_file"], "read_file"),
        (["made_up", None, None], "made_up"),
        (["made_up", "made_up", "made_up"], "made_up"),
        (["", "bash", None], "bash"),
    ],
)
def test_names_that_are_repeated_or_split_come_out_once(names: list[str | None], wanted: str) -> None:
    pieces = ['{"file', '_path"', ':"a"}']
    deltas = [
        T(fn(name, piece, id="a" if at == 0 else None))
        for at, (name, piece) in enumerate(zip(names, pieces, strict=True))
    ]
    assert calls(*deltas) == [(wanted, '{"file_path":"a"}')]


def test_braces_and_quotes_in_strings_do_not_end_the_arguments() -> None:
    text = json.dumps({"content": 'a}{"\\" {[ \\\\" }', "n": {"m": ["}", {}]}})
    assert calls(*[T(fn("write_file" if at == 0 else None, text[at])) for at in range(len(text))]) == [
        ("write_file", text)
    ]


def test_the_old_function_call_field_is_a_call() -> None:
    deltas = [D(function_call={"name": "bash", "arguments": '{"a'}), D(function_call={"arguments": '":1}'})]
    assert calls(*deltas, F("function_call")) == [("bash", '{"a":1}')]


def test_unknown_fields_of_a_call_are_kept() -> None:
    signature = {"google": {"thought_signature": "SIG"}}
    reply = assembled(T(fn("bash", "{", id="a", extra_content=signature)), T(fn(None, "}", vendor=1)))
    (call,) = reply.message["tool_calls"]
    assert (call["extra_content"], call["vendor"], "index" in call) == (signature, 1, False)
    assert repair([{"role": "user", "content": "x"}, reply.message])[1]["tool_calls"][0]["extra_content"] == signature


def test_arguments_stay_byte_for_byte_as_they_were_written() -> None:
    text = '{ "a" :\t"\\u00e9 é 日本 \\ud83d\\ude00",\n"b":1.0e3 }  '
    assert calls(*[T(fn("bash" if at == 0 else None, text[at])) for at in range(len(text))]) == [("bash", text)]


def test_garbage_names_and_types_end_in_a_sendable_history() -> None:
    for name in ("bash \u0648:{", "", None, "Bash", "functions.bash:0", 7, ["x"], {"a": 1}):
        reply = assembled(T({"index": 0, "id": "a", "function": {"name": name, "arguments": '{"command":"ls"}'}}))
        assert unpaired(repair([{"role": "user", "content": "x"}, reply.message])) == []
        assert len(reply.tool_calls) == 1


# -- whole, cut, broken


def test_an_ending_that_nobody_knows_is_told() -> None:
    assert assembled(D("half"), F("tired")).unknown_ending == "tired"
    for reason in ("stop", "STOP", "length", "end_turn", "content_filter: SAFETY"):
        assert assembled(D("hi"), F(reason)).unknown_ending == ""


def test_a_reply_cut_at_the_output_limit_says_so_whatever_the_arguments() -> None:
    for arguments in ('{"content":"line1\\nline2', '{"content":"whole"}'):
        assert assembled(T(fn("write_file", arguments, id="a")), F("length")).cut


def test_a_cut_is_not_undone_by_a_second_finish_reason() -> None:
    whole = T(fn("write_file", '{"file_path":"a"}', id="a"))
    for reasons in (["length", "stop"], ["tool_calls", "length"], ["length", "tool_calls"]):
        assert assembled(whole, *map(F, reasons)).cut


def test_a_call_that_breaks_off_is_cut_under_any_finish_reason() -> None:
    reply = assembled(T(fn("write_file", '{"content":"line1', id="a")), F("tool_calls"))
    assert reply.cut
    assert not assembled(T(fn("write_file", '{"content":"line1"}', id="a")), F("stop")).cut


def test_whole_and_cut_streams_are_told_apart_at_every_position() -> None:
    events = [
        D("Let me look."),
        T(fn("bash", '{"comm', id="a")),
        T(fn(None, 'and":"ls"}')),
        T(fn("grep", "", index=1, id="b")),
    ]
    events += [T(fn(None, '{"pattern":"x"}', index=1)), F("tool_calls"), usage(10, 2)]
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    finish = body.index(b'"finish_reason": "tool_calls"')
    whole_from = body.index(b"\n", finish)
    for cut in range(len(body) + 1):
        builder = ReplyBuilder(TOOLS)
        reader = EventReader()
        for payload in [*reader.feed(body[:cut]), *reader.close()]:
            if isinstance(payload, dict):
                builder.add(payload)
            elif payload == DONE:
                builder.done = True
        assert builder.whole == (cut >= whole_from), cut
        if builder.whole:
            assert [call.name for call in builder.reply().tool_calls] == ["bash", "grep"]


# -- text, reasoning, usage


@pytest.mark.parametrize(
    ("deltas", "text", "reasoning"),
    [
        (["<th", "ink>secret</th", "ink>\n\nHello"], "Hello", "secret"),
        (["</think>\nHello"], "Hello", ""),
        (["Use the `<think>` tag in HTML"], "Use the `<think>` tag in HTML", ""),
        (["\n<think>a</think>\n<think>b</think>\nHi <think>x</think>"], "Hi <think>x</think>", "ab"),
        (["<thinking>a < b </think> c</thinking>Hi"], "Hi", "a < b </think> c"),
        (["<", "b>bold</b>"], "<b>bold</b>", ""),
        (["<thin"], "<thin", ""),
        (["  indented"], "  indented", ""),
        (["<think>never closed"], "", "never closed"),
        (["a", "b", "ab"], "abab", ""),
    ],
)
def test_think_tags_count_only_before_the_first_text(deltas: list[str], text: str, reasoning: str) -> None:
    assert shown(*deltas) == (text, reasoning)
    assert shown(*"".join(deltas)) == (text, reasoning)


def test_content_comes_as_text_or_null_or_typed_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi"}]
    reply = assembled(
        D(content=None), D(content=parts), D(content={"type": "text", "text": " you"}), D(content=" there")
    )
    assert (reply.content, reply.reasoning) == ("Hi you there", "hm")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
def test_reasoning_is_kept_in_the_field_it_came_in(field: str) -> None:
    reply = assembled(D(**{field: "pl"}), D(**{field: "an"}), D("done"), F("stop"))
    assert (reply.reasoning, reply.content, reply.message[field]) == ("plan", "done", "plan")


def test_reasoning_sent_in_two_fields_at_once_is_read_once() -> None:
    assert assembled(D(reasoning="a", reasoning_content="a"), D("x")).reasoning == "a"


def test_reasoning_details_are_joined_in_order_and_echoed() -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return D(reasoning_details=[{"type": "reasoning.text", "index": 0, **fields}])

    reply = assembled(detail(text="pl"), detail(text="an"), detail(signature="SIG"), D("x"))
    assert reply.message["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "plan", "signature": "SIG"}
    ]
    assert reply.reasoning == "plan"


def test_reasoning_details_of_different_ids_stay_apart() -> None:
    deltas = [{"type": "x", "id": "a", "text": "1"}, {"type": "x", "text": "2"}, {"type": "x", "id": "b", "text": "3"}]
    reply = assembled(*[D(reasoning_details=[delta]) for delta in deltas], D("hi"))
    assert [item["text"] for item in reply.message["reasoning_details"]] == ["12", "3"]


def test_chunks_without_choices_or_with_nulls_everywhere_are_taken_as_they_are() -> None:
    chunks: list[dict[str, Any]] = [
        {"choices": [], "prompt_filter_results": []},
        {"choices": None},
        {"choices": [{"delta": None, "finish_reason": None}], "usage": None},
        D("hi"),
        F("stop"),
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}},
        {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": None}},
    ]
    reply = assembled(*chunks)
    assert (reply.content, reply.usage) == ("hi", Usage(10, 2))


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 1, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}, Usage(9, 1, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 4}, Usage(9, 1, 4)),
        ({"input_tokens": 9, "output_tokens": 1}, Usage(9, 1)),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(9, 5, 0, 3),
        ),
        ({"prompt_tokens": "9", "completion_tokens": [], "total_tokens": {}}, None),
    ],
)
def test_usage_is_read_in_every_dialect_and_anywhere(raw: dict[str, Any], wanted: Usage | None) -> None:
    assert assembled({"choices": [], "usage": raw}, D("x")).usage == wanted
    assert assembled(D("x"), {"choices": [{"delta": {}, "usage": raw}]}).usage == wanted


def test_a_surrogate_pair_split_over_two_deltas_is_one_character() -> None:
    text: list[str] = []
    builder = ReplyBuilder((), text.append)
    for delta in ("a\ud83d", "\ude00b", "\ud83d"):
        builder.add(D(delta))
    assert builder.reply().content == "a😀b�" == "".join(text)


# -- the same reply in random pieces and random dialects

_KEYS = st.text(min_size=1, max_size=4)
_VALUES = st.recursive(
    st.text(max_size=12) | st.integers() | st.booleans(), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
_ARGUMENTS = st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=3)
_CALLS = st.lists(st.tuples(st.sampled_from(TOOLS), _ARGUMENTS), max_size=4)
_PROSE = st.text(st.characters(codec="utf-8"), max_size=40).filter(lambda text: "<" not in text)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=_PROSE, thought=_PROSE, made=_CALLS, seed=st.integers(0, 2**32))
def test_random_fragments_in_random_dialects_give_the_same_reply(
    text: str, thought: str, made: list[tuple[str, dict[str, Any]]], seed: int
) -> None:
    chance = random.Random(seed)
    chunks = dialect_stream(chance, text, thought, made)
    body = "".join(f"data: {json.dumps(chunk, ensure_ascii=chance.random() < 0.5)}\n\n" for chunk in chunks)
    reader, builder = EventReader(), ReplyBuilder(TOOLS)
    data = body.encode("utf-8", "surrogatepass")
    while data:
        size = chance.choice((1, 3, 50, 1000))
        for payload in reader.feed(data[:size]):
            assert isinstance(payload, dict)
            builder.add(payload)
        data = data[size:]
    reply = builder.reply()
    assert reply.content == (text if text.strip() else "")
    assert reply.reasoning == thought
    assert [(call.name, json.loads(call.raw)) for call in reply.tool_calls] == made
    assert len({call.id for call in reply.tool_calls}) == len(made)
    assert (builder.whole, reply.cut) == (True, False)
    assert unpaired(repair([{"role": "user", "content": "x"}, reply.message])) == []


def pieces(chance: random.Random, text: str) -> list[str]:
    cuts = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def dialect_stream(
    chance: random.Random, text: str, thought: str, made: list[tuple[str, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """One reply as some provider would stream it."""
    field = chance.choice(("reasoning_content", "reasoning"))
    chunks: list[dict[str, Any]] = [D(role="assistant", content=chance.choice(("", None)))]
    chunks += [D(**{field: piece}) for piece in pieces(chance, thought)]
    chunks += [D(piece) for piece in pieces(chance, text)]
    label = chance.choice(("index and id", "index", "id", "one index", "nothing", "id on one index", "same id"))
    ids = chance.choice(("first", "every"))
    naming = chance.choice(("first", "every", "split"))
    writing = chance.choice(("pieces", "pieces", "whole", "object"))
    for number, (name, arguments) in enumerate(made):
        raw = json.dumps(arguments, ensure_ascii=chance.random() < 0.5)
        parts: list[Any] = [arguments] if writing == "object" else [raw] if writing == "whole" else pieces(chance, raw)
        if writing == "pieces" and chance.random() < 0.3 and label in ("index and id", "index", "id"):
            parts = ["", *parts]
        names = [name, *[name if naming == "every" else None] * (len(parts) - 1)]
        if naming == "split" and len(parts) > 1:
            at = chance.randrange(1, len(name))
            names[:2] = [name[:at], name[at:]]
        for at, (part, written) in enumerate(zip(parts, names, strict=True)):
            labels: dict[str, Any] = {}
            if label in ("index and id", "index", "same id"):
                labels["index"] = number
            if label in ("one index", "id on one index"):
                labels["index"] = 0
            if label in ("index and id", "id", "id on one index", "same id") and (at == 0 or ids == "every"):
                labels |= {"id": "x" if label == "same id" else f"c{number}", "type": "function"}
            function = {"arguments": part} if written is None else {"name": written, "arguments": part}
            chunks.append(T({**labels, "function": function}))
    chunks.append(F(chance.choice(("tool_calls", "stop"))))
    chunks.insert(chance.randrange(len(chunks) + 1), usage(3, 4))
    chunks.insert(chance.randrange(len(chunks) + 1), {"choices": chance.choice(([], None))})
    return chunks
