"""The REPL in a real pseudo-terminal: keys in, screen out, the terminal as it was afterwards."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import D, HTTPError, Pause, StrictServer, Text, call, sse
from terminals import (
    ALT_ENTER,
    BACKSPACE,
    CTRL_C,
    CTRL_D,
    CTRL_E,
    CTRL_J,
    CTRL_O,
    CTRL_R,
    CTRL_X,
    CTRL_Z,
    DOWN,
    ENTER,
    ESC,
    LONG,
    SHIFT_TAB,
    UP,
    Start,
    Terminal,
    environment,
    starting,
)

from corecoder.events import Question
from corecoder.repl import choices_words, keys_of

termios = pytest.importorskip("termios")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")

CONSENT = Question("1", "consent", "Run?", "rm x", ("no", "yes", "always", "edit"), "it removes x")


@pytest.fixture
def terminals() -> Iterator[Start]:
    with starting() as start:
        yield start


def test_a_conversation_is_prompts_commands_and_a_way_out(terminals: Start) -> None:
    with StrictServer(Text("Hello, person."), "Again.") as server:
        terminal = terminals(server)
        terminal.ready()
        assert "Hello, person." in terminal.ask("hi")
        assert "› hi" in terminal.text
        text = terminal.ask("/help")
        assert "/compact" in text
        assert "Esc or Ctrl+C stops" in text
        assert "Did you mean /help?" in terminal.ask("/hepl")
        assert "Again." in terminal.ask("/etc/hosts looks wrong")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        assert server.prompts() == ["hi", "/etc/hosts looks wrong"]
        assert server.faults == []


def test_a_prompt_may_have_several_lines(terminals: Start) -> None:
    with StrictServer("a", "b", "c") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type(f"one{ALT_ENTER}two{CTRL_J}three\\{ENTER}")
        terminal.type("four")
        terminal.shows("three\n  four")
        terminal.type(ENTER)
        terminal.shows("a\n")
        terminal.ready()
        terminal.type("\x1b[200~pasted\rin\n  lines\x1b[201~")
        terminal.shows("  lines")
        terminal.type(ENTER)
        terminal.shows("b\n")
        terminal.ready()
        assert server.prompts() == ["one\ntwo\nthree\nfour", "pasted\nin\n  lines"]


@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_key_stops_the_turn_keeps_its_text_and_the_next_one_works(key: str, terminals: Start) -> None:
    with StrictServer(sse(D("thinking about\n\n"), Pause(LONG)), "fine") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("thinking about", "Esc stops")
        terminal.type(key)
        terminal.shows("stopped")
        terminal.ready()
        assert "fine" in terminal.ask("and now?")
        assert server.faults == []
        messages = server.requests[1]["messages"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
        assert messages[2]["content"].startswith("thinking about")


@pytest.mark.parametrize("rest", [ESC, CTRL_C])
def test_words_entered_while_it_works_wait_and_come_back_when_it_is_stopped(rest: str, terminals: Start) -> None:
    with StrictServer(sse(D("working"), Pause(LONG)), "done") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("working")
        terminal.enter("use tabs")
        terminal.shows("queued: use tabs")
        terminal.type(rest)
        terminal.shows("stopped", "› use tabs")
        terminal.type(" please")
        terminal.shows("› use tabs please")
        terminal.type(ENTER)
        terminal.shows("done")
        assert server.prompts()[-1] == "use tabs please"


def test_words_entered_while_it_works_reach_the_model_after_the_tools(terminals: Start) -> None:
    with StrictServer(call("bash", command="echo begin; sleep 2; echo end"), "with tabs, then") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("begin", "running bash")
        terminal.enter("use tabs")
        terminal.shows("with tabs, then")
        terminal.ready()
        roles = [message["role"] for message in server.requests[1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "user"]
        assert server.requests[1]["messages"][-1]["content"] == "use tabs"
        assert server.faults == []


def test_a_command_entered_while_it_works_looks_at_once_or_waits_for_the_end(terminals: Start) -> None:
    with StrictServer(
        sse(D("working"), Pause(3), D(" done."), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    ) as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("working")
        terminal.enter("/tokens")
        terminal.shows("received", "Esc stops")
        terminal.enter("/clear")
        terminal.shows("runs when the turn has ended")
        terminal.shows("A new session")
        terminal.ready()


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(terminals: Start) -> None:
    with StrictServer() as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("half a thou")
        terminal.shows("half a thou")
        terminal.type(CTRL_C)
        terminal.until(lambda text: "half a thou" not in text)
        terminal.type(CTRL_C)
        terminal.shows("Ctrl+C again")
        terminal.type(CTRL_C)
        assert terminal.end() == 0
        assert server.requests == []


def test_a_question_shows_the_whole_command_and_no_is_the_default(terminals: Start, project: Path) -> None:
    command = "touch made && echo " + "x" * 150 + " the-end"
    again = call("bash", command=command)
    with StrictServer(again, "You said no.", again, "It is made.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("make it")
        terminal.asks("Run this command?", "the-end")
        terminal.type(ENTER)
        terminal.shows("You said no.")
        assert not (project / "made").exists()
        terminal.ready()
        terminal.enter("please")
        terminal.asks()
        terminal.type("y")
        terminal.shows("It is made.")
        assert (project / "made").exists()
        assert server.faults == []


def test_a_question_says_why_lets_the_command_be_edited_and_takes_words(terminals: Start, project: Path) -> None:
    again = call("bash", command="touch made")
    with StrictServer(again, "Edited.", again, "I see.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("make it")
        terminal.asks("[?] why")
        terminal.type("?")
        terminal.shows("all else is asked for, and then runs unconfined")
        time.sleep(1)
        terminal.type("e")
        terminal.shows("run instead › touch made")
        terminal.type(BACKSPACE * 4 + "other" + ENTER)
        terminal.shows("Edited.")
        assert [path.name for path in project.iterdir()] == ["other"]
        terminal.ready()
        terminal.enter("again")
        terminal.asks()
        terminal.type("w")
        terminal.shows("no, because ›")
        terminal.type("it is there" + ENTER)
        terminal.shows("I see.")
        assert "no, and: it is there" in server.requests[-1]["messages"][-1]["content"]
        assert server.faults == []


def test_keys_meant_for_the_line_never_answer_a_question(terminals: Start, project: Path) -> None:
    asks = sse(D("wait "), Pause(1.5), *_calls("touch made"))
    with StrictServer(asks, "You said no.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("wait")
        terminal.type("yes, but")
        terminal.shows("A question waits", "› yes, but")
        assert not (project / "made").exists()
        terminal.type(CTRL_C)
        terminal.until(lambda text: "A question waits" not in text)
        time.sleep(1)
        terminal.type("n")
        terminal.shows("You said no.", "› yes, but")
        assert not (project / "made").exists()


@pytest.mark.parametrize("words", ["please use rm", "yes it is fine", "add a test first", "/mode auto"])
def test_words_typed_or_pasted_at_an_open_question_go_to_the_line(words: str, terminals: Start, project: Path) -> None:
    with StrictServer(call("bash", command="touch made"), "You said no.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.asks()
        terminal.type(words)
        terminal.shows("A question waits", f"› {words}")
        terminal.type(CTRL_C)
        terminal.until(lambda text: "A question waits" not in text)
        time.sleep(1)
        terminal.type("\x1b[200~yes\x1b[201~")
        terminal.shows("A question waits", "› yes")
        terminal.type(CTRL_C)
        time.sleep(1)
        terminal.type("n")
        terminal.shows("You said no.")
        assert not (project / "made").exists()


def test_a_key_answers_one_question_and_none_that_has_just_come(terminals: Start, project: Path) -> None:
    calls: list[Any] = [call("bash", command=f"touch {name}") for name in ("one", "two")]
    with StrictServer(calls, "Both asked.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.asks("touch one")
        terminal.type("y")
        terminal.shows("touch two", "[N]o")
        terminal.type("y")
        terminal.shows("A question waits", "› y")
        assert not (project / "two").exists()
        terminal.type(CTRL_C)
        time.sleep(1)
        terminal.type("n")
        terminal.shows("Both asked.")
        assert [path.name for path in project.iterdir()] == ["one"]


def test_escape_at_a_question_stops_the_turn_with_words_in_the_line_too(terminals: Start, project: Path) -> None:
    asks = sse(D("wait "), Pause(1.0), *_calls("touch made"))
    with StrictServer(asks, "later") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("wait")
        terminal.type("also look")
        terminal.shows("A question waits")
        terminal.type(ESC)
        terminal.shows("stopped", "› also look")
        assert not (project / "made").exists()


def test_escape_from_editing_a_command_leads_back_to_the_question(terminals: Start, project: Path) -> None:
    with StrictServer(call("bash", command="touch made"), "Done.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.asks()
        terminal.type("e")
        terminal.shows("run instead › touch made")
        terminal.type(ESC)
        terminal.until(lambda text: "run instead" not in text and "A question waits" not in text and "[N]o" in text)
        time.sleep(1)
        terminal.type("y")
        terminal.shows("Done.")
        assert (project / "made").exists()


def test_bytes_that_look_like_a_mouse_are_ignored(terminals: Start) -> None:
    with StrictServer("still here") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("\x1b[31m\x1b[<0;1m\x1b[M   ")
        assert "still here" in terminal.ask("hello")


def test_ctrl_d_leaves_a_running_turn_only_the_second_time(terminals: Start) -> None:
    with StrictServer(sse(D("working\n\n"), Pause(LONG))) as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("working")
        terminal.type(CTRL_D)
        terminal.shows("Ctrl+D again stops it and leaves")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        assert "goes on from what is kept" in " ".join(terminal.raw.split())


def test_what_commands_leave_running_is_listed(terminals: Start) -> None:
    with StrictServer() as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.ask("!sleep 300 & echo started")
        text = " ".join(terminal.ask("/jobs").split())
        assert re.search(r"Left running by commands, and ended with the session: \d+ sleep", text)


def _calls(command: str) -> list[dict[str, object]]:
    function = {"name": "bash", "arguments": f'{{"command": "{command}"}}'}
    made = {"index": 0, "id": "c1", "type": "function", "function": function}
    return [D(tool_calls=[made]), {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_key_at_a_question_stops_the_turn(key: str, terminals: Start, project: Path) -> None:
    with StrictServer(call("bash", command="touch made"), "later") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.asks()
        terminal.type(key)
        terminal.shows("stopped")
        terminal.ready()
        assert not (project / "made").exists()
        assert "later" in terminal.ask("next")
        assert server.faults == []


def test_shift_tab_goes_through_the_modes(terminals: Start) -> None:
    with StrictServer("x") as server:
        terminal = terminals(server)
        terminal.ready()
        for mode in ("auto", "plan", "ask"):
            terminal.type(SHIFT_TAB)
            terminal.until(lambda text, mode=mode: f" · {mode} · " in text.splitlines()[-1])  # type: ignore[misc]


def test_files_and_commands_of_ones_own_reach_the_model(terminals: Start, project: Path) -> None:
    (project / "notes.txt").write_text("the secret word is plum\n")
    with StrictServer("I see.", "And that.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("look at @no")
        terminal.shows(" notes.txt")
        terminal.type("\t")
        terminal.shows("› look at @notes.txt")
        terminal.type(ENTER)
        terminal.shows("+ notes.txt", "I see.")
        assert "secret word is plum" in server.prompts()[0]
        terminal.ready()
        terminal.enter("!echo shell $((40 + 2)); touch by-me")
        terminal.shows("shell 42")
        terminal.ready()
        assert (project / "by-me").exists()
        assert "And that." in terminal.ask("well?")
        said = [message["content"] for message in server.requests[1]["messages"][-2:]]
        assert "shell 42" in said[0]
        assert said[1] == "well?"
        assert server.faults == []


def test_commands_are_completed_with_their_help(terminals: Start) -> None:
    with StrictServer("x") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("/co")
        terminal.shows("/compact", "Makes room in the context window.", "/context")
        terminal.type("\t\t")
        terminal.until(lambda text: "› /context" in text)
        terminal.type(ENTER)
        terminal.shows("usable tokens")


def test_a_plan_is_accepted_with_a_key_and_goes_on(terminals: Start, project: Path) -> None:
    write = call("write_file", file_path="a.txt", content="a\n")
    with StrictServer(call("propose_plan", plan="# Plan\n1. Write **a.txt**"), write, "Written.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("/plan make a file")
        terminal.shows("Go on with this plan?", "1. Write a.txt", "a[u]to")
        assert " · plan · " in terminal.text
        time.sleep(1)
        terminal.type("u")
        terminal.shows("Written.", " · auto · ")
        assert (project / "a.txt").read_text() == "a\n"
        assert server.faults == []


def test_what_was_folded_is_shown_by_a_key(terminals: Start, project: Path) -> None:
    (project / "many").write_text("".join(f"line {number}\n" for number in range(1, 41)))
    with StrictServer(call("bash", command="cat many"), "Read.") as server:
        terminal = terminals(server)
        terminal.ready()
        assert "line 20\n" not in terminal.ask("go").replace("  ", "")
        assert " lines hidden, Ctrl+O shows them" in " ".join(terminal.text.split())
        terminal.type(CTRL_O)
        terminal.shows("line 20", "line 21")


def test_a_session_is_picked_from_a_list(terminals: Start) -> None:
    with StrictServer("first answer", "second answer", "third answer") as server:
        first = terminals(server)
        first.ready()
        first.ask("the first session")
        first.enter("/clear")
        first.shows("A new session")
        first.ready()
        first.ask("the second session")
        first.type(CTRL_D)
        assert first.end() == 0
        again = terminals(server, "-r")
        again.shows("Go on with which session?", "the first session", "the second session")
        again.type(DOWN + ENTER)
        again.shows("Going on with session", "first answer")
        again.ready()
        assert "third answer" in again.ask("and now?")
        assert server.prompts()[-1] == "and now?"
        assert server.requests[-1]["messages"][1]["content"] == "the first session"


def test_a_key_that_stops_calls_side_by_side_leaves_a_history_that_can_be_sent(terminals: Start) -> None:
    calls: list[Any] = [call("bash", command=command) for command in ("echo 1", "sleep 60", "echo 3")]
    with StrictServer(calls, "fine") as server:
        terminal = terminals(server, "--yes")
        terminal.ready()
        terminal.enter("go")
        terminal.shows("running bash sleep 60")
        terminal.type(ESC)
        terminal.shows("stopped")
        terminal.ready()
        assert "fine" in terminal.ask("and now?")
        assert server.faults == []
        results = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
        assert len(results) == 3
        assert "1" in results[0]
        assert "interrupted" in results[1] + results[2]


def test_markup_from_anywhere_is_text(terminals: Start, project: Path) -> None:
    words = "arr[/] [bold]x[/bold] [/INST] - [x] done"
    error = "error CS1022: ... [/Users/x/App.csproj]"
    (project / "[red]name").write_text("[/]\n")
    steps = [call("bash", command=f"echo '{error}'"), call("read_file", file_path="[red]name")]
    with StrictServer(steps, Text(words, size=5), HTTPError(400, {"error": {"message": words}})) as server:
        terminal = terminals(server)
        terminal.ready()
        text = terminal.ask("say [b]so[/b]")
        for literal in ("› say [b]so[/b]", error, "read [red]name", words):
            assert literal in text
        assert words in terminal.ask("again")


@pytest.mark.parametrize(
    ("number", "when"),
    [
        (signal.SIGTERM, "at the prompt"),
        (signal.SIGHUP, "at the prompt"),
        (signal.SIGHUP, "in a turn"),
        (signal.SIGTERM, "at a question"),
    ],
)
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(number: signal.Signals, when: str, terminals: Start) -> None:
    steps = {"in a turn": sse(D("working"), Pause(LONG)), "at a question": call("bash", command="touch made")}
    with StrictServer(steps.get(when, "unused")) as server:
        terminal = terminals(server)
        before = termios.tcgetattr(terminal.child.child_fd)
        terminal.ready()
        if when != "at the prompt":
            terminal.enter("go")
            terminal.shows("working" if when == "in a turn" else "[N]o")
        terminal.child.kill(number)
        assert terminal.end() == 128 + number
        assert termios.tcgetattr(terminal.child.child_fd) == before
        assert_modes_are_off(terminal)


def assert_modes_are_off(terminal: Terminal) -> None:
    """Bracketed paste off, cursor visible, no synchronised update left open."""
    assert terminal.raw.rfind("\x1b[?2004l") >= terminal.raw.rfind("\x1b[?2004h")
    assert terminal.raw.rfind("\x1b[?25h") >= terminal.raw.rfind("\x1b[?25l")
    assert terminal.raw.count("\x1b[?2026h") == terminal.raw.count("\x1b[?2026l")


def test_a_crash_while_drawing_ends_in_a_line_and_the_terminal_is_as_it_was(
    terminals: Start, tmp_path: Path, home: Path
) -> None:
    """What is drawn fails: a class of the program is broken from outside, by what Python loads at its start."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import corecoder.status\n"
        "def broken(self, width):\n"
        "    if self.used and self.cost is None and self.cached == 0 and self.model: raise ValueError('drawn badly')\n"
        "    return []\n"
        "corecoder.status.Status.parts = broken\n"
    )
    with StrictServer("hi") as server:
        terminal = terminals(server, PYTHONPATH=str(tmp_path / "site"))
        before = termios.tcgetattr(terminal.child.child_fd)
        assert terminal.end() == 1
        assert "internal error: ValueError: drawn badly" in " ".join(terminal.everything.split())
        assert termios.tcgetattr(terminal.child.child_fd) == before
        assert_modes_are_off(terminal)


def test_stopped_and_continued_it_gives_the_terminal_back_and_takes_it_again(terminals: Start) -> None:
    with StrictServer("still here") as server:
        environ = environment(server.base_url, PS1="$ ")
        shell = Terminal("bash", "--norc", "--noediting", "-i", environ=environ)
        try:
            shell.shows("$")
            shell.type(f"{sys.executable} -m corecoder\n")
            shell.ready()
            for stop in (lambda: shell.type(CTRL_Z), lambda: _signal_child(shell, signal.SIGTSTP)):
                stop()
                shell.shows("Stopped")
                assert_modes_are_off(shell)
                shell.type("stty -a | grep -o ' -*icanon'; clear\n")
                shell.until(lambda _text: " icanon" in shell.raw)
                assert " -icanon" not in shell.raw
                shell.type("fg\n")
                shell.until(lambda text: " · " in text.splitlines()[-1])
                shell.type("draft")
                shell.shows("› draft")
                shell.type(BACKSPACE * 5)
                shell.ready()
            assert "still here" in shell.ask("and now?")
            shell.type(CTRL_D)
            shell.shows("$")
        finally:
            shell.child.close(force=True)


def _signal_child(shell: Terminal, number: int) -> None:
    found = subprocess.run(["pgrep", "-P", str(shell.child.pid)], capture_output=True, text=True, check=True)
    os.kill(int(found.stdout.split()[0]), number)


def test_control_sequences_of_a_model_do_not_reach_the_terminal(terminals: Start) -> None:
    nasty = "\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[2J\x1b[6n\x9b31m\x1b]x\n[bold]b[/bold]"
    name = "evil\x1b[2J.txt"
    with StrictServer(Text(nasty, size=3, reasoning=nasty), call("read_file", file_path=name), nasty) as server:
        terminal = terminals(server)
        terminal.ready()
        assert "[bold]b[/bold]" in terminal.ask("go")
        terminal.ask("and again")
        terminal.type(nasty.replace("\x1b", "") + ENTER)
        assert not re.search("\x1b\\][05]|\x1b\\[2J|\x1b\\[6n|\x07|\x9b", terminal.raw.partition("› go")[2])


def test_history_and_session_are_kept_for_the_project_and_for_its_owner_only(terminals: Start, home: Path) -> None:
    with StrictServer("a", "b") as server:
        first = terminals(server)
        first.ready()
        first.ask("remember me")
        first.ask("/tokens")
        first.type("/exit" + ENTER)
        assert first.end() == 0
        [path] = home.glob("sessions/*/history")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        second = terminals(server, "-c")
        second.shows("Going on with session")
        second.ready()
        second.type(UP)
        second.shows("› /exit")
        second.type(CTRL_C)
        second.ready()
        second.type(f"{CTRL_R}ember")
        second.shows("remember me")
        second.type(ENTER)
        second.until(lambda text: text.splitlines()[-2].startswith("› remember me"))
        second.type(ENTER)
        second.shows("b\n")
        second.ready()
        said = [message["content"] for message in server.requests[1]["messages"][1:]]
        assert said == ["remember me", "a", "remember me"]


def test_the_line_can_be_written_in_an_editor_of_ones_own(terminals: Start, tmp_path: Path) -> None:
    script = tmp_path / "ed"
    script.write_text("#!/bin/sh\nprintf ' and more' >> \"$1\"\n")
    script.chmod(0o755)
    with StrictServer("ok") as server:
        terminal = terminals(server, EDITOR=str(script), VISUAL="")
        terminal.ready()
        terminal.type("this")
        terminal.shows("› this")
        terminal.type(CTRL_X + CTRL_E)
        terminal.shows("› this and more")
        terminal.type(ENTER)
        terminal.shows("ok")
        assert server.prompts() == ["this and more"]


@pytest.mark.parametrize(
    ("script", "words"),
    [("printf '\\377x' > \"$1\"", "� x"), ("exit 3", "did not edit the line"), (None, "did not edit the line")],
)
def test_an_editor_that_fails_loses_nothing(script: str | None, words: str, terminals: Start, tmp_path: Path) -> None:
    editor = tmp_path / "ed"
    if script:
        editor.write_text(f"#!/bin/sh\n{script}\n")
        editor.chmod(0o755)
    with StrictServer("ok") as server:
        terminal = terminals(server, EDITOR=str(editor), VISUAL="")
        terminal.ready()
        terminal.type("this")
        terminal.shows("› this")
        terminal.type(CTRL_X + CTRL_E)
        terminal.until(lambda text: words.replace(" ", "") in text.replace(" ", ""))
        if not script or "exit" in script:
            terminal.shows("› this")


def test_what_is_typed_at_once_is_kept_while_the_agent_loads(terminals: Start) -> None:
    with StrictServer("early bird") as server:
        terminal = terminals(server)
        terminal.type("first words" + ENTER)
        terminal.shows("early bird")
        assert server.prompts() == ["first words"]


def test_what_is_printed_is_only_appended(terminals: Start) -> None:
    """A long answer in a small terminal: every line once in the scrollback, in order, whatever was drawn below."""
    words = "".join(f"{number} is a line.\n\n" for number in range(1, 120))
    with StrictServer(Text(words, size=17, delay=0.002)) as server:
        terminal = terminals(server, columns=60, rows=12)
        terminal.ready()
        terminal.enter("count")
        terminal.until(lambda text: "119 is a line." in text and "step" in text)
        lines = [line for line in terminal.everything.splitlines() if line.endswith("is a line.")]
        assert lines == [f"{number} is a line." for number in range(1, 120)]


def test_the_window_may_change_its_size(terminals: Start) -> None:
    with StrictServer(Text("word " * 60, size=5, delay=0.02), "then") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.enter("go")
        terminal.shows("word")
        terminal.child.setwinsize(60, 70)
        terminal.screen.resize(60, 70)
        terminal.until(lambda text: "step" in text)
        assert "then" in terminal.ask("next")


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_it_works_without_colour_and_without_utf_8(more: dict[str, str], terminals: Start) -> None:
    with StrictServer("plain words") as server:
        terminal = terminals(server, **more)
        terminal.until(lambda text: " ask " in text)
        terminal.type("hi" + ENTER)
        terminal.shows("plain words")
        assert ("LC_ALL" in more) == terminal.text.isascii()
        assert "?" not in terminal.text
        if "NO_COLOR" in more:
            assert not re.search(r"\x1b\[[0-9;]*(3[1-7]|38|9[0-7])[;m]", terminal.raw)


def test_a_terminal_without_cursor_control_gets_plain_lines(terminals: Start, project: Path) -> None:
    with StrictServer("plain answer", call("bash", command="touch made"), "made") as server:
        terminal = terminals(server, TERM="dumb")
        terminal.shows("›")
        terminal.type("hi\n")
        terminal.shows("plain answer")
        terminal.until(lambda text: text.count("›") == 2)
        terminal.type("make it\n")
        terminal.shows("[N]o")
        terminal.type("y\n")
        terminal.until(lambda text: (project / "made").exists() and text.endswith("›"))
        terminal.type(CTRL_D)
        assert terminal.end() == 0, terminal.raw
        assert "\x1b" not in terminal.raw


def test_every_choice_has_a_key_of_its_own_and_enter_is_the_first() -> None:
    keys = keys_of(CONSENT)
    assert (keys[""], keys["y"], keys["a"], keys["e"], keys["?"]) == ("no", "yes", "always", "edit", "why")
    assert choices_words(CONSENT, keys) == "[y]es, [a]lways, [e]dit, [N]o, no with [w]ords, [?] why"
    plan = Question("1", "plan", "Go on?", "1. do it", ("no", "ask", "auto", "yolo"))
    assert choices_words(plan, keys_of(plan)) == "[y]es and ask, a[u]to, y[o]lo, [N]o, no with [w]ords"
    assert [keys_of(plan)[key] for key in ("", "n", "y", "u", "o")] == ["no", "no", "ask", "auto", "yolo"]


def test_a_signal_while_a_long_history_is_read_shows_no_traceback(terminals: Start, home: Path) -> None:
    with StrictServer("a") as server:
        first = terminals(server)
        first.ready()
        first.ask("remember me")
        first.type("/exit" + ENTER)
        assert first.end() == 0
        [path] = home.glob("sessions/*/history")
        path.write_text("\n# 2026-01-01 00:00:00\n+words\n" * 400_000)
        second = terminals(server)
        second.shows("/help shows the commands")
        second.child.kill(signal.SIGTERM)
        assert second.end() == 143
