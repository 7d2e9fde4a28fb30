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
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, DynamicCompleter, ThreadedCompleter
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from .asked import MENU_ROWS, Choice, Entry, Menu
from .jobs import CancelToken, Job, JobDone, Jobs
from .keys import bindings
from .terminal import Screen, Signals
from .text import printable
from .ui import PROMPT, Turn

if TYPE_CHECKING:
    from .render import Live

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment] # the absence is what is tested below

AGAIN = "Ctrl+C again or Ctrl+D leaves"
WAITS = "A question waits: Enter sends your line first, Ctrl+C puts it aside."
QUIET = 0.6  # seconds without a key after which a question takes keys: what was meant for the line never answers it
EARLY = 0.3  # seconds after the start
PAUSE = 0.02  # seconds between two updates of the screen
FRAME = 0.12  # seconds between two pictures of the spinner
BATCH = 16_384  # characters printed in one update, so that keys are seen between two
FULL = 8 * BATCH  # characters that may wait to be printed before whoever prints has to wait
LIVE_ROWS = 10
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronised update; terminals that do not know it ignore it
_STYLE = Style.from_dict(
    {
        "live": "#888888",
        "busy": "ansicyan",
        "question": "bold ansiyellow",
        "hint": "ansiyellow",
        "status": "#888888",
        "status.warm": "ansiyellow",
        "status.hot": "ansired",
        "status.mode": "bold",
        "chosen": "reverse",
        "completion-menu": "noinherit",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "#888888",
        "completion-menu.meta.completion.current": "reverse",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "reverse",
    }
)


class History(FileHistory):
    """The prompts of one project, readable for their owner only; kept in memory where they cannot be written.

    Where its file lies is known only once the settings are read, which nobody waits for with typing.
    """

    def __init__(self) -> None:
        super().__init__("")
        self._known = asyncio.Event()

    def open(self, path: Path) -> None:
        """Says where the file lies; on the thread of the event loop."""
        self.filename = str(path)
        for string in self._loaded_strings:  # entered before
            self.store_string(string)
        self._loaded = False
        self._known.set()

    async def load(self) -> AsyncGenerator[str, None]:
        """The newest first, once it is known from where."""
        await self._known.wait()
        async for string in super().load():
            yield string

    def load_history_strings(self) -> Iterator[str]:
        """The newest first; none where the file cannot be read."""
        with contextlib.suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        """Adds one prompt to the file."""
        if not self.filename:
            return
        with contextlib.suppress(OSError):
            Path(os.fsdecode(self.filename)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(string)


class Above:
    """The stream that prints above the input line; for a `Screen`. May be written to from any thread."""

    def __init__(self, wake: Callable[[], None], encoding: str) -> None:
        self.encoding = encoding
        self.closed = False
        self._wake = wake
        self._text = ""
        self._room = threading.Condition()
        self._drawing = threading.current_thread()

    def isatty(self) -> bool:
        """It is a terminal: nothing else has an editor."""
        return True

    def write(self, text: str) -> int:
        """Takes `text`; waits while too much has not been printed yet, unless it is the drawing thread that writes."""
        with self._room:
            while len(self._text) > FULL and not self.closed and threading.current_thread() is not self._drawing:
                self._room.wait()
            self._text += text
        self._wake()
        return len(text)

    def flush(self) -> None:
        """Does nothing: what is whole is printed soon anyway."""

    def fileno(self) -> int:
        """That of standard output."""
        return sys.stdout.fileno()

    def take(self, *, all_of_it: bool = False) -> str:
        """Whole lines that wait to be printed, not too many; at the end everything."""
        with self._room:
            end = self._text.rfind("\n", 0, BATCH) + 1 or self._text.find("\n") + 1
            end = len(self._text) if all_of_it else end
            taken, self._text = self._text[:end], self._text[end:]
            self._room.notify_all()
        return taken


class _App(Application[None]):
    """Escape alone is known as such after a moment; two keys that belong together may take their time."""

    @property
    def timeoutlen(self) -> float:
        """Seconds until a key that could begin a longer sequence counts alone."""
        keys = self.key_processor.key_buffer
        return 0.05 if keys and keys[0].key == Keys.Escape else 1.0

    @timeoutlen.setter
    def timeoutlen(self, _seconds: float | None) -> None:
        """What is set is not used."""


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
        self._signals = signals
        self._history = History()
        self._live = ""
        self._aside = ""  # a line that was put aside for a question
        self._held = False  # somebody else has the terminal
        self._ending = False
        self._last_key = 0.0
        self._typing = False
        self._started = 0.0
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._woken = asyncio.Event()
        self.buffer = Buffer(
            multiline=True,
            history=self._history,
            completer=ThreadedCompleter(DynamicCompleter(lambda: None if self.asked else self.completer)),
            complete_while_typing=Condition(lambda: self.asked is None),
            tempfile_suffix=".md",
        )
        self._app = self._application()
        self._raw: list[Any] | None = None
        # It logs a signal that comes while it reads the history with a traceback, which nobody may see.
        logging.getLogger("prompt_toolkit").addHandler(logging.NullHandler())

    # -- what the session calls

    def read(self) -> str:
        """The next line that was entered. Raises EOFError once the person leaves."""
        line = None if self._ending else self._lines.get()
        if line is None:
            raise EOFError
        self.screen.line(PROMPT + line.replace("\n", "\n" + " " * len(PROMPT)), "bold")
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
        self._live = text
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
        if self.asked is not None:
            self.asked = None  # one answer for each question
            self._answers.put(value)

    def press(self, key: str) -> None:
        """A key while a question takes keys."""
        asked = self.asked
        if isinstance(asked, Menu) and key == "\r":
            self.answer(asked.at)
        elif isinstance(asked, Choice):
            key = "" if key == "\r" else key.lower()
            if key in asked.keys:
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
        quiet = not self.buffer.text and time.monotonic() - self._last_key > QUIET
        return isinstance(self.asked, Menu) or (isinstance(self.asked, Choice) and quiet)

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
            self._lines.put(text)
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
        if self.asked is not None and not (isinstance(self.asked, Choice) and self.buffer.text):
            self.answer(None)
        elif self.turn is not None:
            self.turn.cancel()

    def leave(self) -> None:
        """Ends the session: what runs is cancelled, and whoever reads or asks is told."""
        self._ending = True
        if self.turn is not None:
            self.turn.cancel()
        self._lines.put(None)
        self._answers.put(None)

    def suspend(self) -> None:
        """Ctrl+Z and SIGTSTP: the terminal is the shell's until SIGCONT."""
        self._app.create_background_task(self._lend(lambda: os.kill(os.getpid(), signal.SIGSTOP)))

    async def edit(self) -> None:
        """Opens the line in $VISUAL or $EDITOR."""
        self._held = True
        try:
            await self.buffer.open_in_editor()
        finally:
            self._held = False

    def _put_aside(self, text: str) -> None:
        self._aside, self.buffer.text = self.buffer.text, text
        self.buffer.cursor_position = len(text)

    def _put_back(self) -> None:
        if self._aside:
            self._insert(self._aside)
            self._aside = ""

    def _insert(self, text: str) -> None:
        rest = self.buffer.text
        self.buffer.text = f"{text}\n{rest}" if rest else text
        self.buffer.cursor_position = len(self.buffer.text)
        self._app.invalidate()

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
            self._started = time.monotonic()
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
        while True:
            try:
                await asyncio.wait_for(self._woken.wait(), FRAME if self.turn or self.asked else None)
            except asyncio.TimeoutError:
                self._app.invalidate()
                continue
            self._woken.clear()
            try:
                if not self._print():
                    self._app.invalidate()
            except Exception as error:  # noqa: BLE001 - it ends the program, which says what it was
                self._fail(error)
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
            await run_in_terminal(work)
        finally:
            self._held = False
            self._wake()

    def _go_on(self) -> None:
        """After SIGCONT: whoever had the terminal in between left it in another state."""
        if termios is not None and self._raw is not None and not self._held:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._raw)
            self._app.renderer.reset()
            self._app.invalidate()

    # -- what it looks like

    def _application(self) -> _App:
        search = SearchToolbar()
        line = Window(
            BufferControl(self.buffer, search_buffer_control=search.control, preview_search=True),
            get_line_prefix=lambda number, wrapped: self._prefix(number, wrapped),
            height=lambda: Dimension(min=1, max=max(3, self._rows // 2)),
            dont_extend_height=True,
            wrap_lines=True,
        )
        root = HSplit(
            [
                self._part(self._live_text, lambda: bool(self._live)),
                self._part(self._busy_text, lambda: self.turn is not None and self.asked is None),
                self._part(self._asked_text, lambda: self.asked is not None or bool(self.hint)),
                line,
                search,
                CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1, extra_filter=~is_searching),
                Window(FormattedTextControl(lambda: self.status(self._columns)), height=1, style="class:status"),
                Window(),  # what was higher before stays so until the next line is printed
            ]
        )
        app = _App(
            Layout(root, focused_element=line),
            style=_STYLE,
            key_bindings=bindings(self),
            erase_when_done=True,
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
        )
        app.ttimeoutlen = 0.05

        def pressed(_processor: object) -> None:
            self._typing = not self.asking

        def done(_processor: object) -> None:
            if self._typing:
                self._last_key = time.monotonic()

        def drawn(_app: object) -> None:
            app.after_render -= drawn
            if termios is not None:
                self._raw = termios.tcgetattr(sys.stdin.fileno())

        app.key_processor.before_key_press += pressed
        app.key_processor.after_key_press += done
        app.after_render += drawn
        return app

    def _part(self, text: Callable[[], StyleAndTextTuples], shown: Callable[[], bool]) -> ConditionalContainer:
        control = FormattedTextControl(text, get_cursor_position=lambda: Point(0, 0))
        return ConditionalContainer(Window(control, dont_extend_height=True, wrap_lines=True), Condition(shown))

    @property
    def _columns(self) -> int:
        return self._app.output.get_size().columns

    @property
    def _rows(self) -> int:
        return self._app.output.get_size().rows

    def _prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        words = f"{self.asked.words} {PROMPT}" if isinstance(self.asked, Entry) else PROMPT
        return [("", words if number == 0 and not wrapped else " " * get_cwidth(words))]

    def _live_text(self) -> StyleAndTextTuples:
        rows = max(2, min(LIVE_ROWS, self._rows // 3))
        return [("class:live", "\n".join(last_rows(self._live, self._columns - 1, rows)))]

    def _busy_text(self) -> StyleAndTextTuples:
        turn = self.turn
        frame = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(time.monotonic() / FRAME) % 10]
        words = printable(turn.words()) if turn else ""
        return [("class:busy", f"{frame} {clipped(words, self._columns - 20)}"), ("class:live", " · Esc stops")]

    def _asked_text(self) -> StyleAndTextTuples:
        asked = self.asked
        parts: StyleAndTextTuples = []
        if isinstance(asked, Menu):
            first, rows = asked.shown()
            parts = [("class:question", f"{printable(asked.title)} (↑ ↓ Enter, Esc leaves)")]
            for number, row in enumerate(rows, first):
                mark, style = ("› ", "class:chosen") if number == asked.at else ("  ", "")
                parts += [("", "\n"), (style, clipped(mark + printable(row), self._columns - 1))]
        elif isinstance(asked, Choice):
            parts = [("class:question", printable(asked.words))]
            if self.buffer.text:
                parts += [("", "\n"), ("class:hint", WAITS)]
        if self.hint:
            parts += [("", "\n" if parts else ""), ("class:hint", printable(self.hint))]
        return parts


def last_rows(text: str, width: int, rows: int) -> list[str]:
    """The end of `text` as at most `rows` rows of a terminal `width` columns wide."""
    cut: list[str] = []
    for line in printable(text[-(width * rows) :]).expandtabs(4).rstrip("\n").split("\n")[-rows:]:
        row, used = "", 0
        for letter in line:
            wide = get_cwidth(letter)
            if used + wide > width:
                cut.append(row)
                row, used = "", 0
            row, used = row + letter, used + wide
        cut.append(row)
    return cut[-rows:]


def clipped(text: str, width: int) -> str:
    """`text` as one row of at most `width` columns."""
    text = " ".join(text.split("\n"))
    if get_cwidth(text) <= width:
        return text
    while text and get_cwidth(text) > width - 1:
        text = text[: -max(1, (get_cwidth(text) - width + 1) // 2)]
    return f"{text}…"
