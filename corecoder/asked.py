"""What a live input line can be asked for instead of a prompt: a key, a line, or a row of a menu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .values import dataclass

MENU_ROWS = 10


@dataclass(frozen=True)
class Choice:
    """A question that one key answers."""

    words: str
    keys: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """A question that a line answers."""

    words: str


@dataclass
class Menu:
    """Rows to choose one of; `at` is the chosen one."""

    title: str
    rows: Sequence[str]
    at: int = 0

    def move(self, by: int) -> None:
        """Goes up or down, not beyond the ends."""
        self.at = max(0, min(len(self.rows) - 1, self.at + by))

    def shown(self) -> tuple[int, Sequence[str]]:
        """The rows around the chosen one, and the number of the first of them."""
        first = max(0, min(self.at - MENU_ROWS // 2, len(self.rows) - MENU_ROWS))
        return first, self.rows[first : first + MENU_ROWS]
