"""Slash commands: what is one, what is a prompt, and what each does to a real agent."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corecoder.agent import Agent
from corecoder.app import build_agent
from corecoder.commands import COMMANDS, UnknownCommand
from corecoder.config import load_config
from corecoder.errors import AuthFailed
from corecoder.messages import unpaired
from corecoder.repl import Repl
from corecoder.scripted import ScriptedLLM, call
from corecoder.terminal import Screen, Signals


@pytest.mark.parametrize(
    "line",
    [
        "/etc/hosts looks wrong",
        "/etc is full, why?",
        "/tmp",
        "/usr/bin/env: what is it?",
        "fix the test /help",
        "// a comment",
        "/",
        "/ help",
        "/Help",
        "/42",
        "/dev/null",
        "/home.py is broken",
        "/frobnicate the widget",
        "compact this",
        "/helper.py needs a test",
    ],
)
def test_a_line_that_does_not_begin_with_the_name_of_a_command_is_a_prompt(line: str) -> None:
    assert COMMANDS.parse(line) is None


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/help", "help", ""),
        ("  /help  ", "help", ""),
        ("/compact the parser, not the tests", "compact", "the parser, not the tests"),
        ("/compact --undo", "compact", "--undo"),
        ("/model\topenai/gpt-x", "model", "openai/gpt-x"),
        ("/compact first line\nsecond line", "compact", "first line\nsecond line"),
    ],
)
def test_a_command_is_its_name_and_the_rest_of_the_line(line: str, name: str, argument: str) -> None:
    found = COMMANDS.parse(line)
    assert found is not None
    assert (found[0].name, found[1]) == (name, argument)


@pytest.mark.parametrize(("line", "hint"), [("/hepl", "/help"), ("/compct the parser", "/compact"), ("/zzz", "/help")])
def test_a_typo_is_pointed_out_instead_of_sent_to_the_model(line: str, hint: str) -> None:
    with pytest.raises(UnknownCommand, match=hint):
        COMMANDS.parse(line)


def test_every_command_has_a_name_of_its_own_and_its_docstring_as_help() -> None:
    names = [command.name for command in COMMANDS]
    assert sorted(names) == sorted(set(names))
    wanted = "help model mode plan compact context tokens diff undo rewind sessions resume fork clear export init trust"
    assert names == [*wanted.split(), "jobs", "tools", "config", "exit"]
    for command in COMMANDS:
        assert command.help
        assert command.help[0].isupper()
        assert len(command.summary) <= 60
        assert command.summary.endswith(".")
        assert len(command.call) <= 30


def test_other_names_of_a_command_lead_to_it() -> None:
    for other, name in (("/quit", "exit"), ("/reset", "clear"), ("/new", "clear")):
        found = COMMANDS.parse(other)
        assert found is not None
        assert found[0].name == name


def test_commands_that_only_look_may_run_while_a_turn_is_under_way() -> None:
    looking = {command.name for command in COMMANDS if command.anytime}
    assert looking == {"help", "context", "tokens", "diff", "sessions", "jobs", "tools", "config"}


class Typed:
    """A Reader whose lines are known before; after them comes the end."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def read(self) -> str:
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def ask(self, words: str) -> str:
        return self.read()


def session(*lines: str, replies: Sequence[Any] = (), **settings: Any) -> tuple[str, Agent]:
    """What the screen shows while `lines` are typed to an agent with a scripted model, and the agent."""
    config = load_config({"prompt": None}, cwd=Path.cwd())
    config = replace(config, model="scripted", **settings)
    agent = build_agent(config, directory=Path.cwd(), interactive=True, llm=ScriptedLLM(list(replies)))
    stream = io.StringIO()
    with Signals() as signals:
        repl = Repl(agent, config, {}, Screen(stream, {}), signals, Typed(*lines))
        assert repl.loop() == 0
    assert unpaired(repl.agent.session.view) == []
    return stream.getvalue(), repl.agent


def test_help_lists_every_command_and_explains_one() -> None:
    text, _ = session("/help", "/help compact", "/help /model", "/help nonsense")
    assert all(f"/{command.name}" in text and command.summary in text for command in COMMANDS)
    assert "`--undo` brings back" in text
    assert "no command nonsense" in text


def test_compact_says_what_it_gained_and_can_be_undone(project: Path) -> None:
    (project / "big.txt").write_text("a line of some length\n" * 2000)
    reads = [call("read_file", file_path="big.txt", offset=at * 100 + 1, limit=100) for at in range(20)]
    replies = [[reads[at]] for at in range(20)] + ["Read it all.", "GOAL: read. DONE: all of it."]
    text, agent = session("read it", "/compact what big.txt says", "/compact --undo", replies=replies)
    found = re.search(r"^Compressed: (\d+) -> (\d+) tokens \((\d+) messages?\)$", text, re.MULTILINE)
    assert found, text
    assert int(found[2]) < int(found[1])
    assert "is undone" in text
    assert len(agent.session.view) == 42


def test_undo_shows_what_it_would_do_and_does_it_when_told(project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    replies = [[call("bash", command="echo two > a.txt; echo > b.txt")], "Done."]
    lines = ("change it", "/undo", "/rewind", "", "/rewind 1 --now", "/undo")
    text, agent = session(*lines, replies=replies, mode="yolo")
    note = "  what was changed by hand while a command ran counts as the command's: look for your own\n"
    what = "1 turn from 1 on: change it\n"
    assert f"  restore   a.txt\n  remove    b.txt\n{note}This would take back {what}/undo --now does it.\n" in text
    assert "    1  change it (changed 2 paths: a.txt, b.txt)\n" in text
    assert f"  restored  a.txt\n  removed   b.txt\n{note}Taken back: {what}" in text
    assert "there is no turn to undo" in text
    assert [path.name for path in project.iterdir()] == ["a.txt"]
    assert (project / "a.txt").read_text() == "one\n"
    assert agent.session.view == []


def test_what_undo_leaves_alone_is_said_and_can_be_forced(project: Path) -> None:
    def by_hand(*_: object) -> str:
        (project / "a.txt").write_text("mine\n")
        return "Done."

    (project / "a.txt").write_text("one\n")
    replies = [[call("bash", command="echo two > a.txt")], by_hand]
    lines = ("go", "/undo", "/undo --all", "/rewind x", "/undo --now", "/undo --force")
    text, _ = session(*lines, replies=replies, mode="yolo")
    assert "  leave     a.txt (somebody else changed it as well)" in text
    assert "--force also changes what somebody else changed" in text
    assert "The options are --now, --force, --keep, --files and --words." in text
    assert "Not taken back, as files were left: 1 turn from 1 on: go\n/undo --now tries again; --force also" in text
    assert "Give the number of a turn" in text
    assert "  restored  a.txt" in text
    assert (project / "a.txt").read_text() == "one\n"


def test_compact_with_nothing_to_gain_says_so() -> None:
    text, _ = session("/compact", "/compact --undo", "/compact --foo")
    assert "nothing to compact" in text
    assert "no compaction to undo" in text
    assert "The only option is --undo." in text


def test_context_and_tokens_show_figures() -> None:
    text, _ = session("hi", "/context", "/tokens", replies=["hello"])
    assert re.search(r"system prompt +\d", text)
    assert re.search(r"your prompts +\d", text)
    assert re.search(r"of 112k usable tokens, \d+%, in a window of 128k", text)
    assert "at 70% old conversation summarised" in text
    assert re.search(r"sent +[\d,]+", text)


def test_the_model_can_be_changed_and_a_wrong_one_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    text, agent = session("/model", "/model another", "/model", "/model deepseek/x")
    assert "  * scripted" in text
    assert "  * another" in text
    assert text.count("  another (openai") == 2
    assert "DEEPSEEK_API_KEY" in text
    assert agent.llm.model == "another"


def test_sessions_are_listed_and_clear_starts_a_new_one() -> None:
    text, agent = session("first words", "/clear", "/sessions", "second words", "/sessions", replies=["a", "b"])
    listed = re.findall(
        r"^  (first|second) words\n    (\d{8}-\S+)  \S+ \d\d:\d\d, 2 messages, \d+ KB", text, re.MULTILINE
    )
    assert [words for words, _ in listed] == ["first", "second", "first"]
    assert f"The old one is kept: /resume {listed[0][1]} goes on with it." in text
    assert [message["content"] for message in agent.session.view] == ["second words", "b"]


def test_exit_leaves_and_what_follows_is_not_read() -> None:
    text, _ = session("/exit", "never sent")
    assert "never sent" not in text


def test_an_error_in_a_command_or_a_turn_is_a_line_and_the_loop_goes_on() -> None:
    replies = [AuthFailed("no such key"), "fine"]
    text, _ = session("/zzz", "one", "two", replies=replies)
    assert "error: There is no command /zzz" in text
    assert "no such key" in text
    assert "fine" in text
