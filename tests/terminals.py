"""CoreCoder in a real pseudo-terminal, its output fed to a terminal emulator: keys in, screen out."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyte
import pytest

pexpect = pytest.importorskip("pexpect")

LONG = 45  # seconds: only reached where something hangs
CTRL_C, CTRL_D, CTRL_J, CTRL_O, CTRL_R, CTRL_X, CTRL_E = "\x03", "\x04", "\n", "\x0f", "\x12", "\x18", "\x05"
ENTER, ALT_ENTER, ESC, TAB, SHIFT_TAB, UP, DOWN = "\r", "\x1b\r", "\x1b", "\t", "\x1b[Z", "\x1b[A", "\x1b[B"
CTRL_Z, BACKSPACE = "\x1a", "\x7f"


class Terminal:
    """A program in a pseudo-terminal. `screen` is what stands on it, `raw` everything that was ever written to it."""

    def __init__(
        self, *argv: str, environ: Mapping[str, str], columns: int = 100, rows: int = 60, **spawn: Any
    ) -> None:
        self.raw = ""
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1)
        self._stream = pyte.Stream(self.screen)
        self.child = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            env=dict(environ),
            dimensions=(rows, columns),
            encoding="utf-8",
            codec_errors="replace",
            timeout=LONG,
            **spawn,
        )
        self.child.delaybeforesend = None

    @property
    def text(self) -> str:
        """What stands on the screen."""
        self.read(0)
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def everything(self) -> str:
        """The screen and what has been scrolled out of it."""
        self.read(0)
        past = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*past, *self.screen.display]).rstrip()

    def read(self, timeout: float) -> bool:
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
            self.read(0.05)
        return self.text

    def shows(self, *words: str) -> str:
        """Waits until all of `words` stand on the screen."""
        return self.until(lambda text: all(word in text for word in words))

    def asks(self, *words: str) -> None:
        """Waits for a question of consent, `words` on the screen too, and until it takes keys."""
        self.shows(*words, "[N]o")
        time.sleep(1)

    def ready(self) -> str:
        """Waits for the empty line, with nothing running and the status line below."""
        return self.until(self._stays_ready)

    def _stays_ready(self, text: str) -> bool:
        """Whether it is so now and a moment later: a screen may be looked at while it is drawn."""
        if not _is_ready(text):
            return False
        self.read(0.05)
        return _is_ready(self.text)

    def type(self, keys: str) -> None:
        """Presses keys."""
        self.child.send(keys)

    def enter(self, line: str) -> None:
        """Types a line, and Enter once it stands there: what comes in one piece with it may be a paste."""
        self.type(line)
        self.until(lambda text: line.split("\n")[-1][-60:].strip() in text)
        self.type(ENTER)

    def ask(self, line: str) -> str:
        """Enters a line and waits for whatever it started to end."""
        self.enter(line)
        self.until(lambda text: f"› {line.splitlines()[-1][-40:]}" in text and self._stays_ready(text))
        return self.text

    def end(self) -> int:
        """Waits for the program to end; gives its exit code."""
        end = time.monotonic() + LONG
        while self.child.isalive():
            assert time.monotonic() < end, f"did not end; the screen is\n{self.text}"
            self.read(0.05)
        while self.read(0):
            pass
        assert "Traceback" not in self.raw, self.raw
        code = self.child.exitstatus
        assert code is not None, f"killed by signal {self.child.signalstatus}"
        return int(code)


def _is_ready(text: str) -> bool:
    lines = text.splitlines()
    idle = len(lines) > 1 and lines[-2].strip() == "›" and " · " in lines[-1]
    return idle and not re.match("[⠀-⣿]", lines[-3] if len(lines) > 2 else "")  # no spinner


def environment(base_url: str, **more: str) -> dict[str, str]:
    """The environment of a terminal whose model stands at `base_url`."""
    return {
        **os.environ,
        "CORECODER_BASE_URL": base_url,
        "CORECODER_API_KEY": "key",
        "CORECODER_MODEL": "scripted",
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "PYTHONWARNINGS": "error",
        **more,
    }


Start = Callable[..., Terminal]


@contextmanager
def starting() -> Iterator[Start]:
    """Starts `corecoder` in terminals and ends what is left of them."""
    started: list[Terminal] = []

    def start(server: Any, *argv: str, columns: int = 100, rows: int = 60, **more: str) -> Terminal:
        command = (sys.executable, "-m", "corecoder", *argv)
        environ = environment(server.base_url if server else "", **more)
        started.append(Terminal(*command, environ=environ, columns=columns, rows=rows))
        return started[-1]

    try:
        yield start
    finally:
        for terminal in started:
            terminal.child.close(force=True)
