"""The scripted model plays its script with the surface of the real one."""

from __future__ import annotations

import threading

import pytest

from corecoder.errors import Cancelled, ProviderError, ServerFailed
from corecoder.jobs import CancelToken
from corecoder.llm import LLM
from corecoder.messages import Message, Reply
from corecoder.scripted import ScriptedLLM, call

HI: list[Message] = [{"role": "user", "content": "hi"}]


def test_texts_calls_and_lists_of_them_are_replies() -> None:
    llm = ScriptedLLM(["text", call("bash", command="ls"), ["both", call("a"), call("b", x="é")]])
    assert llm.chat(HI).message == {"role": "assistant", "content": "text"}
    assert [(made.name, made.arguments) for made in llm.chat(HI).tool_calls] == [("bash", {"command": "ls"})]
    both = llm.chat(HI)
    assert both.content == "both"
    assert [made.raw for made in both.tool_calls] == ["{}", '{"x": "é"}']
    assert len({made.id for made in both.tool_calls}) == 2
    assert llm.requests == [HI, HI, HI]


def test_exceptions_functions_and_replies_are_played_too() -> None:
    reply = Reply({"role": "assistant", "content": "x"}, finish_reason="length", cut=True)
    llm = ScriptedLLM([ServerFailed("down"), lambda messages, tools: f"{len(messages)} {tools}", reply])
    with pytest.raises(ServerFailed, match="down"):
        llm.chat(HI)
    assert llm.chat(HI, []).content == "1 []"
    assert llm.chat(HI).cut
    with pytest.raises(ProviderError, match="no reply left"):
        llm.chat(HI)


def test_text_is_passed_on_in_pieces_and_usage_is_counted() -> None:
    llm = ScriptedLLM(["a long answer that takes several pieces"])
    pieces: list[str] = []
    reply = llm.chat(HI, on_token=pieces.append)
    assert "".join(pieces) == reply.content
    assert len(pieces) > 1
    assert reply.usage == llm.total
    assert llm.total.prompt > 0


def test_a_cancel_ends_a_slow_script_at_once() -> None:
    token = CancelToken()
    threading.Timer(0.1, token.cancel).start()
    with pytest.raises(Cancelled):
        ScriptedLLM(["word " * 1000], delay=0.05).chat(HI, token=token)


def test_it_has_the_surface_of_the_real_client() -> None:
    public = {name for name in dir(LLM) if not name.startswith("_")} | {"model", "base_url", "total"}
    assert public <= set(dir(ScriptedLLM([])))
