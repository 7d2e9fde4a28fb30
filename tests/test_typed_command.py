"""A command that the person typed after an exclamation mark: it runs as it is, and the model knows of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from server import StrictServer, call

from corecoder.agent import Agent
from corecoder.checkpoints import Checkpoints
from corecoder.context import ContextManager
from corecoder.events import Compacted, Event, Notice, ToolFinished, ToolOutput, ToolStarted, TurnFinished
from corecoder.ledger import Ledger
from corecoder.llm import LLM
from corecoder.messages import repair, unpaired
from corecoder.permissions import Permissions
from corecoder.scripted import ScriptedLLM
from corecoder.scripted import call as scripted
from corecoder.session import Session
from corecoder.tool import Workspace

HEAD = "[CoreCoder: the user ran a command]\n$ "


def agent_with(replies: list[Any], session: Session | None = None, mode: str = "ask", **options: Any) -> Agent:
    workspace = Workspace.at(Path.cwd())
    return Agent(
        ScriptedLLM(replies), workspace=workspace, session=session, permissions=Permissions(mode, workspace), **options
    )


def typed(agent: Agent, command: str) -> list[Event]:
    events = list(agent.shell(command))
    assert unpaired(agent.session.view) == []
    return events


def told(agent: Agent) -> str:
    """The last message of the view."""
    message = agent.session.view[-1]
    assert message["role"] == "user"
    return str(message["content"])


@pytest.mark.parametrize("mode", ["ask", "auto", "plan", "yolo"])
def test_it_runs_unasked_in_every_mode_and_the_model_is_told(mode: str) -> None:
    agent = agent_with(["I see."], mode=mode)
    events = typed(agent, "echo made > new.txt; echo said; exit 3")
    assert [type(event) for event in events] == [ToolStarted, ToolOutput, ToolFinished]
    assert isinstance(events[-1], ToolFinished)
    assert events[-1].content.startswith("said\n[exit code 3")
    assert told(agent).startswith(f"{HEAD}echo made > new.txt; echo said; exit 3\nsaid\n[exit code 3")
    assert Path("new.txt").read_text() == "made\n"
    assert agent.chat("what happened?") == "I see."


def test_directory_and_variables_carry_over_in_both_directions(project: Path) -> None:
    (project / "sub").mkdir()
    agent = agent_with(
        [[scripted("bash", command="cd sub; export MINE=1")], "ok", [scripted("bash", command="pwd")], "ok"],
        mode="yolo",
    )
    agent.chat("go")
    typed(agent, "pwd; echo $MINE; cd ..")
    assert f"{project}/sub\n1\n" in told(agent)
    agent.chat("go")
    assert str(project) in str([m for m in agent.session.view if m["role"] == "tool"][-1]["content"]).splitlines()


def test_a_cancel_ends_it_keeps_what_was_said_and_is_told(project: Path) -> None:
    agent = agent_with(["ok"])
    started = 0.0
    events: list[Event] = []
    for event in agent.shell("echo first; sleep 60; touch never"):
        events.append(event)
        if isinstance(event, ToolOutput):
            started = time.monotonic()
            agent.cancel()
    assert time.monotonic() - started < 30
    assert isinstance(events[-1], ToolFinished)
    assert not events[-1].ok
    assert told(agent).startswith(f"{HEAD}echo first; sleep 60; touch never\nfirst\n")
    assert not (project / "never").exists()
    assert agent.chat("go on") == "ok"


def test_a_closed_generator_leaves_a_view_that_can_be_sent() -> None:
    agent = agent_with(["ok"])
    events = agent.shell("echo begun; sleep 60")
    assert isinstance(next(events), ToolStarted)
    assert isinstance(next(events), ToolOutput)
    events.close()  # type: ignore[attr-defined]
    assert unpaired(agent.session.view) == []
    assert told(agent).startswith(f"{HEAD}echo begun; sleep 60\nbegun\n[interrupted by the user after")
    assert agent.chat("go on") == "ok"


def test_it_does_not_run_beside_a_turn() -> None:
    agent = agent_with(["ok"])
    turn = agent.run("go")
    next(turn)
    with pytest.raises(RuntimeError, match="already running"):
        agent.shell("true")


def test_long_output_is_bounded_and_can_be_recalled(home: Path, project: Path) -> None:
    session = Session.create(home, project)
    agent = agent_with(["ok"], session)
    agent.context.set_window(16_000)
    typed(agent, "seq 20000")
    assert len(told(agent)) < 40_000
    assert "characters" in told(agent)
    assert 'recall("' in told(agent)
    agent.close()


def test_a_log_that_cannot_be_written_is_said(home: Path, project: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the directory should be")
    agent = agent_with(["ok"], Session.create(home, project))
    events = typed(agent, "echo ran")
    assert isinstance(events[-1], Notice)
    assert "The model will not see this command" in events[-1].text
    assert agent.session.view == []


def test_strict_servers_take_a_history_with_such_messages_anywhere(project: Path) -> None:
    script = ["one", [call("bash", command="echo model")], "two", "three"]
    with StrictServer(*script) as server:
        agent = Agent(LLM("scripted", "key", server.base_url), workspace=Workspace.at(project))
        typed(agent, "echo first")
        agent.chat("hello")
        typed(agent, "echo second")
        typed(agent, "echo third")
        agent.chat("again")
        typed(agent, "echo last")
        agent.chat("and again")
        agent.close()
        assert server.faults == []
        last = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"]
        assert [text.startswith(HEAD) for text in last] == [True, False, True, True, False, True, False]


def test_it_survives_compaction_and_resume(home: Path, project: Path) -> None:
    session = Session.create(home, project)
    agent = agent_with(
        [f"answer {number} {'x' * 500}" for number in range(4)] + ["a summary of everything " * 20], session
    )
    typed(agent, "echo at the beginning")
    for number in range(4):
        agent.chat(f"question {number}")
    typed(agent, "echo at the end")
    assert any(isinstance(event, Compacted) for event in agent.compact())
    assert unpaired(agent.session.view) == []
    assert "echo at the end" in told(agent), "what the model has not seen stays whole"
    assert "echo at the beginning" in json.dumps(agent.session.view)
    view = agent.session.view
    agent.close()
    resumed = agent_with(["on"], Session.load(session.path))
    assert resumed.session.view == view
    assert repair(view) == view
    assert resumed.chat("go on") == "on"
    resumed.close()


def test_a_history_of_nothing_else_can_be_compacted_and_resumed(home: Path, project: Path) -> None:
    session = Session.create(home, project)
    agent = agent_with(["on", "summary"], session)
    typed(agent, "seq 3000")
    list(agent.compact())
    assert unpaired(agent.session.view) == []
    agent.close()
    resumed = agent_with(["on"], Session.load(session.path))
    assert resumed.chat("go on") == "on"
    resumed.close()


def test_it_begins_no_turn_and_gives_no_title(home: Path, project: Path) -> None:
    session = Session.create(home, project)
    agent = agent_with(["ok"], session)
    typed(agent, "echo hi")
    assert agent.turns() == []
    assert Session.listing(home, project)[0].title.startswith("[CoreCoder: the user ran a command] $ echo hi")
    agent.chat("the real words")
    agent.close()
    assert Session.listing(home, project)[0].title == "the real words"
    assert [turn.words for turn in agent.turns()] == ["the real words"]


def test_an_undo_of_the_turn_before_takes_it_back(home: Path, project: Path) -> None:
    workspace = Workspace.at(project)
    (project / "a.txt").write_text("before\n")
    session = Session.create(home, project)
    agent = agent_with(["ok", "ok"], session, checkpoints=lambda: Checkpoints(home, workspace))
    typed(agent, "echo early > early.txt")
    agent.chat("one")
    typed(agent, "echo typed > a.txt")
    assert [change.path for change in agent.preview().files] == ["a.txt"]
    agent.rewind()
    assert (project / "a.txt").read_text() == "before\n"
    assert (project / "early.txt").read_text() == "early\n", "no turn had begun"
    assert "early" in told(agent)
    assert len(agent.session.view) == 1
    agent.close()


def test_the_place_is_kept_for_a_resumed_session(home: Path, project: Path) -> None:
    (project / "sub").mkdir()
    session = Session.create(home, project)
    agent = agent_with([], session)
    typed(agent, "cd sub")
    agent.close()
    resumed = agent_with([], Session.load(session.path))
    assert resumed.workspace.cwd == project / "sub"
    resumed.close()


def test_the_facts_do_not_take_it_for_words_of_the_user() -> None:
    ledger = Ledger()
    ledger.observe({"role": "user", "content": f"{HEAD}make test\nfailed"}, 1, "notice")
    assert ledger.words == []
    assert "make test" in ledger.notices[0]


def test_no_turn_is_finished_by_it() -> None:
    assert not [event for event in typed(agent_with([]), "true") if isinstance(event, TurnFinished)]


def test_many_long_ones_before_a_prompt_still_fit_the_window(project: Path) -> None:
    with StrictServer(forever="fine", window=16_000) as server:
        llm = LLM("scripted", "key", server.base_url)
        agent = Agent(llm, workspace=Workspace.at(project), context=ContextManager(16_000))
        for number in range(8):
            typed(agent, f"seq {number} 20000")
        assert agent.chat("what do you see?") == "fine"
        assert unpaired(agent.session.view) == []
        assert "seq 7 20000" in json.dumps(server.requests[-1]["messages"])
        assert "what do you see?" in server.prompts()[-1]
        agent.close()
