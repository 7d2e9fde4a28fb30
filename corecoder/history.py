"""The prompts of one project, kept in a file beside its sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from prompt_toolkit.history import FileHistory


class History(FileHistory):
    """The prompts of one project, readable for their owner only; kept in memory where they cannot be written.

    Where its file lies is known only once the settings are read, which nobody waits for with typing.
    """

    def __init__(self) -> None:
        super().__init__("")
        self._known = asyncio.Event()
        self._early: list[str] = []  # entered before

    def open(self, path: Path) -> None:
        """Says where the file lies; on the thread of the event loop."""
        self.filename = str(path)
        for string in self._early:
            self.store_string(string)
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
            return self._early.append(string)
        with contextlib.suppress(OSError):
            Path(os.fsdecode(self.filename)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(string)
        return None
