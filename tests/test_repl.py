"""The REPL in a real pseudo-terminal: keys in, screen out, the terminal as it was afterwards."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from server import D, Pause, StrictServer, Text, call, sse

from corecoder.events import Question
from corecoder.repl import LineReader, choices_words, meant

pexpect = pytest.importorskip("pexpect")
termios = pytest.importorskip("termios")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")

LONG = 45  # seconds: only reached where something hangs
CTRL_C, CTRL_D, ENTER, ALT_ENTER, CTRL_J, UP = "\x03", "\x04", "\r", "\x1b\r", "\n", "\x1b[A"


class Terminal:
    """`corecoder` in a pseudo-terminal of 100 columns, its output fed to a terminal emulator."""

    def __init__(self, server: StrictServer, *argv: str, term: str = "xterm") -> None:
        environ = {
            **os.environ,
            "CORECODER_BASE_URL": server.base_url,
            "CORECODER_API_KEY": "key",
            "CORECODER_MODEL": "scripted",
            "TERM": term,
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "PYTHONWARNINGS": "error",
        }
        self.raw = ""
        self.screen = pyte.Screen(100, 60)
        self._stream = pyte.Stream(self.screen)
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "corecoder", *argv],
            env=environ,
            dimensions=(60, 100),
            encoding="utf-8",
            timeout=LONG,
        )

    @property
    def text(self) -> str:
        """What stands on the screen."""
        self._read(0)
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def _read(self, timeout: float) -> bool:
        """Takes in what has come, waiting for it at most `timeout` seconds; whether there was anything."""
        try:
            piece = self.child.read_nonblocking(1 << 16, timeout=timeout)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        self.raw += piece
        self._stream.feed(piece)
        return True

    def until(self, holds: Callable[[str], object]) -> str:
        """Waits until the screen is as wanted; gives it."""
        end = time.monotonic() + LONG
        while not holds(self.text):
            assert time.monotonic() < end, f"never came; the screen is\n{self.text}"
            self._read(0.05)
        return self.text

    def shows(self, *words: str) -> str:
        return self.until(lambda text: all(word in text for word in words))

    def ready(self, count: int = 1) -> None:
        """Waits for the prompt below everything else, the `count`th one."""
        self.until(lambda text: text.count("›") >= count and text.splitlines()[-1].startswith("›"))

    def type(self, keys: str) -> None:
        self.child.send(keys)

    def end(self) -> int:
        """Waits for the program to end; gives its exit code."""
        end = time.monotonic() + LONG
        while self.child.isalive():
            assert time.monotonic() < end, f"did not end; the screen is\n{self.text}"
            self._read(0.05)
        while self._read(0):
            pass
        assert "Traceback" not in self.raw
        code = self.child.exitstatus
        assert code is not None, f"killed by signal {self.child.signalstatus}"
        return int(code)


@pytest.fixture
def terminals() -> Iterator[Callable[..., Terminal]]:
    """Starts terminals and ends them after the test."""
    started: list[Terminal] = []

    def start(server: StrictServer, *argv: str, term: str = "xterm") -> Terminal:
        started.append(Terminal(server, *argv, term=term))
        return started[-1]

    yield start
    for terminal in started:
        terminal.child.close(force=True)


Start = Callable[..., Terminal]


def test_a_conversation_is_prompts_commands_and_a_way_out(terminals: Start) -> None:
    with StrictServer(Text("Hello, person."), "Again.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("hi" + ENTER)
        terminal.shows("› hi", "Hello, person.")
        terminal.ready(2)
        terminal.type("/help" + ENTER)
        terminal.shows("/compact", "/sessions", "Ctrl+C stops")
        terminal.ready(3)
        terminal.type("/hepl" + ENTER)
        terminal.shows("Did you mean /help?")
        terminal.ready(4)
        terminal.type("/etc/hosts looks wrong" + ENTER)
        terminal.shows("Again.")
        terminal.ready(5)
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        assert server.prompts() == ["hi", "/etc/hosts looks wrong"]
        assert server.faults == []


def test_a_prompt_may_have_several_lines(terminals: Start) -> None:
    with StrictServer("a", "b") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type(f"one{ALT_ENTER}two{CTRL_J}three{ENTER}")
        terminal.shows("› one")
        terminal.ready(2)
        terminal.type(f"\x1b[200~pasted\rin\n  lines\x1b[201~{ENTER}")
        terminal.shows("pasted")
        terminal.ready(3)
        assert server.prompts() == ["one\ntwo\nthree", "pasted\nin\n  lines"]


def test_ctrl_c_stops_the_turn_and_the_next_one_works(terminals: Start, project: Path) -> None:
    with StrictServer(sse(D("thinking about"), Pause(LONG)), "fine", call("bash", command="ls"), "done") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("go" + ENTER)
        terminal.shows("thinking about")
        terminal.type(CTRL_C)
        terminal.shows("stopped")
        terminal.ready(2)
        terminal.type("and now?" + ENTER)
        terminal.shows("fine")
        terminal.ready(3)
        assert server.faults == []
        assert [message["role"] for message in server.requests[1]["messages"]] == [
            "system",
            "user",
            "assistant",
            "user",
        ]


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
        terminal.type("make it" + ENTER)
        terminal.shows("Run this command?", "the-end", "[N]o")
        terminal.type(ENTER)
        terminal.shows("You said no.")
        assert not (project / "made").exists()
        terminal.ready(2)
        terminal.type("please" + ENTER)
        terminal.until(lambda text: text.count("[N]o") == 2)
        terminal.type("y" + ENTER)
        terminal.shows("It is made.")
        assert (project / "made").exists()
        assert server.faults == []


def test_a_question_is_broken_between_words(terminals: Start) -> None:
    command = "pytest && ruff check && ruff format && mypy && git add . && git commit"
    with StrictServer(call("bash", command=command), "Well.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("go" + ENTER)
        text = terminal.shows("session ends)")
        start = text.index("Run this command?")
        assert "\n" in text[start : text.index("session ends)")]
        words = " ".join(line.strip() for line in text[start:].splitlines())
        assert (
            "(always: `pytest …`, `ruff check …`, `ruff format …`, `mypy …`, `git add …` and `git commit …` in this "
            "project, until the session ends)" in words
        )
        terminal.type(ENTER)
        terminal.shows("Well.")


def test_what_was_typed_before_a_question_does_not_answer_it(terminals: Start, project: Path) -> None:
    asks = sse(D("wait "), Pause(1.5), *_calls("touch made"))
    with StrictServer(asks, "You said no.") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("go" + ENTER)
        terminal.shows("wait")
        terminal.type("y" + ENTER + "yes" + ENTER)
        terminal.shows("[N]o")
        time.sleep(0.3)
        assert not (project / "made").exists()
        terminal.type(ENTER)
        terminal.shows("You said no.")
        assert not (project / "made").exists()


def _calls(command: str) -> list[dict[str, object]]:
    function = {"name": "bash", "arguments": f'{{"command": "{command}"}}'}
    made = {"index": 0, "id": "c1", "type": "function", "function": function}
    return [D(tool_calls=[made]), {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


def test_ctrl_c_at_a_question_stops_the_turn(terminals: Start, project: Path) -> None:
    with StrictServer(call("bash", command="touch made"), "later") as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("go" + ENTER)
        terminal.shows("[N]o")
        terminal.type(CTRL_C)
        terminal.shows("stopped")
        terminal.ready(2)
        assert not (project / "made").exists()
        terminal.type("next" + ENTER)
        terminal.shows("later")
        assert server.faults == []


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
            terminal.type("go" + ENTER)
            terminal.shows("working" if when == "in a turn" else "[N]o")
        terminal.child.kill(number)
        assert terminal.end() == 128 + number
        assert termios.tcgetattr(terminal.child.child_fd) == before
        assert terminal.raw.rfind("\x1b[?2004l") >= terminal.raw.rfind("\x1b[?2004h")


def test_control_sequences_of_a_model_do_not_reach_the_terminal(terminals: Start) -> None:
    nasty = "\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[2J\x1b[6n\x9b31m\x1b]x [bold]b[/bold]"
    with StrictServer(Text(nasty, size=3), Text(nasty)) as server:
        terminal = terminals(server)
        terminal.ready()
        terminal.type("go" + ENTER)
        terminal.shows("[bold]b[/bold]")
        assert not re.search("\x1b\\][05]|\x1b\\[2J|\x1b\\[6n|\x07|\x9b", terminal.raw.partition("› go")[2])


def test_history_and_session_are_kept_for_the_project_and_for_its_owner_only(terminals: Start, home: Path) -> None:
    with StrictServer("a", "b") as server:
        first = terminals(server)
        first.ready()
        first.type("remember me" + ENTER)
        first.ready(2)
        first.type("/exit" + ENTER)
        assert first.end() == 0
        [path] = home.glob("sessions/*/history")
        assert path.stat().st_mode & 0o777 == 0o600
        second = terminals(server, "-c")
        second.shows("Going on with session")
        second.ready()
        second.type(UP + UP)
        second.shows("› remember me")
        second.type(ENTER)
        second.ready(2)
        said = [message["content"] for message in server.requests[1]["messages"][1:]]
        assert said == ["remember me", "a", "remember me"]


def test_a_terminal_without_cursor_control_gets_plain_lines(terminals: Start) -> None:
    with StrictServer("plain answer") as server:
        terminal = terminals(server, term="dumb")
        terminal.ready()
        terminal.type("hi\n")
        terminal.shows("plain answer")
        terminal.ready(2)
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        assert "\x1b" not in terminal.raw


CONSENT = Question("1", "consent", "Run?", "rm x", ("no", "yes", "always"))


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("", "no"),
        ("  ", "no"),
        ("n", "no"),
        ("NO", "no"),
        ("y", "yes"),
        ("Yes", "yes"),
        ("a", "always"),
        ("yes please", "no, yes please"),
        ("a better way is mv", "no, a better way is mv"),
        ("use git rm", "no, use git rm"),
    ],
)
def test_only_a_clear_yes_is_one_and_other_words_are_a_no_that_says_why(typed: str, answer: str) -> None:
    assert meant(typed, CONSENT) == answer


def test_a_question_names_its_choices_with_the_default_last() -> None:
    assert choices_words(CONSENT) == "[y]es, [a]lways, [N]o, or no with words for the model: "
    assert meant("blue", Question("1", "ask", "Which?", "", ("red", "green"))) == "blue"


def test_a_signal_while_the_first_line_is_drawn_leaves_no_mode_switched_on(tmp_path: Path) -> None:
    def stop() -> None:  # runs where the handler of a signal would
        raise SystemExit(143)

    written = io.StringIO()
    output = Vt100_Output(written, lambda: Size(rows=24, columns=80), term="xterm", enable_cpr=False)
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        reader = LineReader(tmp_path / "history", stop)
        with pytest.raises(SystemExit):
            reader.read()
    assert written.getvalue().count("\x1b[?2004h") == written.getvalue().count("\x1b[?2004l") == 1


def test_a_signal_while_a_long_history_is_read_shows_no_traceback(terminals: Start, home: Path) -> None:
    with StrictServer("a") as server:
        first = terminals(server)
        first.ready()
        first.type("remember me" + ENTER)
        first.ready(2)
        first.type("/exit" + ENTER)
        assert first.end() == 0
        [path] = home.glob("sessions/*/history")
        path.write_text("\n# 2026-01-01 00:00:00\n+words\n" * 400_000)
        second = terminals(server)
        second.shows("/help shows the commands.")
        second.shows("›")
        second.child.kill(signal.SIGTERM)
        assert second.end() == 143
