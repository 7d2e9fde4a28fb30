"""Messages: what makes a list of them sendable, for histories that nobody would write on purpose."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corecoder.messages import (
    CONTINUED,
    NO_OUTPUT,
    NO_RESULT,
    Repairer,
    Reply,
    ToolCall,
    legal_name,
    parse_arguments,
    repair,
    text_of,
    unpaired,
)

Message = dict[str, Any]

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def user(content: Any = "hi") -> Message:
    return {"role": "user", "content": content}


def call(id: Any = "c1", name: Any = "bash", arguments: Any = '{"command": "ls"}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def assistant(*calls: Any, content: Any = None, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def result(id: Any = "c1", content: Any = "ok") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": content}


HEALTHY = [
    {"role": "system", "content": "be brief"},
    user(),
    assistant(call("a"), call("b", extra_content={"google": {"thought_signature": "SIG"}}), reasoning_content="plan"),
    result("a"),
    result("b", "two"),
    assistant(content="done"),
    user([{"type": "text", "text": "look"}, IMAGE]),
]


# -- the rules, one by one


def test_a_healthy_view_goes_out_as_it_is() -> None:
    sent = repair(HEALTHY)
    assert sent == HEALTHY
    assert all(a is b for a, b in zip(sent, HEALTHY, strict=True))
    assert repair([]) == []


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    sent = repair([user(), assistant(call("a"), call("b")), result("a", "kept")])
    assert sent[2:] == [result("a", "kept"), result("b", NO_RESULT)]
    sent = repair([user(), assistant(call("a")), user("next")])
    assert sent[2:] == [result("a", NO_RESULT), user("next")]


def test_results_nobody_asked_for_are_left_out() -> None:
    assert repair([user(), result("x"), user("b")]) == [user(), user("b")]
    assert repair([user(), assistant(content="text"), result("x")]) == [user(), assistant(content="text")]
    twice = [user(), assistant(call("a")), result("a", "first"), result("a", "second")]
    assert repair(twice) == twice[:3]


def test_results_stand_in_the_order_of_their_calls() -> None:
    sent = repair([user(), assistant(call("a"), call("b")), result("b", "B"), result("a", "A")])
    assert sent[2:] == [result("a", "A"), result("b", "B")]


def test_ids_that_are_missing_or_repeated_are_made_unique_on_both_sides() -> None:
    sent = repair([user(), assistant(call("x"), call("x")), result("x", "1"), result("x", "2")])
    ids = [each["id"] for each in sent[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(message["tool_call_id"], message["content"]) for message in sent[2:]] == [(ids[0], "1"), (ids[1], "2")]
    sent = repair([user(), assistant(call(None), call("")), result(None, "1"), result("", "2")])
    assert unpaired(sent) == []
    assert [message["content"] for message in sent[2:]] == ["1", "2"]
    sent = repair([user(), assistant(call(7)), result(7, "seven")])
    assert isinstance(sent[1]["tool_calls"][0]["id"], str)
    assert sent[2]["content"] == "seven"
    sent = repair([user(), assistant(call(""), call("call_2")), result("", "1"), result("call_2", "2")])
    assert unpaired(sent) == []
    assert [message["content"] for message in sent[2:]] == ["1", "2"]


@pytest.mark.parametrize(
    "raw",
    [
        'description": "x"}',
        "[1]",
        "null",
        '"text"',
        "{",
        "",
        "  ",
        None,
        5,
        {"a": 1},
        "{" * 100_000,
        '{"a": NaN}',
        "[" * 9,
    ],
)
def test_arguments_that_are_no_json_object_are_replaced_in_what_is_sent(raw: Any) -> None:
    view = [user(), assistant(call("a", arguments=raw)), result("a", "error")]
    before = copy.deepcopy(view[1])
    sent = repair(view)
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert sent[2]["content"] == "error"
    assert view[1] == before


def test_argument_text_that_is_an_object_stays_byte_for_byte() -> None:
    raw = ' {"b" :1,\n"a":  "\\u00e9\\ud83d\\ude00"}'
    view = [user(), assistant(call("a", arguments=raw)), result("a")]
    assert repair(view)[1]["tool_calls"][0]["function"]["arguments"] == raw


@pytest.mark.parametrize("name", ["bash \u0648:{", "", None, "functions.bash:0", "a" * 65, "é", 5, "bash\n"])
def test_names_go_out_in_a_legal_form(name: Any) -> None:
    sent = repair([user(), assistant(call("a", name=name)), result("a")])
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", sent[1]["tool_calls"][0]["function"]["name"])
    assert legal_name("functions.bash:0") == "functions_bash_0"


@pytest.mark.parametrize("content", [None, "", " \n\t", [], [{"type": "text", "text": " "}], 5, {}])
def test_messages_without_content_are_left_out_and_empty_results_are_filled(content: Any) -> None:
    view = [
        user(),
        assistant(content=content),
        user(content),
        assistant(call("a"), content=content),
        result("a", content),
    ]
    sent = repair(view)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["content"] is None
    assert sent[2]["content"] == NO_OUTPUT


def test_blank_parts_are_left_out_beside_others() -> None:
    sent = repair([user([{"type": "text", "text": ""}, IMAGE])])
    assert sent == [user([IMAGE])]


def test_empty_tool_calls_are_not_sent() -> None:
    for empty in ([], None, "junk", {}, ["junk"]):
        message = {"role": "assistant", "content": "text", "tool_calls": empty}
        assert repair([user(), message])[1] == {"role": "assistant", "content": "text"}


def test_lone_surrogates_are_replaced_and_real_pairs_joined() -> None:
    odd = "a\ud83d b\ud83d\ude00 \udcff"
    view = [user(odd), assistant(call("a", arguments=json.dumps({"x": odd}, ensure_ascii=False)), **{odd: None})]
    sent = repair(view)
    json.dumps(sent, ensure_ascii=False).encode()
    assert sent[0]["content"] == "a\ufffd b\U0001f600 \ufffd"
    assert view[0]["content"] == odd


def test_a_view_never_starts_with_the_assistant() -> None:
    sent = repair([{"role": "system", "content": "s"}, assistant(content="hello")])
    assert sent[1] == user(CONTINUED)
    assert repair([assistant(call("a"))])[0] == user(CONTINUED)


def test_unpaired_names_every_fault() -> None:
    assert unpaired(HEALTHY) == []
    faults = {
        "no result": [assistant(call("a"))],
        "no result in the middle": [assistant(call("a")), user()],
        "orphan": [user(), result("a")],
        "order": [assistant(call("a"), call("b")), result("b"), result("a")],
        "repeated result": [assistant(call("a")), result("a"), result("a")],
        "repeated id": [assistant(call("a"), call("a")), result("a"), result("a")],
        "empty id": [assistant(call("")), result("")],
    }
    for name, view in faults.items():
        assert unpaired(view) != [], name
        assert unpaired(repair(view)) == [], name


# -- arbitrary histories

TEXT = st.sampled_from(["", " ", "\n", "text", "a\ud83d", "\ude00", "{}"]) | st.text(
    st.characters(exclude_categories=()), max_size=5
)
JUNK = st.none() | st.integers() | TEXT | st.lists(TEXT, max_size=2) | st.dictionaries(TEXT, TEXT, max_size=2)
PART = st.one_of(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT | JUNK}), st.just(IMAGE))
CONTENT = TEXT | JUNK | st.lists(PART, max_size=3)
ID = st.sampled_from(["a", "b", "call_2", "a_2", "", None]) | JUNK
RAW = st.sampled_from(['{"a": 1}', "{}", "", '{"a', "[]", '{"a": NaN}', ' {"\ud83d": 1}']) | JUNK
NAME = st.sampled_from(["bash", "read_file", "a b", "", "x" * 70]) | JUNK
CALL = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "id": ID,
            "type": st.just("function") | JUNK,
            "function": st.fixed_dictionaries({}, optional={"name": NAME, "arguments": RAW}) | JUNK,
            "extra": JUNK,
        },
    ),
    JUNK,
)
CALLS = st.lists(CALL, max_size=3) | JUNK
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": CONTENT}),
    st.fixed_dictionaries(
        {"role": st.just("assistant")}, optional={"content": CONTENT, "tool_calls": CALLS, "more": JUNK}
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": ID}, optional={"content": CONTENT}),
)
SYSTEM = st.lists(st.just({"role": "system", "content": "s"}), max_size=1)
VIEW = st.builds(lambda first, rest: first + rest, SYSTEM, st.lists(MESSAGE, max_size=12))


def broken_rules(sent: list[Message]) -> list[str]:
    """Every rule of strict providers that `sent` breaks."""
    faults = unpaired(sent)
    roles = [message["role"] for message in sent if message["role"] != "system"]
    if roles and roles[0] != "user":
        faults.append("starts with the assistant")
    for at, message in enumerate(sent):
        faults += [f"message {at}: {fault}" for fault in _broken_rules(message)]
    json.dumps(sent, ensure_ascii=False, allow_nan=True).encode()
    return faults


def _broken_rules(message: Message) -> list[str]:
    faults = []
    content, calls = message.get("content"), message.get("tool_calls")
    if "tool_calls" in message and not calls:
        faults.append("empty tool_calls")
    if isinstance(content, str) and not content.strip():
        faults.append("blank text")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if not content or not all(isinstance(text, str) and text.strip() for text in texts):
            faults.append("blank part")
    if not isinstance(content, str | list) and not calls:
        faults.append("no content")
    for each in calls or []:
        function = each["function"]
        if each["type"] != "function" or not re.fullmatch("[a-zA-Z0-9_-]{1,64}", function["name"]):
            faults.append("illegal name or type")
        if not isinstance(each["id"], str) or not isinstance(json.loads(function["arguments"]), dict):
            faults.append("bad id or arguments")
    return faults


def test_ids_that_are_no_text_stay_paired_and_unique() -> None:
    broken = [
        {"id": half, "type": "function", "function": {"name": "b", "arguments": "{}"}}
        for half in ("a\ud83d", "a\ud83e")
    ]
    view = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": broken}]
    assert unpaired(repair(view)) == []
    assert len({made["id"] for made in repair(view)[1]["tool_calls"]}) == 2


@settings(max_examples=250, deadline=None)
@given(VIEW)
def test_whatever_the_history_the_repaired_view_breaks_no_rule(view: list[Message]) -> None:
    before = copy.deepcopy(view)
    sent = repair(view)
    assert broken_rules(sent) == []
    assert view == before


@settings(max_examples=100, deadline=None)
@given(VIEW)
def test_repairing_twice_changes_nothing_more(view: list[Message]) -> None:
    once = repair(view)
    twice = repair(once)
    assert twice == once
    assert all(a is b for a, b in zip(once, twice, strict=True))


GOOD_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda text: not text.isspace())
GOOD_CALLS = st.lists(
    st.tuples(GOOD_TEXT, st.sampled_from(["bash", "grep"]), st.dictionaries(GOOD_TEXT, GOOD_TEXT, max_size=2)),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each[0],
)


@st.composite
def healthy_views(draw: st.DrawFn) -> list[Message]:
    view = [user(draw(GOOD_TEXT))]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["user", "text", "calls"]))
        if kind == "user":
            view.append(user(draw(GOOD_TEXT | st.just([IMAGE]))))
        elif kind == "text":
            view.append(assistant(content=draw(GOOD_TEXT), reasoning_content=draw(GOOD_TEXT)))
        else:
            calls = draw(GOOD_CALLS)
            content = draw(st.none() | GOOD_TEXT)
            view.append(assistant(*(call(id, name, json.dumps(args)) for id, name, args in calls), content=content))
            view += [result(id, draw(GOOD_TEXT)) for id, _, _ in calls]
    return view


@settings(max_examples=100, deadline=None)
@given(healthy_views(), st.data())
def test_a_healthy_view_is_untouched_and_keeps_every_result_at_every_cut(
    view: list[Message], data: st.DataObject
) -> None:
    assert unpaired(view) == []
    assert all(a is b for a, b in zip(repair(view), view, strict=True))
    cut = data.draw(st.integers(0, len(view)))
    assert broken_rules(repair(view[cut:])) == []
    sent = repair(view[:cut])
    assert broken_rules(sent) == []
    assert [message for message in sent if message.get("content") != NO_RESULT] == view[:cut]


# -- small things


def test_reply_and_call_give_text_and_arguments() -> None:
    reply = Reply({"role": "assistant", "content": "hello"})
    assert reply.content == "hello"
    assert ToolCall("a", "bash", '{"x": 1}').arguments == {"x": 1}
    assert parse_arguments("  ") == {}
    assert text_of(user([{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}])) == "ab"
    assert text_of(assistant(call())) == ""


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"a": 1', "at character 7 of 7"),
        ("[1, 2]", "must be a JSON object, not list"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1}{"b": 2}', "Extra data at character 8"),
        ('{"a": NaN}', "NaN"),
        ('{"a": ' + "1" * 5000 + "}", "digits"),
    ],
)
def test_bad_arguments_are_refused_with_the_place(raw: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_arguments(raw)


@given(VIEW, st.data())
def test_repairing_a_changing_view_gives_what_repairing_it_afresh_gives(
    pool: list[Message], data: st.DataObject
) -> None:
    incremental = Repairer()
    view: list[Message] = []
    for _ in range(6):
        kept = data.draw(st.integers(0, len(view)))
        view = view[:kept] + data.draw(st.lists(st.sampled_from(pool), max_size=5) if pool else st.just([]))
        assert incremental(view) == repair(view)
