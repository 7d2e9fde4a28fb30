"""Switching the model in the middle of a conversation: the next request is valid and fits, whatever came before."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server import Call, StrictServer, Text, api_error

from corecoder.agent import Agent
from corecoder.app import build_agent
from corecoder.commands import COMMANDS
from corecoder.config import Config, load_config
from corecoder.messages import unpaired
from corecoder.repl import Repl
from corecoder.terminal import Screen, Signals
from corecoder.ui import Plain


def repl_with(agent: Agent, config: Config, flags: dict[str, object]) -> tuple[Repl, io.StringIO]:
    stream, signals = io.StringIO(), Signals()
    screen = Screen(stream, {})
    return Repl(agent, config, flags, screen, signals, Plain(screen, signals)), stream


def repl_at(server: StrictServer, **more: object) -> tuple[Repl, io.StringIO]:
    flags = {"model": "first", "base_url": server.base_url, "api_key": "k", "mode": "yolo", **more}
    config = load_config(flags, cwd=Path.cwd())
    agent = build_agent(config, directory=Path.cwd(), interactive=True)
    return repl_with(agent, config, flags)


def switch(repl: Repl, server: StrictServer, name: str = "second") -> None:
    """`/model name`, as if it were at this server."""
    repl.flags = {**repl.flags, "base_url": server.base_url}
    found = COMMANDS.parse(f"/model {name}")
    assert found is not None
    found[0].run(repl, found[1])
    assert repl.agent.llm.model == name


def reading(project: Path, files: int) -> list[Any]:
    for at in range(files):
        lines = (f"def function_{at}_{line}(value): return value * {line}\n" for line in range(150))
        (project / f"f{at}.py").write_text("".join(lines))
    calls = [[Text("", reasoning=f"Now {at}."), Call("read_file", {"file_path": f"f{at}.py"})] for at in range(files)]
    return [*calls, Text("I have read them.", reasoning="All is read.")]


def test_a_model_with_a_smaller_window_gets_a_request_that_fits_also_where_its_window_is_learnt(project: Path) -> None:
    with StrictServer(*reading(project, 12)) as large, StrictServer(forever="Here I am.", window=16_000) as small:
        repl, _ = repl_at(large)
        assert repl.agent.chat("read all files") == "I have read them."
        fill = repl.agent.context.fill(repl.agent.session.view)
        assert fill > 24_000
        switch(repl, small)
        assert repl.agent.chat("who are you?") == "Here I am."
        assert repl.agent.chat("still there?") == "Here I am."
        assert repl.agent.context.window == 16_000
        assert small.faults == large.faults == []
        assert small.count(small.requests[-1]) <= 16_000
        assert "who are you?" in str(small.requests[-1]["messages"])
        assert unpaired(repl.agent.session.view) == []
        repl.agent.close()


def test_a_window_that_is_known_to_be_smaller_is_said_and_nothing_is_refused(project: Path) -> None:
    with StrictServer(*reading(project, 12)) as large, StrictServer(forever="Here I am.", window=16_000) as small:
        repl, stream = repl_at(large)
        repl.agent.chat("read all files")
        repl.flags = {**repl.flags, "max_context": "16000"}
        switch(repl, small)
        assert "too many for a window of 16k: room is made before the next request" in stream.getvalue()
        assert repl.agent.chat("who are you?") == "Here I am."
        assert all(small.count(body) <= 16_000 for body in small.requests)
        repl.flags = {**repl.flags, "max_context": "4000"}
        switch(repl, small)
        assert "the context window is too small" in stream.getvalue()
        repl.agent.close()


def picky(answer: str, refuses: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], Any]:
    """A step that refuses a request with these words, or answers."""

    def step(body: dict[str, Any]) -> Any:
        words = refuses(body)
        return api_error(words) if words else answer

    return step


def test_reasoning_and_calls_of_the_first_model_do_no_harm_at_a_second_that_wants_other_shapes(project: Path) -> None:
    def refuses(body: dict[str, Any]) -> str:
        for at, message in enumerate(body["messages"]):
            for key in set(message) - {"role", "content", "tool_calls", "tool_call_id", "name"}:
                return f"'messages.{at}' : property '{key}' is unsupported"
            for made in message.get("tool_calls") or []:
                if len(made["id"]) != 9 or not made["id"].isalnum():
                    return f"Tool call id was {made['id']} but must be a-z, A-Z, 0-9, with a length of 9."
        return ""

    with StrictServer(*reading(project, 2)) as first, StrictServer(forever=picky("Fine.", refuses)) as second:
        repl, _ = repl_at(first)
        repl.agent.chat("read both files")
        switch(repl, second)
        assert repl.agent.chat("and now?") == "Fine."
        sent = len(second.requests)
        assert repl.agent.chat("again?") == "Fine."
        assert len(second.requests) == sent + 1  # what was refused is remembered
        assert second.faults == first.faults == []
        assert "function_1_149" in str(second.requests[-1]["messages"])
        repl.agent.close()


def test_going_back_to_the_first_model_and_resuming_keeps_the_conversation_valid(project: Path) -> None:
    with StrictServer(*reading(project, 3), forever="First again.") as first, StrictServer(forever="Second.") as second:
        repl, _ = repl_at(first)
        repl.agent.chat("read the files")
        switch(repl, second)
        repl.agent.chat("you?")
        switch(repl, first, "first")
        assert repl.agent.chat("and you?") == "First again."
        session = repl.agent.session.id
        repl.agent.close()
        again = build_agent(repl.config, directory=project, resume=session)
        assert again.chat("still?") == "First again."
        assert first.faults == second.faults == []
        again.close()


def test_a_bare_name_is_a_model_of_the_provider_that_was_switched_to(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "one")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "two")
    config = load_config({}, cwd=Path.cwd())
    agent = build_agent(config, directory=Path.cwd(), interactive=True)
    repl, _ = repl_with(agent, config, {})
    for name, model, provider, key in (
        ("deepseek/deepseek-chat", "deepseek-chat", "deepseek", "two"),
        ("deepseek-reasoner", "deepseek-reasoner", "deepseek", "two"),
        ("openai/gpt-5.5", "gpt-5.5", "openai", "one"),
        ("gpt-6", "gpt-6", "openai", "one"),
    ):
        found = COMMANDS.parse(f"/model {name}")
        assert found is not None
        found[0].run(repl, found[1])
        assert (agent.llm.model, repl.config.provider, repl.config.api_key) == (model, provider, key)
    agent.close()
