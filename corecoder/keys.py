"""What each key does in the input line; everything that is not here is as in Emacs and readline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, Filter, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys

from .asked import Choice, Entry, Menu
from .ui import Turn


class Keyed(Protocol):
    """What keys do things to."""

    buffer: Buffer
    asked: Choice | Entry | Menu | None
    turn: Turn | None
    on_mode: Callable[[], None]
    on_unfold: Callable[[], None]

    @property
    def asking(self) -> bool:
        """Whether keys answer a question instead of going to the line."""

    @property
    def early(self) -> bool:
        """Whether a key may have been typed before the line was there, when the terminal still made Ctrl+J of Enter."""

    def enter(self) -> None: ...
    def interrupt(self) -> None: ...
    def stop(self) -> None: ...
    def end_of_file(self) -> None: ...
    def suspend(self) -> None: ...
    def press(self, key: str) -> None: ...
    def move(self, by: int) -> None: ...
    def edit(self) -> Coroutine[Any, Any, None]: ...


def bindings(editor: Keyed) -> KeyBindingsBase:
    """The bindings of `editor`, where a question that keys answer comes before the line."""
    asking = Condition(lambda: editor.asking)
    return merge_key_bindings([_line(editor, asking), _always(editor, asking), _question(editor, asking)])


def _line(editor: Keyed, asking: Filter) -> KeyBindings:
    """Keys that go to the line."""
    keys = KeyBindings()

    @keys.add("enter", filter=~is_searching & ~asking)
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and not buffer.document.text_after_cursor:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            editor.enter()

    @keys.add("c-j", filter=Condition(lambda: editor.early) & ~asking, eager=True)
    def _early(_event: KeyPressEvent) -> None:
        editor.enter()

    @keys.add("escape", "enter")
    @keys.add("c-j", filter=~asking)
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("s-tab", eager=asking)
    def _mode(_event: KeyPressEvent) -> None:
        editor.on_mode()

    @keys.add("c-x", "c-e", filter=~asking)
    def _edit(event: KeyPressEvent) -> None:
        event.app.create_background_task(editor.edit())

    return keys


def _always(editor: Keyed, asking: Filter) -> KeyBindings:
    """Keys that mean the same whether a question is asked or not."""
    keys = KeyBindings()
    stoppable = Condition(lambda: editor.turn is not None or editor.asked is not None)

    @keys.add("c-c", eager=asking)
    @keys.add("<sigint>", eager=asking)
    def _interrupt(event: KeyPressEvent) -> None:
        if event.app.layout.is_searching:
            event.app.layout.focus_last()
        editor.interrupt()

    @keys.add("escape", filter=stoppable & ~is_searching, eager=asking)
    def _stop(_event: KeyPressEvent) -> None:
        editor.stop()

    @keys.add("c-d", filter=Condition(lambda: not editor.buffer.text), eager=asking)
    def _leave(_event: KeyPressEvent) -> None:
        editor.end_of_file()

    @keys.add("c-z", eager=asking)
    def _suspend(_event: KeyPressEvent) -> None:
        editor.suspend()

    @keys.add(Keys.Vt100MouseEvent, eager=True)
    def _mouse(_event: KeyPressEvent) -> None:
        """Bytes that look like a click: the mouse was never asked for."""

    @keys.add("c-o", eager=asking)
    def _unfold(_event: KeyPressEvent) -> None:
        editor.on_unfold()

    return keys


def _question(editor: Keyed, asking: Filter) -> KeyBindings:
    """Keys that answer a question or go through a menu."""
    keys = KeyBindings()
    menu = Condition(lambda: isinstance(editor.asked, Menu))

    @keys.add(Keys.BracketedPaste, filter=asking, eager=True)
    def _paste(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n"))

    @keys.add("<any>", filter=asking, eager=True)
    @keys.add("enter", filter=asking, eager=True)
    def _answer(event: KeyPressEvent) -> None:
        editor.press(event.key_sequence[0].data)

    for key, by in {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "c-p": -1, "c-n": 1}.items():

        @keys.add(key, filter=menu, eager=True)
        def _move(_event: KeyPressEvent, by: int = by) -> None:
            editor.move(by)

    return keys
