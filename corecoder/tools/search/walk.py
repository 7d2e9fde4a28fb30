"""Walking a tree as ripgrep does: sorted by name, links not followed, hidden and ignored entries left out and noted.

Nothing below a directory that is left out is looked at, so a note names the directory and not its thousand files.
"""

from __future__ import annotations

import heapq
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from .ignore import Rulebook, rule_names

NOTED = 6
"""How many left-out entries and unreadable places are remembered, the nearest to the root first."""


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
    notes: Notes = field(default_factory=Notes)
    folders: bool = False

    def files(self, *, breadth_first: bool = False) -> Iterator[os.DirEntry[str]]:
        """The regular files, in ripgrep's `--sort path` order or level by level; with `folders` directories too."""
        book = Rulebook.above(self.root) if self.ignore else Rulebook()
        waiting: deque[tuple[os.DirEntry[str] | None, str, Rulebook, int]] = deque([(None, self.root, book, 0)])
        take = waiting.popleft if breadth_first else waiting.pop
        while waiting:
            entry, path, book, depth = take()
            if entry is not None and not entry.is_dir(follow_symlinks=False):
                self.notes.kept = True
                yield entry
                continue
            if entry is not None and self.folders:
                yield entry
            if self.depth is None or depth < self.depth:
                found, inner = self._inside(path, book)
                items = [(item, item.path, inner, depth + 1) for item in found]
                waiting.extend(items if breadth_first else reversed(items))

    def _inside(self, directory: str, book: Rulebook) -> tuple[list[os.DirEntry[str]], Rulebook]:
        try:
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=_name)
        except OSError as error:
            self.notes.failed(directory, error)
            return [], book
        if self.ignore:
            book = book.entering(directory, {entry.name for entry in entries if entry.name[0] == "."})
        return [entry for entry in entries if self._offered(entry, book)], book

    def _offered(self, entry: os.DirEntry[str], book: Rulebook) -> bool:
        name = entry.name
        is_dir = entry.is_dir(follow_symlinks=False)
        if not is_dir and not entry.is_file(follow_symlinks=False) and not (self.links and entry.is_symlink()):
            return False
        verdict = book.verdict(entry.path, name, is_dir) if book.flat else None
        if verdict:
            self.notes.leave_out(self.notes.ignored, self._relative(entry, is_dir))
            return False
        if name[0] == "." and verdict is None and (not self.hidden or name == ".git"):
            if name not in _UNREMARKABLE:
                self.notes.leave_out(self.notes.hidden, self._relative(entry, is_dir))
            return False
        return True

    def _relative(self, entry: os.DirEntry[str], is_dir: bool) -> str:
        return entry.path[len(self.root.rstrip("/")) + 1 :] + ("/" if is_dir else "")


class Offered:
    """Whether a walk below `root` would offer a file, asked of single files."""

    def __init__(self, root: str, ignore: bool) -> None:
        self._ignore = ignore
        book = Rulebook.above(root) if ignore else Rulebook()
        self._books: dict[str, Rulebook | None] = {root: self._entered(book, root)}

    def __call__(self, path: str) -> bool:
        book = self._book(os.path.dirname(path))
        return book is not None and self._taken(book, path, False)

    def _book(self, directory: str) -> Rulebook | None:
        """The rules inside `directory`, None if it is left out itself."""
        if directory not in self._books:
            above = self._book(os.path.dirname(directory))
            taken = above is not None and self._taken(above, directory, True)
            self._books[directory] = self._entered(above, directory) if above is not None and taken else None
        return self._books[directory]

    def _entered(self, book: Rulebook, directory: str) -> Rulebook:
        return book.entering(directory, rule_names(directory)) if self._ignore else book

    def _taken(self, book: Rulebook, path: str, is_dir: bool) -> bool:
        name = os.path.basename(path)
        verdict = book.verdict(path, name, is_dir)
        return verdict is False or (verdict is None and name[0] != ".")


_UNREMARKABLE = frozenset((".git", ".gitignore", ".gitattributes", ".gitmodules", ".ignore", ".rgignore", ".DS_Store"))


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
