"""The loop: one generator of events, one result for each call, and a valid view after every turn."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corecoder.agent import Agent
from corecoder.errors import AuthFailed, ContextOverflow, ServerFailed
from corecoder.events import (
    Event,
    MessageCompleted,
    Notice,
    Question,
    Steered,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    UsageUpdated,
)
from corecoder.messages import Reply, unpaired
from corecoder.permissions import Permissions
from corecoder.scripted import ScriptedLLM, call
from corecoder.session import Session
from corecoder.tokens import estimate_text
from corecoder.tool import Tool, ToolContext, ToolResult, Workspace
from corecoder.tools.write_file import WriteFileTool


class Echo(Tool):
    name = "echo"
    description = "Says what it is given."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    read_only = True

    def execute(self, text: str) -> str:
        return text


class Meet(Tool):
    """Returns only when two calls are under way at once."""

    name = "meet"
    description = "Waits for another one."
    parameters = {"type": "object", "properties": {}}
    read_only = True
    parallel = True

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    def execute(self) -> str:
        self.barrier.wait(10)
        return "met"


class Hang(Tool):
    """Says something, then blocks until it is woken, or for ever if it is deaf."""

    name = "hang"
    description = "Waits."
    parameters = {"type": "object", "properties": {"deaf": {"type": "boolean"}}}
    read_only = True

    def execute(self, ctx: ToolContext, deaf: bool = False) -> str:
        ctx.output("so far")
        if deaf:
            threading.Event().wait(30)
        ctx.token.sleep(30)
        return "never"


class Broken(Tool):
    name = "broken"
    description = "Fails."
    parameters = {"type": "object", "properties": {}}
    read_only = True

    def execute(self) -> str:
        raise ZeroDivisionError("by design")


def agent_with(replies: list[Any], *tools: Tool, mode: str = "yolo", delay: float = 0, **options: Any) -> Agent:
    workspace = Workspace.at(Path.cwd())
    chosen = list(tools) or None
    permissions = Permissions(mode, workspace)
    return Agent(ScriptedLLM(replies, delay=delay), chosen, workspace=workspace, permissions=permissions, **options)


def play(agent: Agent, prompt: str = "go") -> list[Event]:
    events = list(agent.run(prompt))
    check(agent)
    return events


def check(agent: Agent) -> None:
    assert unpaired(agent.session.view) == []


def last(events: list[Event]) -> TurnFinished:
    assert [event for event in events if isinstance(event, TurnFinished)] == [events[-1]]
    end = events[-1]
    assert isinstance(end, TurnFinished)
    return end


def finished(events: list[Event]) -> list[ToolFinished]:
    return [event for event in events if isinstance(event, ToolFinished)]


def test_a_turn_without_calls_is_started_answered_and_finished() -> None:
    agent = agent_with(["Hello there."])
    events = play(agent, "hi")
    assert events[0] == TurnStarted("hi")
    assert events[1] == StepStarted(1)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello there."
    assert any(isinstance(event, UsageUpdated) for event in events)
    assert MessageCompleted("Hello there.", 0) in events
    assert last(events).stop_reason == "end_turn"
    assert last(events).text == "Hello there."
    assert [message["role"] for message in agent.session.view] == ["user", "assistant"]


def test_every_call_has_one_result_in_the_order_of_the_calls() -> None:
    calls = [call("echo", text="one"), call("nothing"), call("broken"), call("echo"), call("echo", text="five")]
    agent = agent_with([calls, "done"], Echo(), Broken())
    events = play(agent)
    contents = [event.content for event in finished(events)]
    assert contents[0] == "one"
    assert "there is no tool 'nothing'" in contents[1]
    assert "echo, broken" in contents[1]
    assert "ZeroDivisionError: by design" in contents[2]
    assert "missing text" in contents[3]
    assert contents[4] == "five"
    assert [message["content"] for message in agent.session.view if message["role"] == "tool"] == contents
    assert last(events).text == "done"


def test_neighbours_that_are_safe_side_by_side_run_together() -> None:
    agent = agent_with([[call("meet"), call("meet")], "done"], Meet())
    assert [event.content for event in finished(play(agent))] == ["met", "met"]


def test_a_call_that_is_not_safe_runs_alone() -> None:
    agent = agent_with([[call("echo", text="a"), call("echo", text="b")], "done"], Echo())
    kinds = [type(event) for event in play(agent) if isinstance(event, ToolStarted | ToolFinished)]
    assert kinds == [ToolStarted, ToolFinished, ToolStarted, ToolFinished]


def test_the_bound_on_steps_ends_the_turn_with_its_results_in_place() -> None:
    agent = agent_with([["Looking.", call("echo", text="x")]] * 5, Echo(), max_steps=3)
    end = last(play(agent))
    assert end.text == ""
    assert (end.stop_reason, end.steps) == ("max_steps", 3)
    assert "--max-steps" in end.error


def test_arguments_that_are_no_object_are_never_run() -> None:
    raw = '{"text": "a'
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "echo", "arguments": raw}}],
    }
    agent = agent_with([lambda *_: _reply(message), "done"], Echo())
    [result] = finished(play(agent))
    assert not result.ok
    assert "text" in result.content
    assert agent.session.view[1]["tool_calls"][0]["function"]["arguments"] == raw
    sent = agent.llm.requests[1]  # type: ignore[attr-defined]
    assert next(m for m in sent if m["role"] == "assistant")["tool_calls"][0]["function"]["arguments"] == "{}"


def test_no_call_of_a_reply_that_was_cut_runs_and_the_bound_ends_it(project: Path) -> None:
    def cut(*_: Any) -> Reply:
        reply = _reply(_calling("write_file", '{"file_path": "a.txt", "content": "half"}'))
        return Reply(reply.message, finish_reason="length", cut=True, tool_calls=reply.tool_calls)

    agent = agent_with([cut, cut, cut, "never"])
    events = play(agent)
    assert all("output limit" in event.content and not event.ok for event in finished(events))
    assert last(events).stop_reason == "max_tokens"
    assert not (project / "a.txt").exists()


def test_a_text_that_was_cut_is_gone_on_with_and_joined() -> None:
    def cut(*_: Any) -> Reply:
        return Reply({"role": "assistant", "content": "one "}, finish_reason="length", cut=True)

    assert last(play(agent_with([cut, "two"]))).text == "one two"


@pytest.mark.parametrize("error", [AuthFailed("wrong key", status=401), ServerFailed("down", status=503)])
def test_a_failing_model_ends_the_turn_with_words(error: Exception) -> None:
    end = last(play(agent_with([error])))
    assert end.stop_reason == "error"
    assert str(error) in end.error
    assert end.retryable == isinstance(error, ServerFailed)


def test_a_bug_in_the_loop_is_not_hidden() -> None:
    agent = agent_with([RuntimeError("bug")])
    with pytest.raises(RuntimeError, match="bug"):
        list(agent.run("go"))
    check(agent)


def test_an_overflow_is_answered_with_a_smaller_request() -> None:
    overflow = ContextOverflow("too long", window=100_000)
    agent = agent_with([overflow, "fits now"])
    assert last(play(agent)).text == "fits now"
    assert agent.context.window == 100_000


def test_an_overflow_that_does_not_end_is_an_error() -> None:
    agent = agent_with([ContextOverflow("too long", window=100_000)] * 10)
    end = last(play(agent))
    assert end.stop_reason == "error"
    assert end.error.startswith("too long. The conversation")
    assert "CORECODER_MAX_CONTEXT" in end.error
    assert len(agent.llm.requests) <= 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("window", [16_000, 20_000])
def test_a_server_that_counts_more_tokens_than_we_and_reports_none_locks_no_session(
    home: Path, project: Path, window: int
) -> None:
    from server import StrictServer
    from server import call as calling

    from corecoder.llm import LLM

    for number in range(20):
        (project / f"f{number}.py").write_text(
            "\n".join(f"def f{number}_{at}(x): return x * {at}" for at in range(120))
        )

    def step(body: dict[str, Any]) -> Any:
        body["stream_options"] = {}
        at = len(server.requests)
        return calling("read_file", file_path=str(project / f"f{at % 20}.py")) if at % 6 else "done"

    def count(body: dict[str, Any]) -> int:
        sent = [*body["messages"], body.get("tools", [])]
        return 2 * sum(estimate_text(json.dumps(each, ensure_ascii=False)) for each in sent)

    with StrictServer(forever=step, window=window, count=count) as server:
        session = Session.create(home, project)
        for _ in range(2):
            with contextlib.closing(Agent(LLM("m", "k", server.base_url, home=home), session=session)) as agent:
                for _ in range(4):
                    assert last(play(agent)).stop_reason == "end_turn"
                assert agent.context.usable < 10_000
            session = Session.load(session.path)
        session.close()


def test_a_window_that_the_client_has_learnt_counts_from_the_next_request_on() -> None:
    agent = agent_with(["one", "two"])
    play(agent)
    agent.llm.info = replace(agent.llm.info, window=64_000)  # type: ignore[misc]
    play(agent)
    assert agent.context.window == 64_000


def test_a_server_that_was_given_a_larger_window_is_asked_before_it_is_called_too_small(home: Path) -> None:
    from server import StrictServer

    from corecoder.llm import LLM

    def end(server: StrictServer) -> TurnFinished:
        agent = Agent(LLM("m", "k", server.base_url, home=home))
        with contextlib.closing(agent):
            return last(play(agent))

    with StrictServer("one", "two", models=[{"id": "m", "meta": {"n_ctx": 4096}}]) as server:
        assert end(server).text == "one"
        assert "too small" in end(server).error
        assert len(server.requests) == 1
        server.models[0]["meta"]["n_ctx"] = 32_768
        assert end(server).text == "two"


def test_a_call_is_judged_as_things_are_when_it_runs(project: Path, tmp_path: Path) -> None:
    """A link that an earlier call of the same reply makes leads no later one out of the project."""

    class Linking(Echo):
        def execute(self, text: str) -> str:
            (project / text).symlink_to(tmp_path / "outside")
            return "linked"

    (tmp_path / "outside").mkdir()
    both = [call("echo", text="d"), call("write_file", file_path="d/escaped", content="x")]
    agent = agent_with([both, "done"], Linking(), WriteFileTool())
    agent.permissions = Permissions("auto", agent.workspace)
    play(agent)
    assert not (tmp_path / "outside" / "escaped").exists()
    assert "outside the project" in [item["content"] for item in agent.session.view if item["role"] == "tool"][1]


def test_a_window_that_a_refusal_taught_never_keeps_a_request_from_being_sent(home: Path) -> None:
    from server import StrictServer, api_error

    from corecoder.llm import LLM

    refusal = api_error("the model is loaded with context length of only 4096 tokens")
    with StrictServer(refusal, refusal, "done") as server:
        for words in (refusal, refusal, "done"):
            with contextlib.closing(Agent(LLM("m", "k", server.base_url, home=home))) as agent:
                end = last(play(agent))
                assert (end.text == words) if words == "done" else ("too small" in end.error and "4096" in end.error)
        assert len(server.requests) == 3


def test_what_a_cancelled_tool_said_is_its_result() -> None:
    agent = agent_with([[call("echo", text="1"), call("hang"), call("echo", text="3")]], Echo(), Hang())
    events, seconds = _cancel_at(agent, lambda event: isinstance(event, ToolStarted) and event.name == "hang")
    assert seconds < 1
    assert last(events).stop_reason == "cancelled"
    one, two, three = [message["content"] for message in agent.session.view if message["role"] == "tool"]
    assert one == "1"
    assert two.startswith("so far\n[interrupted by the user")
    assert three.startswith("Not run")


def test_a_tool_that_does_not_listen_is_left_behind() -> None:
    agent = agent_with([[call("hang", deaf=True)], "next"], Hang())
    _, seconds = _cancel_at(agent, lambda event: isinstance(event, ToolStarted))
    assert seconds < 1
    assert last(play(agent)).text == "next"


def test_text_that_arrived_before_a_cancel_is_kept() -> None:
    agent = agent_with(["A long answer that is never finished. " * 50, "next"], delay=0.01)
    events, _ = _cancel_at(agent, lambda event: isinstance(event, TextDelta) and "never" in event.text)
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert last(events).text == said
    assert agent.session.view[-1]["content"].startswith(said.strip())
    assert last(play(agent)).text == "next"


def test_a_cancel_that_comes_too_late_does_not_end_the_next_turn() -> None:
    agent = agent_with(["one", "two"])
    play(agent)
    agent.cancel()
    assert last(play(agent)).text == "two"


def test_closing_the_generator_cancels_without_a_last_event() -> None:
    agent = agent_with([[call("hang")], "next"], Hang())
    events = agent.run("go")
    for event in events:
        if isinstance(event, ToolStarted):
            break
    events.close()  # type: ignore[attr-defined]
    check(agent)
    assert last(play(agent)).text == "next"


def test_two_turns_at_once_are_refused() -> None:
    agent = agent_with(["one", "two"])
    events = agent.run("go")
    next(events)
    with pytest.raises(RuntimeError, match="already running"):
        agent.run("again")
    assert last(list(events)).text == "one"


def test_steering_reaches_the_model_after_the_tool_round() -> None:
    agent = agent_with([[call("echo", text="x")], "done"], Echo())
    steered = []
    for event in agent.run("go"):
        if isinstance(event, ToolStarted):
            agent.steer("use spaces")
        if isinstance(event, Steered):
            steered.append(event.text)
    check(agent)
    assert steered == ["use spaces"]
    assert [message["role"] for message in agent.session.view] == ["user", "assistant", "tool", "user", "assistant"]
    assert agent.session.view[3]["content"] == "use spaces"


def test_steering_during_the_answer_keeps_the_turn_going() -> None:
    agent = agent_with(["first", "second"])
    for event in agent.run("go"):
        if isinstance(event, StepStarted) and event.step == 1:
            agent.steer("and another thing")
    assert agent.session.view[-1]["content"] == "second"


def test_steering_that_never_reached_the_model_is_given_back() -> None:
    agent = agent_with([[call("hang")]], Hang())

    def steer(event: Event) -> bool:
        if isinstance(event, ToolStarted):
            agent.steer("use spaces")
        return isinstance(event, ToolStarted)

    events, _ = _cancel_at(agent, steer)
    assert last(events).unsent == ("use spaces",)


def test_with_nobody_to_answer_a_question_is_a_no(project: Path) -> None:
    agent = agent_with([[call("bash", command="touch made")], "done"], mode="ask")
    events = play(agent)
    assert any(isinstance(event, Question) for event in events)
    [result] = finished(events)
    assert result.refused
    assert last(events).refused
    assert not (project / "made").exists()


@pytest.mark.parametrize(("answer", "made"), [("yes", True), ("no", False)])
def test_an_answer_decides_whether_the_call_runs(answer: str, made: bool, project: Path) -> None:
    agent = agent_with([[call("bash", command="touch made")], "done"], mode="ask", interactive=True)
    for event in agent.run("go"):
        if isinstance(event, Question):
            assert event.detail == "touch made"
            agent.answer(event.question_id, answer)
    check(agent)
    assert (project / "made").exists() == made


def test_where_somebody_answers_auto_asks_with_the_whole_diff(project: Path) -> None:
    write = call("write_file", file_path="../made", content="x\n")
    agent = agent_with([[write], "done"], WriteFileTool(), mode="auto", interactive=True)
    details = []
    for event in agent.run("go"):
        if isinstance(event, Question):
            details.append(event.detail)
            agent.answer(event.question_id, "no")
    assert [detail.splitlines()[-1] for detail in details] == ["+x"]
    assert not (project.parent / "made").exists()


def test_a_cancel_while_a_question_waits_ends_the_turn() -> None:
    agent = agent_with([[call("bash", command="touch made")], "done"], mode="ask", interactive=True)
    events, seconds = _cancel_at(agent, lambda event: isinstance(event, Question))
    assert seconds < 1
    assert last(events).stop_reason == "cancelled"


def test_pictures_of_a_tool_follow_as_a_user_message() -> None:
    class Picture(Echo):
        def execute(self, text: str) -> ToolResult:  # type: ignore[override]
            return ToolResult(text, images=("data:image/png;base64,AAAA",))

    agent = agent_with([[call("echo", text="a picture")], "seen"], Picture())
    play(agent)
    assert agent.session.view[3]["content"][1]["image_url"]["url"].startswith("data:image/png")


def test_chat_returns_the_answer_and_reports_on_the_way() -> None:
    agent = agent_with([[call("echo", text="x")], "the answer"], Echo())
    tokens: list[str] = []
    tools: list[tuple[str, dict[str, Any]]] = []
    assert agent.chat("go", tokens.append, lambda name, arguments: tools.append((name, arguments))) == "the answer"
    assert "".join(tokens) == "the answer"
    assert tools == [("echo", {"text": "x"})]


def test_two_agents_in_one_process_never_meet(project: Path) -> None:
    (project / "one").mkdir()
    first = agent_with(
        [[call("bash", command="cd one; export WHO=first")], [call("bash", command="pwd; echo $WHO")], ""]
    )
    second = agent_with([[call("bash", command="pwd; echo who:$WHO")], "done"])
    list(first.run("go"))
    [result] = finished(play(second))
    assert str(project / "one") not in result.content
    assert "who:\n" in result.content


def test_a_log_that_cannot_be_written_leaves_a_session_in_memory(home: Path) -> None:
    from corecoder.session import Session

    home.parent.joinpath(".corecoder").write_text("a file where the directory should be")
    agent = agent_with(["fine"], session=Session.create(home, Path.cwd(), system="s"))
    events = play(agent)
    assert last(events).text == "fine"
    assert any(isinstance(event, Notice) and "cannot be resumed" in event.text for event in events)


def test_a_resumed_session_goes_on_where_its_commands_were(home: Path, project: Path) -> None:
    from corecoder.session import Session

    (project / "sub").mkdir()
    session = Session.create(home, project, system="s")
    agent = agent_with([[call("bash", command="cd sub")], "done"], session=session)
    play(agent)
    agent.close()
    resumed = agent_with([[call("bash", command="pwd")], "done"], session=Session.load(session.path))
    [result] = finished(play(resumed, "again"))
    assert str(project / "sub") in result.content
    resumed.close()


def test_the_request_is_a_prefix_of_the_next_one() -> None:
    agent = agent_with([[call("echo", text=str(n))] for n in range(5)] + ["done", "again"], Echo())
    play(agent)
    play(agent, "more")
    requests = agent.llm.requests  # type: ignore[attr-defined]
    for before, after in itertools.pairwise(requests):
        assert after[: len(before)] == before


def _cancel_at(agent: Agent, when: Any) -> tuple[list[Event], float]:
    """The events of a turn that is cancelled at the first event that fits, and the seconds that this took."""
    events: list[Event] = []
    started = time.monotonic()

    def watched() -> Iterator[Event]:
        nonlocal started
        cancelled = False
        for event in agent.run("go"):
            yield event
            if not cancelled and when(event):
                cancelled = True
                threading.Timer(0.05, agent.cancel).start()
                started = time.monotonic()

    events.extend(watched())
    check(agent)
    return events, time.monotonic() - started


def _calling(name: str, raw: str) -> dict[str, Any]:
    function = {"name": name, "arguments": raw}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]}


def _reply(message: dict[str, Any]) -> Reply:
    from corecoder.messages import ToolCall

    calls = [ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]
    return Reply(message, finish_reason="tool_calls", tool_calls=tuple(calls))
