"""What the live part of the terminal looks like: what is under way, the question, the line, completions, the status.

Only pictures: everything here reads an `Editor` through `Shown` and changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from .asked import MENU_ROWS, Choice, Entry, Menu
from .terminal import Screen
from .text import printable
from .ui import PROMPT, Turn

FRAME = 0.12  # seconds between two pictures of the spinner
LIVE_ROWS = 10
WAITS = "A question waits: Enter sends your line first, Ctrl+C puts it aside."
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


class Shown(Protocol):
    """What is drawn."""

    screen: Screen
    buffer: Buffer
    asked: Choice | Entry | Menu | None
    turn: Turn | None
    hint: str
    busy: bool
    below: str
    status: Callable[[int], StyleAndTextTuples]


class App(Application[None]):
    """Escape alone is known as such after a moment; two keys that belong together may take their time."""

    @property
    def timeoutlen(self) -> float:
        """Seconds until a key that could begin a longer sequence counts alone."""
        keys = self.key_processor.key_buffer
        return 0.05 if keys and keys[0].key == Keys.Escape else 1.0

    @timeoutlen.setter
    def timeoutlen(self, _seconds: float | None) -> None:
        """What is set is not used."""


def application(shown: Shown, keys: KeyBindingsBase) -> App:
    """The application that draws `shown` and gives it keys; what it drew is erased when it ends."""

    def columns() -> int:
        return app.output.get_size().columns

    def rows() -> int:
        return app.output.get_size().rows

    search = SearchToolbar()
    line = Window(
        BufferControl(shown.buffer, search_buffer_control=search.control, preview_search=True),
        get_line_prefix=lambda number, wrapped: _prefix(shown, number + wrapped == 0),
        height=lambda: Dimension(min=1, max=max(3, rows() // 2)),
        dont_extend_height=True,
        wrap_lines=True,
    )
    root = HSplit(
        [
            _part(lambda: _under_way(shown, columns(), rows()), lambda: bool(shown.below)),
            _part(lambda: _busy(shown, columns()), lambda: shown.busy and shown.asked is None),
            _part(lambda: _asked(shown, columns()), lambda: shown.asked is not None or bool(shown.hint)),
            line,
            search,
            CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1, extra_filter=~is_searching),
            Window(FormattedTextControl(lambda: shown.status(columns())), height=1, style="class:status"),
            Window(),  # what was higher before stays so until the next line is printed
        ]
    )
    app = App(
        Layout(root, focused_element=line),
        style=_STYLE,
        key_bindings=keys,
        erase_when_done=True,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
    )
    app.ttimeoutlen = 0.05
    return app


def _part(text: Callable[[], StyleAndTextTuples], shown: Callable[[], bool]) -> ConditionalContainer:
    control = FormattedTextControl(text, get_cursor_position=lambda: Point(0, 0))
    return ConditionalContainer(Window(control, dont_extend_height=True, wrap_lines=True), Condition(shown))


def _prefix(shown: Shown, first: bool) -> StyleAndTextTuples:
    words = shown.screen.drawable(f"{shown.asked.words} {PROMPT}" if isinstance(shown.asked, Entry) else PROMPT)
    return [("", words if first else " " * get_cwidth(words))]


def _under_way(shown: Shown, columns: int, rows: int) -> StyleAndTextTuples:
    text = shown.screen.drawable(shown.below)
    return [("class:live", "\n".join(last_rows(text, columns - 1, max(2, min(LIVE_ROWS, rows // 3)))))]


def _busy(shown: Shown, columns: int) -> StyleAndTextTuples:
    frames = "|/-\\" if shown.screen.ascii else "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
    frame = frames[int(time.monotonic() / FRAME) % len(frames)]
    if shown.turn is None:
        return [("class:busy", frame)]
    words = shown.screen.drawable(clipped(shown.turn.words(), columns - 20))
    return [("class:busy", f"{frame} {words}"), ("class:live", shown.screen.drawable(" · Esc stops"))]


def _asked(shown: Shown, columns: int) -> StyleAndTextTuples:
    asked = shown.asked
    parts: StyleAndTextTuples = []
    if isinstance(asked, Menu):
        first, rows = asked.shown()
        parts = [("class:question", f"{shown.screen.drawable(asked.title)} (Up, Down, Enter; Esc leaves)")]
        for number, row in enumerate(rows, first):
            mark, style = ("› ", "class:chosen") if number == asked.at else ("  ", "")
            parts += [("", "\n"), (style, shown.screen.drawable(clipped(mark + row, columns - 1)))]
    elif isinstance(asked, Choice):
        parts = [("class:question", shown.screen.drawable(asked.words))]
        if shown.buffer.text:
            parts += [("", "\n"), ("class:hint", WAITS)]
    if shown.hint:
        parts += [("", "\n" if parts else ""), ("class:hint", shown.screen.drawable(shown.hint))]
    return parts


def last_rows(text: str, width: int, rows: int) -> list[str]:
    """The end of `text` as at most `rows` rows of a terminal `width` columns wide, broken between words."""
    cut: list[str] = []
    for line in text[-(width * rows) :].expandtabs(4).rstrip("\n").split("\n")[-rows:]:
        row, used = "", 0
        for letter in line:
            wide = get_cwidth(letter)
            if used + wide > width:
                whole, blank, rest = row.rpartition(" ")
                cut.append(whole if blank and whole.strip() else row)
                row = rest if blank and whole.strip() else ""
                used = get_cwidth(row)
            row, used = row + letter, used + wide
        cut.append(row)
    return cut[-rows:]


def clipped(text: str, width: int) -> str:
    """`text` as one row of at most `width` columns."""
    text = " ".join(printable(text).split("\n"))
    if get_cwidth(text) <= width:
        return text
    while text and get_cwidth(text) > width - 1:
        text = text[: -max(1, (get_cwidth(text) - width + 1) // 2)]
    return f"{text}…"
