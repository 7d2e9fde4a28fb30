"""Slash commands: what is one, what is a prompt, and what each does to a real agent."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server import StrictServer

from corecoder.agent import Agent
from corecoder.app import build_agent
from corecoder.commands import COMMANDS, UnknownCommand, recap
from corecoder.config import SETTINGS, load_config
from corecoder.errors import AuthFailed
from corecoder.layout import cells
from corecoder.messages import text_of, unpaired
from corecoder.repl import Repl
from corecoder.scripted import ScriptedLLM, call
from corecoder.session import Session
from corecoder.terminal import Screen, Signals
from corecoder.trust import is_trusted
from corecoder.ui import Plain


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


def test_commands_that_look_or_change_the_mode_may_run_while_a_turn_is_under_way() -> None:
    anytime = {command.name for command in COMMANDS if command.anytime}
    assert anytime == {"help", "mode", "context", "tokens", "diff", "sessions", "jobs", "tools", "config"}


class Typed(Plain):
    """Plain lines that are known before; after them comes the end."""

    def __init__(self, screen: Screen, signals: Signals, *lines: str) -> None:
        super().__init__(screen, signals)
        self.lines = list(lines)

    def _input(self, words: str) -> str:
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


class Terminal(io.StringIO):
    """An output that says it is one, so that widths count."""

    def isatty(self) -> bool:
        return True


def console(
    *lines: str, replies: Sequence[Any] = (), terminal: bool = False, **settings: Any
) -> tuple[Repl, io.StringIO]:
    """A REPL to which `lines` will be typed, with a scripted model, and what it writes to."""
    config = load_config({"prompt": None}, cwd=Path.cwd())
    config = replace(config, model="scripted", **settings)
    agent = build_agent(config, directory=Path.cwd(), interactive=True, llm=ScriptedLLM(list(replies)))
    stream = Terminal() if terminal else io.StringIO()
    screen, signals = Screen(stream, {"NO_COLOR": "1"}), Signals()
    return Repl(agent, config, {}, screen, signals, Typed(screen, signals, *lines)), stream


def session(*lines: str, replies: Sequence[Any] = (), **settings: Any) -> tuple[str, Agent]:
    """What the screen shows while `lines` are typed to an agent with a scripted model, and the agent."""
    repl, stream = console(*lines, replies=replies, **settings)
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
    note = "  look for your own: what changed by hand while a command ran is listed too\n"
    what = 'turn 1 ("change it")'
    assert (
        f"  restore   a.txt\n  remove    b.txt\n{note}This takes back {what}: 2 files\n/undo --now does it.\n" in text
    )
    assert "    1  change it (changed 2 files: a.txt, b.txt)\n" in text
    assert f"  restored  a.txt\n  removed   b.txt\n{note}Taken back: {what}, 2 files\n" in text
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
    assert "--force also changes such files" in text
    assert "The options are --now, --force, --keep, --files and --words." in text
    assert 'This takes back turn 1 ("go"): no files, 1 left\n' in text
    assert 'Not taken back, as 1 file had to be left: turn 1 ("go")\n/undo --now tries again; --force also' in text
    assert "Give the number of a turn" in text
    assert "  restored  a.txt" in text
    assert (project / "a.txt").read_text() == "one\n"


def test_what_is_left_is_never_said_to_be_as_before_and_turns_are_named_from_to(project: Path) -> None:
    def by_hand(*_: object) -> str:
        (project / "d/mine").write_text("mine\n")
        (project / "b").write_text("mine\n")
        return "Two."

    replies = [[call("bash", command="mkdir d; echo 1 > d/a; echo 1 > b")], "One.", by_hand]
    lines = ("one", "two", "/undo", "/rewind 1", "/rewind 1 --now --files")
    text, _ = session(*lines, replies=replies, mode="yolo")
    assert 'This takes back turn 2 ("two"): no files\n' in text
    for verb in ("leave", "left"):
        assert f"  {verb:<8}  d (it holds something that may not be the turn's)\n" in text
    assert 'This takes back turns 1 to 2 (from "one" on): 1 file, 2 left\n' in text
    assert "Put back to before turn 1: 1 file, 2 left; the conversation stays\n" in text


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


def test_resume_goes_on_with_the_session_that_is_picked_or_named() -> None:
    lines = ("first words", "/clear", "second words", "/resume", "1", "/resume 2999", "third words")
    text, agent = session(*lines, replies=["a", "b", "c"])
    assert re.search(r"1  first words +\S+ \d\d:\d\d, \d+ KB", text)
    assert "no session of this project starts with '2999'" in text
    assert [message["content"] for message in agent.session.view] == ["first words", "a", "third words", "c"]
    text, _ = session("/resume", "", f"/resume {agent.session.id}", "/sessions", f"/resume {agent.session.id}")
    assert "That is this session." in text
    assert f"{agent.session.id}  " in text.rpartition("/sessions")[2]


def test_without_another_session_there_is_nothing_to_resume_fork_or_export() -> None:
    text, _ = session("/resume", "/fork", "/export", "/sessions", "/clear")
    assert "There is no other session of this project." in text
    assert "nothing on disk to copy" in text
    assert "There is nothing to export yet." in text
    assert "There are no sessions of this project yet." in text
    assert "The old one is kept" not in text


def test_wide_first_words_fit_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = ("修复解析器" * 40, "/sessions", "/context", "/clear", "/resume", "")
    repl, stream = console(*lines, replies=["好的" * 90], terminal=True)
    repl.loop()
    shown = stream.getvalue().rpartition("1 step")[2].splitlines()
    assert any("修复" in line for line in shown)
    assert [line for line in shown if cells(line) > 80] == []


def test_a_fork_goes_on_in_a_copy_and_the_first_session_stays_as_it_is() -> None:
    text, agent = session("one", "/fork", "two", replies=["a", "b"])
    found = re.search(r"This is a copy now, (\S+)\. /resume (\S+) goes back", text)
    assert found, text
    assert agent.session.id == found[1]
    text, agent = session(f"/resume {found[2]}", "three", replies=["c"])
    assert "in use elsewhere" not in text
    assert [message["content"] for message in agent.session.view] == ["one", "a", "three", "c"]


def test_a_recap_shows_the_last_prompt_and_the_end_of_the_last_answer(home: Path, project: Path) -> None:
    answer = "\n".join(f"line {at}" for at in range(50)) + "\n\n```\n\x1b[31mcode\n```"
    _, agent = session("first prompt", "second prompt\n" + "more\n" * 20, replies=["nothing", answer])
    stream = io.StringIO()
    again = Session.load(agent.session.path)
    recap(again, Screen(stream, {}))
    assert stream.getvalue() == (
        "› second prompt\n  more\n  more\n  …\n  …\n  line 47\n  line 48\n  line 49\n  ```\n  code\n  ```\n"
    )
    recap(Session.in_memory(), Screen(stream, {}))
    again.close()


def test_two_terminals_on_one_session_do_not_mix(home: Path, project: Path) -> None:
    with StrictServer(forever="Answer.") as server:
        run = [sys.executable, "-m", "corecoder", "--base-url", server.base_url, "-m", "m", "--api-key", "k"]
        subprocess.run([*run, "-p", "seed", "--no-stdin"], check=True, capture_output=True, timeout=60)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        both = [subprocess.Popen([*run, "-c", "-p", f"from {name}"], text=True, **pipes) for name in ("one", "two")]
        for each in both:  # each waits for its pipe to end, with the session open
            assert each.stdin is not None
            each.stdin.write("x")
        while len({info.id for info in Session.listing(home, project)}) < 2:
            assert all(each.poll() is None for each in both)
            time.sleep(0.05)
        for each in both:
            _, errors = each.communicate(timeout=60)
            assert each.returncode == 0, errors
    assert server.faults == []
    said = []
    for info in Session.listing(home, project):
        each = Session.load(info.path)
        said.append([text_of(message) for message in each.view])
        each.close()
    assert sorted(said) == [["seed", "Answer.", f"from {name}\n\nx", "Answer."] for name in ("one", "two")]


def test_export_writes_a_new_file_and_never_over_another(project: Path) -> None:
    (project / "notes.md").write_text("mine")
    (project / "docs").mkdir()
    lines = ("hello", "/export", "/export", "/export notes.md", "/export docs", "/export gone/x.md")
    text, agent = session(*lines, replies=["world"])
    path = project / f"corecoder-{agent.session.id}.md"
    assert "> hello" in path.read_text()
    assert f"Written to {path}, 1 KB" in text
    assert f"{path} exists and was left as it is" in text
    assert (project / "notes.md").read_text() == "mine"
    assert (project / "docs" / path.name).exists()
    assert "gone/x.md cannot be written: No such file" in text


def test_diff_shows_what_the_session_changed_bounded_and_one_file_whole(project: Path) -> None:
    (project / "a.txt").write_text("".join(f"{at}\n" for at in range(500)))
    replies = [[call("bash", command="seq 1000 1400 > a.txt; echo new > b.txt")], "Done."]
    text, _ = session("/diff", "go", "/diff", "/diff a.txt", "/diff c.txt", replies=replies, mode="yolo")
    first, _, whole = text.partition("2 files, +402 -500")
    assert "Nothing has changed in this session." in first
    assert "a.txt: changed, +401 -500" in first
    assert re.search(r"… \d+ lines of this diff hidden", first)
    assert "+new" in first
    assert "+1400" not in first
    assert "/diff FILE shows" in whole
    assert "-499" in whole
    assert "+1400" in whole
    assert "c.txt has not changed" in whole


def test_words_or_files_alone_go_back_and_the_model_is_told_of_files(project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    replies = [[call("bash", command="echo two > a.txt")], "Done.", "I see."]
    lines = ("change it", "/rewind 1 --files", "well?", "/rewind 1 --files --words", "/undo --words")
    text, agent = session(*lines, replies=replies, mode="yolo")
    assert "Put back to before turn 1: 1 file; the conversation stays\n" in text
    assert "The options are" in text
    assert 'Taken back: turn 2 ("well?"); the files stay\n' in text
    assert (project / "a.txt").read_text() == "one\n"
    assert [message["role"] for message in agent.session.view] == ["user", "assistant", "tool", "assistant", "user"]
    told = "[CoreCoder: the user has put files back to how they were before turn 1: a.txt]"
    assert agent.session.view[-1]["content"] == told


def test_rewind_asks_for_a_turn_and_for_what_is_to_go_back(project: Path) -> None:
    replies = [[call("bash", command="echo one > a.txt")], "a", [call("bash", command="echo two > b.txt")], "b"]
    text, agent = session("one", "two", "/rewind", "2", "", "/rewind", "2", "2", replies=replies, mode="yolo")
    assert text.count('This takes back turn 2 ("two"): 1 file\n') == 2
    assert text.count('Taken back: turn 2 ("two"), 1 file\n') == 1
    assert [path.name for path in project.iterdir()] == ["a.txt"]
    assert len(agent.session.turns) == 1


def test_jobs_are_listed_and_ended_and_the_model_still_hears_of_it() -> None:
    replies = [
        [call("bash", command="echo started; sleep 600", background=True)],
        "Runs.",
        [call("bash", command="true")],
        "ok",
    ]
    lines = ("/jobs", "start", "/jobs", "/jobs stop 7", "/jobs stop 1", "/jobs stop 1", "/jobs", "go on")
    text, agent = session(*lines, replies=replies, mode="yolo")
    assert "Nothing runs in the background." in text
    assert re.search(r"  1  echo started; sleep 600\n      pid \d+, for \d+ s; output: \S+\.txt", text)
    assert "Say /jobs stop N" in text
    assert "Job 1 is ended: echo started; sleep 600" in text
    assert "Job 1 has ended already." in text
    assert "      has ended; output:" in text
    assert "background job 1 has ended" in text_of(agent.session.view[-2])


def test_tools_are_listed_with_what_their_schemas_take() -> None:
    text, agent = session("/tools")
    assert all(re.search(rf"^  {tool.name} +\d+  \S", text, re.MULTILINE) for tool in agent.tools)
    assert re.search(rf"{len(agent.tools)} tools, about \S+ tokens of every request", text)


def test_config_shows_every_setting_with_its_source_and_no_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "config.toml").write_text("max_steps = 77\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    text, _ = session("/config", "/config tail", "/config nonsense", "/mode plan", "/config mode")
    assert all(re.search(rf"^  {item.name} +\S.* +\(.+\)$", text, re.MULTILINE) for item in SETTINGS)
    assert f"77  (max_steps in {home / 'config.toml'})" in text
    assert "set, not shown  (OPENAI_API_KEY in the environment)" in text
    assert "sk-secret" not in text
    assert "accepted: a fraction" in text
    assert "There is no setting nonsense." in text
    assert "plan  (by /mode; at the start ask, default)" in text


def test_the_mode_is_shown_and_changed() -> None:
    text, agent = session("/mode", "/mode auto", "/mode", "/mode wild")
    assert "  * ask " in text
    assert "  * auto " in text
    assert "There is no mode wild. The modes are ask, auto, plan, yolo." in text
    assert agent.mode == "auto"


def test_plan_goes_to_plan_mode_and_takes_the_prompt_along() -> None:
    text, agent = session("/plan", "/plan tidy the tests", replies=["A plan."])
    assert "Plan mode: nothing will be changed" in text
    assert agent.mode == "plan"
    assert text_of(agent.session.message(agent.session.turns[0][1])) == "tidy the tests"


def test_init_asks_the_model_for_notes_and_to_keep_those_that_there_are(project: Path) -> None:
    _, agent = session("/init", replies=["Done."])
    assert "write AGENTS.md in its top directory" in agent.session.view[0]["content"]
    assert "exists: read it first" not in agent.session.view[0]["content"]
    (project / "AGENTS.md").write_text("mine")
    _, agent = session("/init", replies=["Done."])
    assert "AGENTS.md exists: read it first, keep what it says" in agent.session.view[0]["content"]


def test_trust_shows_what_would_count_and_asks(home: Path, project: Path) -> None:
    text, _ = session("/trust", "/trust --all")
    assert "This project has no settings of its own" in text
    assert "The only option is --undo." in text
    (project / ".corecoder").mkdir()
    (project / ".corecoder" / "config.toml").write_text('tail = 0.3\nmode = "yolo"\n')
    text, _ = session("/trust", "1")
    assert re.search(r"  tail +0\.3  \(now: 0\.2\)", text)
    assert "mode in " in text
    assert "Nothing has changed." in text
    assert not is_trusted(home, project)
    text, _ = session("/trust", "2")
    assert is_trusted(home, project)
    text, _ = session("/trust --undo")
    assert not is_trusted(home, project)


def test_what_can_be_completed_says_what_it_is(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key")
    home.mkdir()
    listed = {"names": ["gpt-listed", 7], "window": 9}
    (home / "models.json").write_text(json.dumps({"default gpt-used": {"listed": listed}, "x": 1, "default y": None}))
    repl, _ = console("hello", replies=[[call("bash", command="echo > a.txt")], "hi"], mode="yolo")
    repl.loop()

    def choices(name: str) -> dict[str, str]:
        command = COMMANDS.get(name)
        assert command is not None
        assert command.choices is not None
        return dict(command.choices(repl))

    models = choices("model")
    assert next(iter(models.items())) == ("scripted", "openai, in use")
    assert {"gpt-used", "gpt-listed", "gpt-5.5", "deepseek/deepseek-chat"} <= set(models)
    assert models["deepseek/deepseek-chat"] == "deepseek, its default"
    assert set(choices("mode")) == {"ask", "auto", "plan", "yolo"}
    assert choices("rewind") == {"1": "hello"}
    assert choices("diff") == {"a.txt": "a file that changed"}
    assert choices("help")["undo"] == "Takes the last turn back, files and talk."
    assert choices("resume") == choices("jobs") == {}
    assert choices("config")["tail"].startswith("share of the room")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_context_fits_the_terminal_with_its_three_marks(
    width: int, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    (project / "a.txt").write_text("x y z " * 3000)
    repl, stream = console("read", "/context", replies=[[call("bash", command="cat a.txt")], "ok"], terminal=True)
    repl.loop()
    drawn = stream.getvalue().rpartition("usable tokens")[2].splitlines()
    assert all(len(line) <= width for line in drawn)
    bar, below = drawn[1], drawn[2]
    assert re.fullmatch(r"  #+·+\|·+\|·+\|·+", bar)
    for mark in re.finditer(r"\|", bar):
        assert below[: mark.end()].endswith("%")
    assert any(re.match(r" +\S+ +#\d+  bash cat a.txt", line) for line in drawn)


def test_exit_leaves_and_what_follows_is_not_read() -> None:
    text, _ = session("/exit", "never sent")
    assert "never sent" not in text


def test_an_error_in_a_command_or_a_turn_is_a_line_and_the_loop_goes_on() -> None:
    replies = [AuthFailed("no such key"), "fine"]
    text, _ = session("/zzz", "one", "two", replies=replies)
    assert "error: There is no command /zzz" in text
    assert "no such key" in text
    assert "fine" in text


def test_what_cannot_be_found_out_is_not_completed(home: Path, project: Path) -> None:
    repl, _ = console("hello", replies=[[call("bash", command="echo > a.txt")], "hi"], mode="yolo")
    repl.loop()
    command = COMMANDS.get("diff")
    assert command is not None
    assert command.choices is not None
    [kept] = (home / "checkpoints").glob("*/files-1.sqlite")
    kept.unlink()
    kept.mkdir()
    assert list(command.choices(repl)) == []
