"""The line at the bottom of the terminal that stays alive while the agent works, and the one place that draws.

prompt_toolkit owns the main thread; the session runs on a worker and talks to it through `Editor`. Whatever is printed
is put above the live part (what is under way, the input line, the status line) in one go: erase, print, draw again, as
one synchronised update where the terminal knows that. So the screen is only ever appended to, and scrollback, selection
and tmux keep working. The price: what is printed waits until its line is whole.

This module loads nothing of the agent, because it is what a person waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, DynamicCompleter, ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples

from .above import Above
from .asked import Choice, Entry, Menu
from .history import History
from .jobs import CancelToken, Job, JobDone, Jobs
from .keys import bindings
from .liveview import FRAME, application
from .terminal import Screen, Signals
from .ui import AGAIN, PROMPT, Turn

if TYPE_CHECKING:
    from .render import Live

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment] # the absence is what is tested below

RUNS = "Something runs. Ctrl+D again stops it and leaves."
ECHOED = 20  # lines of a prompt that are shown again
QUIET = (
    0.6  # seconds without a key, and on the screen, after which a question takes keys: none that was meant for the line
)
HEELS = 0.25  # seconds within which another key makes a word of an answer
EARLY = 0.05  # seconds from when the keys are ours; what comes by then was typed before
PAUSE = 0.02  # seconds between two updates of the screen
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronised update; terminals that do not know it ignore it


class Editor:
    """The live part of the terminal. `run` belongs to the main thread, the rest to the session's unless it says so.

    `status` gives the status line for a width. What the session is asked to do by keys: `on_mode` for Shift+Tab,
    `on_unfold` for Ctrl+O; both are called on the main thread.
    """

    def __init__(self, signals: Signals) -> None:
        self.live: Live | None = self
        self.above = Above(self._wake, getattr(sys.stdout, "encoding", None) or "utf-8")
        self.screen = Screen(self.above)
        self.status: Callable[[int], StyleAndTextTuples] = lambda _width: []
        self.on_mode: Callable[[], None] = lambda: None
        self.on_unfold: Callable[[], None] = lambda: None
        self.completer: Completer | None = None
        self.asked: Choice | Entry | Menu | None = None
        self.turn: Turn | None = None
        self.hint = ""
        self.busy = True  # the session does something else than wait for a line
        self._signals = signals
        self._history = History()
        self.below = ""
        self._aside = ""  # a line that was put aside for a question
        self._printed = False  # a line was read, and what it asked for printed
        self._held = False  # somebody else has the terminal
        self._ending = False
        self._last_key = 0.0
        self._pressed = ""  # a key that answers unless another one follows at once
        self._asked_at = 0.0
        self._asked_before: Choice | Entry | Menu | None = None  # when the key came that is being handled
        self._stopped = False  # by ourselves
        self._returned = False  # the terminal is ours again and nothing was drawn yet
        self._started = 0.0
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._woken = asyncio.Event()
        self.buffer = Buffer(
            multiline=True,
            history=self._history,
            completer=ThreadedCompleter(DynamicCompleter(lambda: None if self.asked else self.completer)),
            complete_while_typing=Condition(lambda: self.asked is None),
        )
        self._app = application(self, bindings(self))
        self._app.key_processor.before_key_press += self._key_comes
        self._app.key_processor.after_key_press += self._key_went
        self._app.before_render += self._draws
        self._app.after_render += self._drawn
        self._raw: list[Any] | None = None  # the state of the terminal while it is ours
        # It logs a signal that comes while it reads the history with a traceback, which nobody may see.
        logging.getLogger("prompt_toolkit").addHandler(logging.NullHandler())

    # -- what the session calls

    def read(self) -> str:
        """The next line that was entered. Raises EOFError once the person leaves."""
        self.busy = False
        self._wake()
        line = None if self._ending else self._lines.get()
        self.busy = True
        if line is None:
            raise EOFError
        if self._printed:
            self.screen.line()
        self._printed = True
        first, *more = line.split("\n")
        self.screen.line(PROMPT + first, "bold")
        for each in more[:ECHOED]:
            self.screen.line(" " * len(PROMPT) + each, "bold")
        if len(more) > ECHOED:
            self.screen.line(f"  … {len(more) - ECHOED:,} more lines", "dim")
        return line

    @contextlib.contextmanager
    def working(self, turn: Turn) -> Iterator[None]:
        """While the block runs, lines go to `turn`, and Esc, Ctrl+C and signals cancel it."""
        self.turn, self.hint = turn, ""
        try:
            if self._ending:
                turn.cancel()
            yield
        finally:
            self.turn = None
            self.show("")

    def choose(self, words: str, keys: Mapping[str, str]) -> str:
        """The value of the key that is pressed; "" is Enter. Raises KeyboardInterrupt for Esc and Ctrl+C."""
        return str(self._ask(Choice(words, keys)))

    def line(self, words: str, text: str = "") -> str:
        """A line, `text` to begin with. Raises KeyboardInterrupt for Esc and Ctrl+C."""
        self._call(lambda: self._put_aside(text))
        return str(self._ask(Entry(words)))

    def pick(self, title: str, rows: Sequence[str]) -> int | None:
        """The number of the row that was chosen, None if none was."""
        try:
            return int(self._ask(Menu(title, rows))) if rows else None
        except KeyboardInterrupt:
            return None

    def show(self, text: str) -> None:
        """What stands below everything printed until it is replaced."""
        self.below = text
        self._wake()

    def give_back(self, text: str) -> None:
        """Puts words before what stands in the line."""
        self._call(lambda: self._insert(text))

    def open_history(self, path: Path) -> None:
        """The prompts of the file at `path` can be gone through from now on."""
        self._call(lambda: self._history.open(path))

    def _ask(self, question: Choice | Entry | Menu) -> Any:
        if self._ending:
            raise KeyboardInterrupt
        self._asked_at = time.monotonic()
        self.asked = question
        self._wake()
        try:
            answer = self._answers.get()
        finally:
            self.asked = None
            self._call(self._put_back)
        if answer is None:
            raise KeyboardInterrupt
        return answer

    # -- what keys do, on the main thread

    def answer(self, value: Any) -> None:
        """Answers the question that is asked; None for a person who does not."""
        if isinstance(self.asked, Entry):
            self.buffer.reset()
        if self.asked is not None:
            self.asked = None  # one answer for each question
            self._answers.put(value)

    def press(self, key: str) -> None:
        """A key while a question takes keys. One that is not on offer goes to the line, and so does one on whose heels
        another follows: whoever writes a word does not answer."""
        asked = self.asked
        if isinstance(asked, Menu):
            if key == "\r":
                self.answer(asked.at)
        elif isinstance(asked, Choice):
            before, self._pressed = self._pressed, ""
            if key == "\r" and before:
                self.answer(asked.keys[before])
            elif key == "\r" or asked.keys.get(key.lower()) == asked.keys[""]:
                self.answer(asked.keys[""])
            elif not before and key in asked.keys and not key.isalpha():  # begins no word
                self.answer(asked.keys[key])
            elif not before and key.lower() in asked.keys:
                self._pressed = key.lower()
                loop = asyncio.get_running_loop()
                loop.call_later(HEELS, self._settle, asked, self._pressed)
            elif (before + key).isprintable():
                self.buffer.insert_text(before + key)

    def _settle(self, asked: Choice, key: str) -> None:
        """No other key came after it."""
        if self.asked is asked and self._pressed == key:
            self._pressed = ""
            self.answer(asked.keys[key])

    def move(self, by: int) -> None:
        """Goes up or down in a menu."""
        if isinstance(self.asked, Menu):
            self.asked.move(by)

    @property
    def early(self) -> bool:
        """Whether a key may have been typed before the line was there, when the terminal still made Ctrl+J of Enter."""
        return time.monotonic() - self._started < EARLY

    @property
    def asking(self) -> bool:
        """Whether keys answer a question instead of going to the line."""
        if isinstance(self.asked, Menu) or self._pressed:
            return True
        quiet = time.monotonic() - max(self._last_key, self._asked_at) > QUIET
        return isinstance(self.asked, Choice) and quiet and not self.buffer.text

    def enter(self) -> None:
        """Enter: the line goes to whoever waits for it."""
        text = self.buffer.text
        self.hint = ""
        if isinstance(self.asked, Entry):
            self.buffer.reset()
            return self.answer(text)
        if not text.strip():
            return self.buffer.reset()
        if self.turn is None:
            self.busy = True
            self._lines.put(text)
            self._wake()
        elif refused := self.turn.take(text):
            self.hint = refused
            return None
        self.buffer.reset(append_to_history=True)
        return None

    def interrupt(self) -> None:
        """Ctrl+C: a question, a line, a turn, and at last the program."""
        if self.asked is not None and (self.asking or isinstance(self.asked, Entry)):
            self.answer(None)
        elif self.buffer.text and self.asked is not None:
            self._put_aside("")
        elif self.buffer.text and self.turn is None:
            self.buffer.reset(append_to_history=True)
        elif self.turn is not None:
            self.turn.cancel()
        elif self.hint == AGAIN:
            self.leave()
        else:
            self.hint = AGAIN

    def stop(self) -> None:
        """Esc: a question or a turn."""
        if self.asked is not None:
            self.answer(None)
        elif self.turn is not None:
            self.turn.cancel()

    def end_of_file(self) -> None:
        """Ctrl+D: the end, but not of a turn by a slip."""
        if self.turn is None or self.hint == RUNS:
            self.leave()
        else:
            self.hint = RUNS

    def leave(self) -> None:
        """Ends the session: what runs is cancelled, and whoever reads or asks is told."""
        self._ending = True
        if self.turn is not None:
            self.turn.cancel()
        self._lines.put(None)
        self._answers.put(None)

    def suspend(self) -> None:
        """Ctrl+Z and SIGTSTP: the terminal is the shell's until SIGCONT."""
        self._stopped = True

        def stop() -> None:
            os.kill(os.getpid(), signal.SIGSTOP)
            self._returned = True

        self._app.create_background_task(self._lend(stop))

    async def edit(self) -> None:
        """Opens the line in $VISUAL or $EDITOR."""
        command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        with tempfile.TemporaryDirectory(prefix="corecoder-") as folder:
            path = Path(folder) / "prompt.md"
            path.write_text(self.buffer.text, encoding="utf-8", errors="replace")
            try:
                await self._lend(lambda: subprocess.run([*command, str(path)], check=True))
                text = path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
            except (OSError, subprocess.SubprocessError) as error:
                self.hint = f"{command[0]} did not edit the line, which is as it was: {error}"
                return
        self._write(text)

    def _key_comes(self, _processor: object) -> None:
        self._asked_before = self.asked

    def _key_went(self, _processor: object) -> None:
        if self.asked is None or self.asked is not self._asked_before or self.buffer.text:
            self._last_key = time.monotonic()

    def _draws(self, _app: object) -> None:
        if self._returned:  # what was typed until the keys were ours again was shown by the terminal itself
            self._returned = False
            self._app.output.write_raw("\r\x1b[K")

    def _drawn(self, _app: object) -> None:
        if termios is not None and self._raw is None:
            self._started = time.monotonic()
            self._raw = termios.tcgetattr(sys.stdin.fileno())

    def _put_aside(self, text: str) -> None:
        self._aside = self.buffer.text
        self._write(text)

    def _put_back(self) -> None:
        if self._aside:
            self._insert(self._aside)
            self._aside = ""

    def _insert(self, text: str) -> None:
        rest = self.buffer.text
        self._write(f"{text}\n{rest}" if rest else text)
        self._app.invalidate()

    def _write(self, text: str) -> None:
        """Puts `text` into the line in the place of what stands there."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    # -- the main thread

    def run(self, work: Callable[[], int]) -> int:
        """Runs `work` on a thread of its own and the line on this one until it is done; gives what it gave."""
        jobs = Jobs()

        def body(_job: Job) -> int:
            try:
                return work()
            finally:
                self._call(self._end)

        def begin() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _loop, about: self._fail(about.get("exception")))
            for name, handle in (("SIGTSTP", self.suspend), ("SIGCONT", self._go_on)):
                if number := getattr(signal, name, None):
                    loop.add_signal_handler(number, handle)
            self._app.create_background_task(self._pump())
            jobs.start("session", body, CancelToken())

        before = termios.tcgetattr(sys.stdin.fileno()) if termios is not None else None
        try:
            with self._signals.cancelling(lambda: self._call(self.leave)):
                self._app.run(pre_run=begin, set_exception_handler=False)
        except EOFError:  # the terminal is gone
            pass
        finally:
            self.leave()
            self.above.closed = True
            self.above.take()
            done = jobs.inbox.get()
            if before is not None:
                with contextlib.suppress(OSError, termios.error):
                    termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
        assert isinstance(done, JobDone)
        if done.error is not None:
            raise done.error
        return int(done.value)

    def _call(self, work: Callable[[], None]) -> None:
        """Has `work` done on the main thread, soon."""
        loop = self._app.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just been closed
                loop.call_soon_threadsafe(work)

    def _wake(self) -> None:
        self._call(self._woken.set)

    def _end(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._print(all_of_it=True)
            self._app.exit()

    def _fail(self, error: object) -> None:
        if isinstance(error, BaseException) and self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)

    async def _pump(self) -> None:
        """Prints what waits to be printed and moves the spinner."""
        loop = asyncio.get_running_loop()
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                if not self._print():
                    self._app.invalidate()
            except Exception as error:  # noqa: BLE001 - it ends the program, which says what it was
                self._fail(error)
            if self.busy or self.asked:
                loop.call_later(FRAME, self._woken.set)
            await asyncio.sleep(PAUSE)

    def _print(self, *, all_of_it: bool = False) -> bool:
        """Prints some of what waits above the live part; whether there was anything."""
        if self._held or not (text := self.above.take(all_of_it=all_of_it)):
            return False
        app = self._app
        app.output.write_raw(_BEGIN)
        app.renderer.erase(leave_alternate_screen=False)
        app.output.write_raw(text.replace("\n", "\r\n"))
        app.renderer.render(app, app.layout)
        app.output.write_raw(_END)
        app.output.flush()
        self._woken.set()
        return True

    async def _lend(self, work: Callable[[], object]) -> None:
        """Has `work` done with the terminal as it was before."""
        self._held = True
        try:
            await run_in_terminal(work, in_executor=True)
        finally:
            self._held = False
            self._wake()

    def _go_on(self) -> None:
        """After SIGCONT: whoever had the terminal in between left it in another state."""
        stopped, self._stopped = self._stopped, False
        if termios is not None and self._raw is not None and not stopped:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._raw)
            self._app.renderer.reset()
            self._app.invalidate()
