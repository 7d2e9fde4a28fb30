"""Plan mode, modes that change while a session runs, and commands that a person changes before they run."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from histories import unrepaired

from corecoder.agent import Agent
from corecoder.app import build_agent
from corecoder.config import load_config
from corecoder.errors import ConfigError
from corecoder.events import Event, ModeChanged, Question, ToolFinished, ToolStarted, TurnFinished
from corecoder.llm import LLM
from corecoder.messages import text_of, unpaired
from corecoder.permissions import Allow, Permissions
from corecoder.plan import ACCEPTED, IS_THE_ANSWER, NOT_NEEDED, PLAN_BEGINS, PLAN_ENDS
from corecoder.scripted import ScriptedLLM, call
from corecoder.session import Session
from corecoder.tool import Workspace
from corecoder.tools.bash import BashTool

PLAN = "# Plan\n1. Write `a.txt`.\n2. Look at it."
PROPOSE = call("propose_plan", plan=PLAN)
WRITE = call("write_file", file_path="a.txt", content="a\n")
Answers = Callable[[Agent, Question], None]


def agent_in(mode: str, replies: list[Any], *, interactive: bool = True, **options: Any) -> Agent:
    workspace = Workspace.at(Path.cwd())
    permissions = Permissions(mode, workspace)
    return Agent(ScriptedLLM(replies), workspace=workspace, permissions=permissions, interactive=interactive, **options)


def play(agent: Agent, answers: Answers | None = None, prompt: str = "go") -> list[Event]:
    """One turn; `answers` are given from another thread, as a front end does."""
    events = []
    for event in agent.run(prompt):
        events.append(event)
        if isinstance(event, Question) and answers:
            thread = threading.Thread(target=answers, args=(agent, event))
            thread.start()
            thread.join()
    assert unpaired(agent.session.view) == []
    assert unrepaired(agent.session.view)
    return events


def saying(*words: str) -> Answers:
    given = list(words)
    return lambda agent, question: agent.answer(question.question_id, given.pop(0))


def kinds(agent: Agent) -> list[tuple[str, str]]:
    """Roles and contents of the view, a call as its name."""
    names = [
        "->" + message["tool_calls"][0]["function"]["name"] if message.get("tool_calls") else text_of(message)
        for message in agent.session.view
    ]
    return [(message["role"], name) for message, name in zip(agent.session.view, names, strict=True)]


def results(events: list[Event]) -> list[ToolFinished]:
    return [event for event in events if isinstance(event, ToolFinished)]


def end(events: list[Event]) -> TurnFinished:
    assert isinstance(events[-1], TurnFinished)
    return events[-1]


# --- the plan and its acceptance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ask", "auto", "yolo"])
def test_an_accepted_plan_is_gone_on_with_in_the_mode_chosen(mode: str, project: Path) -> None:
    agent = agent_in("plan", [PROPOSE, WRITE, "done"])
    events = play(agent, saying(mode, "yes"))
    question = next(event for event in events if isinstance(event, Question))
    assert (question.kind, question.text, question.detail) == ("plan", "Go on with this plan?", PLAN)
    assert question.choices == ("no", "ask", "auto", "yolo")
    assert [event for event in events if isinstance(event, ModeChanged)] == [ModeChanged(mode)]
    assert agent.mode == mode
    assert (project / "a.txt").exists()
    assert kinds(agent)[:6] == [
        ("user", "go"),
        ("user", PLAN_BEGINS),
        ("assistant", "->propose_plan"),
        ("tool", ACCEPTED),
        ("user", PLAN_ENDS),
        ("assistant", "->write_file"),
    ]
    assert not end(events).refused


def test_a_no_stays_in_plan_mode_and_its_words_are_for_the_model(project: Path) -> None:
    agent = agent_in("plan", [PROPOSE, PROPOSE, WRITE, "I wait."])
    events = play(agent, saying("no, use tabs.", "no"))
    first, second, write = results(events)
    assert first.content.startswith("Not accepted: the user said no, and: use tabs. ")
    assert second.content.startswith("Not accepted: the user said no. ")
    assert first.refused
    assert "plan mode is read-only" in write.content
    assert "propose_plan" in write.content
    assert agent.mode == "plan"
    assert kinds(agent).count(("user", PLAN_BEGINS)) == 1
    assert not (project / "a.txt").exists()


def test_a_mere_yes_goes_on_in_the_most_careful_mode() -> None:
    agent = agent_in("plan", [PROPOSE, "done"])
    play(agent, saying("yes"))
    assert agent.mode == "ask"


@pytest.mark.parametrize("reply", [[PROPOSE, WRITE], [WRITE, PROPOSE]])
def test_a_change_beside_the_plan_is_refused_even_if_the_plan_is_accepted(reply: list[Any], project: Path) -> None:
    agent = agent_in("plan", [reply, "done"])
    events = play(agent, saying("yolo"))
    assert {event.name: event.ok for event in results(events)} == {"propose_plan": True, "write_file": False}
    assert not (project / "a.txt").exists()
    assert agent.mode == "yolo"
    switched = events.index(ModeChanged("yolo"))
    assert all(events.index(event) < switched for event in results(events))


def test_a_mode_that_is_set_after_the_plan_was_accepted_stands() -> None:
    agent = agent_in("plan", [[PROPOSE, call("bash", command="echo hi")], "done"])
    for event in agent.run("go"):
        if isinstance(event, Question):
            agent.answer(event.question_id, "yolo")
        if isinstance(event, ToolFinished) and event.name == "propose_plan":
            agent.set_mode("plan")
    assert agent.mode == "plan"


def test_a_cancel_while_the_plan_is_asked_for_leaves_plan_mode_on() -> None:
    agent = agent_in("plan", [PROPOSE, "next"])
    events = play(agent, lambda agent, _question: agent.cancel())
    assert end(events).stop_reason == "cancelled"
    assert agent.mode == "plan"
    assert end(play(agent)).text == "next"


def test_outside_plan_mode_a_plan_needs_no_approval() -> None:
    agent = agent_in("ask", [PROPOSE, "done"])
    events = play(agent)
    assert [event.content for event in results(events)] == [NOT_NEEDED]
    assert not any(isinstance(event, Question) for event in events)


@pytest.mark.parametrize("mode", ["plan", "auto"])
def test_an_empty_plan_is_an_error_and_asks_nobody(mode: str) -> None:
    events = play(agent_in(mode, [call("propose_plan", plan=" "), "done"]))
    assert [event.content for event in results(events)] == ["Error: the plan is empty"]
    assert not any(isinstance(event, Question) for event in events)


def test_with_nobody_there_the_plan_is_the_answer() -> None:
    agent = agent_in("plan", [PROPOSE, "never asked for", "later"], interactive=False)
    events = play(agent)
    assert (end(events).stop_reason, end(events).text, end(events).refused) == ("end_turn", PLAN, False)
    assert kinds(agent)[-1] == ("tool", IS_THE_ANSWER)
    play(agent, prompt="and now?")
    assert len(agent.llm.requests) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "touch made"},
        {"command": "ls", "background": True},
        {"command": "sleep 60", "background": True},
        {"command": "make", "unconfined": True},
    ],
)
def test_plan_mode_runs_no_command_that_may_change_anything(arguments: dict[str, Any], project: Path) -> None:
    agent = agent_in("plan", [call("bash", command="ls"), call("bash", **arguments), "done"])
    looked, refused = results(play(agent))
    assert looked.ok
    assert refused.refused
    assert list(project.iterdir()) == []


def test_a_resumed_session_knows_the_accepted_plan_when_it_is_compacted(home: Path, project: Path) -> None:
    first = agent_in(
        "plan", [PROPOSE, *["Looked around. " * 400] * 6], session=Session.create(home, project, system="s")
    )
    play(first, saying("auto"))
    for _ in range(5):
        play(first, prompt="go on")
    first.close()
    agent = agent_in("auto", ["never mind"] * 3, session=Session.load(first.session.path))
    with contextlib.closing(agent):
        for _ in range(2):
            list(agent.compact())
            assert f"<accepted_plan>\n{PLAN}\n</accepted_plan>" in text_of(agent.session.view[0])
            play(agent)


def test_a_compaction_in_plan_mode_leaves_it_on_until_the_model_is_told_otherwise() -> None:
    agent = agent_in("plan", ["Looked around. " * 400] * 12)
    for _ in range(6):
        play(agent)
    list(agent.compact())
    assert ("user", PLAN_BEGINS) not in kinds(agent)
    assert "Plan mode:\n- plan mode from here on" in text_of(agent.session.view[0])
    agent.set_mode("ask")
    play(agent)
    assert kinds(agent)[-2] == ("user", PLAN_ENDS)


# --- switching ----------------------------------------------------------------------------------------------------


def test_the_model_is_told_once_when_plan_mode_begins_and_once_when_it_ends() -> None:
    agent = agent_in("ask", ["one", "two", "three", "four", "five"])
    play(agent)
    for mode, told in (("plan", [PLAN_BEGINS]), ("plan", []), ("auto", [PLAN_ENDS]), ("yolo", [])):
        agent.set_mode("ask")
        agent.set_mode(mode)
        before = len(agent.session.view)
        play(agent)
        assert [text_of(message) for message in agent.session.view[before + 1 : -1]] == told
    requests = agent.llm.requests  # type: ignore[attr-defined]
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(requests))


def test_a_mode_that_changes_while_a_turn_runs_counts_from_the_next_call_on(project: Path) -> None:
    look = call("bash", command="ls")
    agent = agent_in("yolo", [[look, WRITE], "done"])
    events = []
    for event in agent.run("go"):
        events.append(event)
        if isinstance(event, ToolStarted) and event.name == "bash":
            thread = threading.Thread(target=agent.set_mode, args=("plan",))
            thread.start()
            thread.join()
    assert [event.refused for event in results(events)] == [False, True]
    assert kinds(agent)[-2:] == [("user", PLAN_BEGINS), ("assistant", "done")]
    assert not (project / "a.txt").exists()


def test_an_unknown_mode_changes_nothing() -> None:
    agent = agent_in("ask", [])
    with pytest.raises(ValueError, match="ask, auto, plan, yolo"):
        agent.set_mode("careless")
    assert agent.mode == "ask"


def test_a_resumed_session_has_the_mode_it_is_started_with_and_tells_the_model(home: Path, project: Path) -> None:
    first = agent_in("plan", ["planned"], session=Session.create(home, project, system="s"))
    play(first)
    first.close()
    for mode, told in (("plan", []), ("ask", [PLAN_ENDS]), ("ask", [])):
        agent = agent_in(mode, ["done"], session=Session.load(first.session.path))
        before = len(agent.session.view)
        play(agent)
        assert [text_of(message) for message in agent.session.view[before + 1 : -1]] == told
        agent.close()


def test_a_notice_that_was_taken_back_with_its_turn_is_given_again() -> None:
    agent = agent_in("plan", ["one", "two"])
    play(agent)
    agent.rewind()
    assert agent.session.view == []
    play(agent)
    assert kinds(agent)[1] == ("user", PLAN_BEGINS)


@pytest.mark.parametrize("mode", ["yolo", "plan", "ask"])
def test_whoever_switches_to_auto_gets_the_sandbox(mode: str, home: Path, project: Path) -> None:
    config = load_config({"mode": mode}, environ={"CORECODER_HOME": str(home)}, cwd=project)
    replies = [call("bash", command="echo hi > ../outside; echo hi > inside"), "done"]
    agent = build_agent(config, directory=project, interactive=True, llm=ScriptedLLM(replies))
    with contextlib.closing(agent):
        if not agent.permissions.confined:
            pytest.skip("no sandbox works here")
        assert ("confines" in agent.permissions.announcement()) == (mode != "yolo")
        agent.set_mode("auto")
        assert "confines" in agent.permissions.announcement()
        events = play(agent)
        assert not any(isinstance(event, Question) for event in events)
    assert (project / "inside").exists()
    assert not (project.parent / "outside").exists()


def test_what_was_to_have_no_network_has_none_in_yolo_either(home: Path, project: Path) -> None:
    config = load_config({"mode": "ask", "offline": True}, environ={"CORECODER_HOME": str(home)}, cwd=project)
    try:
        agent = build_agent(config, directory=project, interactive=True, llm=ScriptedLLM([]))
    except ConfigError as error:
        pytest.skip(str(error))
    with contextlib.closing(agent):
        agent.set_mode("yolo")
        verdict = agent.permissions.judge(BashTool(), {"command": "curl example.com"})
        assert isinstance(verdict, Allow)
        assert verdict.confined


def test_where_no_sandbox_works_a_switch_to_auto_says_so_and_asks_for_commands(project: Path) -> None:
    workspace = Workspace.at(project)
    permissions = Permissions("yolo", workspace, boundary="No sandbox: none is installed.")
    agent = Agent(
        ScriptedLLM([[WRITE, call("bash", command="ls"), call("bash", command="make")], "done"]),
        workspace=workspace,
        permissions=permissions,
        interactive=True,
    )
    assert "No sandbox" not in permissions.announcement()
    agent.set_mode("auto")
    assert "commands that certainly change nothing will run" in permissions.announcement()
    assert permissions.announcement().endswith("No sandbox: none is installed.")
    events = play(agent, saying("no"))
    assert [event.detail for event in events if isinstance(event, Question)] == ["make"]
    assert [event.ok for event in results(events)] == [True, True, False]


def test_a_server_as_strict_as_they_come_takes_a_whole_plan_mode_turn(home: Path, project: Path) -> None:
    from server import StrictServer
    from server import call as calling

    steps = [calling("propose_plan", plan=PLAN), calling("write_file", file_path="a.txt", content="a\n"), "done"]
    with StrictServer(*steps) as server:
        workspace = Workspace.at(project)
        permissions = Permissions("plan", workspace)
        llm = LLM("m", "k", server.base_url, home=home)
        agent = Agent(llm, workspace=workspace, permissions=permissions, interactive=True)
        with contextlib.closing(agent):
            assert end(play(agent, saying("auto"))).text == "done"
        assert server.faults == []
    assert (project / "a.txt").exists()


# --- questions ----------------------------------------------------------------------------------------------------


def why(arguments: dict[str, Any], **options: Any) -> str:
    workspace = Workspace.at(Path.cwd())
    permissions = Permissions("ask", workspace, **options)
    agent = Agent(
        ScriptedLLM([call(arguments.pop("tool", "bash"), **arguments), "done"]),
        workspace=workspace,
        permissions=permissions,
    )
    [question] = [event for event in play(agent) if isinstance(event, Question)]
    return question.why


def test_a_question_says_why_it_is_asked(project: Path) -> None:
    (project / ".env").write_text("KEY=1\n")
    bounds = "Bubblewrap confines commands: they write only in the project"
    leaving = why(
        {"command": "make", "unconfined": True}, confined=True, boundary=f"{bounds}. Left open: unix sockets."
    )
    assert why({"command": "make"}) == "`make` is not known to be harmless"
    assert why({"command": "ls", "background": True}) == "it would go on in the background"
    assert leaving == f"`make` is not known to be harmless; it asks to leave the sandbox ({bounds})"
    assert why({"command": "cat .env"}) == ""  # the question itself says it
    outside = {"tool": "write_file", "file_path": "../x", "content": ""}
    assert why(outside).startswith("it would change a file outside the project")
    assert why({**outside, "file_path": "x", "tool": "write_file"}) == "it would change a file"


def edits(command: str) -> Answers:
    return lambda agent, question: agent.answer(question.question_id, "edit", command)


def test_a_command_that_the_person_changed_runs_instead_and_the_model_is_told_first(project: Path) -> None:
    agent = agent_in("ask", [call("bash", command="touch made"), "done"])
    events = play(agent, edits("touch other\necho hi"))
    assert next(event.choices for event in events if isinstance(event, Question)) == ("no", "yes", "edit")
    [started] = [event for event in events if isinstance(event, ToolStarted)]
    assert started.arguments["command"] == "touch other\necho hi"
    [result] = results(events)
    assert result.content.startswith("[the user changed the command to: touch other\necho hi]\nhi\n[exit code 0")
    assert [path.name for path in project.iterdir()] == ["other"]
    assert agent.session.view[1]["tool_calls"][0]["function"]["arguments"] == '{"command": "touch made"}'


def test_a_command_that_the_person_left_as_it_was_is_not_called_changed() -> None:
    agent = agent_in("ask", [call("bash", command="touch made"), "done"])
    [result] = results(play(agent, edits("touch made")))
    assert result.content.startswith("(no output)")


@pytest.mark.parametrize("command", ["", "  "])
def test_to_edit_without_a_command_is_a_no(command: str, project: Path) -> None:
    agent = agent_in("ask", [call("bash", command="touch made"), "done"])
    [result] = results(play(agent, edits(command)))
    assert result.content == "Not run: the user said no. Do not try it again in another form."
    assert list(project.iterdir()) == []


def test_a_changed_command_is_undone_like_any_other(home: Path, project: Path) -> None:
    """The judgement is that of what ran: the command that was asked for would have changed nothing."""
    (project / ".env").write_text("KEY=1\n")
    (project / "kept.txt").write_text("before\n")
    config = load_config({"mode": "ask"}, environ={"CORECODER_HOME": str(home)}, cwd=project)
    replies = [call("bash", command="cat .env"), "done"]
    agent = build_agent(config, directory=project, interactive=True, llm=ScriptedLLM(replies))
    with contextlib.closing(agent):
        play(agent, edits("echo after > kept.txt"))
        assert (project / "kept.txt").read_text() == "after\n"
        agent.rewind()
        assert (project / "kept.txt").read_text() == "before\n"


def test_plan_mode_lets_nobody_edit_a_command_into_one_that_changes_something(project: Path) -> None:
    (project / ".env").write_text("KEY=1\n")
    agent = agent_in("plan", [call("bash", command="cat .env"), "done"])
    events = play(agent, edits("touch made"))
    assert next(event.choices for event in events if isinstance(event, Question)) == ("no", "yes")
    assert not (project / "made").exists()
