"""Walking a tree as ripgrep does: sorted by name, links not followed, hidden and ignored entries left out and noted.

Nothing below a directory that is left out is looked at, so a note names the directory and not its thousand files.
"""

from __future__ import annotations

import heapq
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from .ignore import RULE_FILES, Rulebook, rule_names

NOTED = 6
"""How many left-out entries and unreadable places are remembered, the nearest to the root first."""

_UNREMARKABLE = frozenset((*RULE_FILES, ".git", ".gitattributes", ".gitmodules", ".DS_Store"))


@dataclass
class Notes:
    """What a walk has to say about itself.

    `kept` whether any file was offered, `ignored` and `hidden` what was left out (relative paths, directories with a
    slash), `errors` what could not be read as (path, reason). Each list holds the first few in order of depth.
    """

    kept: bool = False
    ignored: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def leave_out(self, where: list[str], relative: str) -> None:
        where.append(relative)
        if len(where) > 50 * NOTED:
            where[:] = nearest(where)

    def failed(self, path: str, error: OSError) -> None:
        if len(self.errors) < NOTED:
            self.errors.append((path, error.strerror or str(error)))


def nearest(relative_paths: list[str]) -> list[str]:
    """The first few of these paths, by depth and then by name."""

    def depth_first(path: str) -> tuple[int, list[str]]:
        parts = path.rstrip("/").split("/")
        return len(parts), parts

    return heapq.nsmallest(NOTED, relative_paths, key=depth_first)


@dataclass
class Walk:
    """One walk below `root`, which must be absolute and real. `links` offers symbolic links as if they were files."""

    root: str
    ignore: bool = True
    hidden: bool = False
    links: bool = False
    depth: int | None = None
    folders: bool = False
    notes: Notes = field(default_factory=Notes)

    def files(self, *, breadth_first: bool = False) -> Iterator[os.DirEntry[str]]:
        """The regular files, in ripgrep's `--sort path` order or level by level; with `folders` directories too."""
        waiting: deque[tuple[os.DirEntry[str], Rulebook, int]] = deque()
        add = waiting.extend if breadth_first else lambda found: waiting.extend(reversed(found))
        add(self._inside(self.root, Rulebook.above(self.root, self.ignore), 1))
        while waiting:
            entry, book, depth = waiting.popleft() if breadth_first else waiting.pop()
            folder = entry.is_dir(follow_symlinks=False)
            self.notes.kept = self.notes.kept or not folder
            if self.folders or not folder:
                yield entry
            if folder and (self.depth is None or depth < self.depth):
                add(self._inside(entry.path, book, depth + 1))

    def _inside(self, directory: str, book: Rulebook, depth: int) -> list[tuple[os.DirEntry[str], Rulebook, int]]:
        try:
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=attrgetter("name"))
        except OSError as error:
            self.notes.failed(directory, error)
            return []
        book = book.entering(directory, {entry.name for entry in entries if entry.name[0] == "."})
        return [(entry, book, depth) for entry in entries if self._offered(entry, book)]

    def _offered(self, entry: os.DirEntry[str], book: Rulebook) -> bool:
        name = entry.name
        is_dir = entry.is_dir(follow_symlinks=False)
        if not is_dir and not entry.is_file(follow_symlinks=False) and not (self.links and entry.is_symlink()):
            return False
        verdict = book.verdict(entry.path, name, is_dir) if book.rules else None
        veiled = name[0] == "." and verdict is None and (not self.hidden or name == ".git")
        if verdict or veiled:
            relative = entry.path[len(self.root.rstrip("/")) + 1 :] + "/" * is_dir
            if verdict or name not in _UNREMARKABLE:
                self.notes.leave_out(self.notes.ignored if verdict else self.notes.hidden, relative)
            return False
        return True


class Offered:
    """Whether a walk below `root` would offer a file, asked of single files."""

    def __init__(self, root: str, ignore: bool) -> None:
        book = Rulebook.above(root, ignore)
        self._books: dict[str, Rulebook | None] = {root: book.entering(root, rule_names(root))}

    def __call__(self, path: str, is_dir: bool = False) -> bool:
        directory, name = os.path.split(path)
        book = self._book(directory)
        verdict = book.verdict(path, name, is_dir) if book else True
        return not verdict and (verdict is False or name[0] != ".")

    def _book(self, directory: str) -> Rulebook | None:
        """The rules inside `directory`, None if it is left out itself."""
        if directory not in self._books:
            above = self._book(os.path.dirname(directory)) if self(directory, is_dir=True) else None
            self._books[directory] = above and above.entering(directory, rule_names(directory))
        return self._books[directory]
