"""The paths of a project at hand for completion, and the few of them that a handful of letters means.

They are listed in the background, by ripgrep where it is installed and by our own walk where not, both under the same
ignore rules; a question never waits for that and is answered from the last list, which is made anew when it has grown
old. A query is a subsequence: `fidx` finds `corecoder/fileindex.py`. The paths stand in one string, the shortest first,
so that one regular expression picks those that fit, at the speed of C, and only a bounded number is ranked in Python.
The price: where very many fit, only the shortest and those with a fitting name are ranked at all.
"""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from .errors import CoreCoderError
from .jobs import CancelToken, Job, JobDone, Jobs
from .tool import ToolContext, Workspace
from .tools.child import running
from .tools.finding import asking, heard
from .tools.ripgrep import program
from .values import dataclass

MOST = 200_000
"""Paths beyond that are not offered."""

FRESH = 5.0  # seconds for which a list is taken to be true
SHARE = 20  # and so many times as long as it took to make
_LIMIT = 60.0  # seconds after which a listing is ended and what it found is used
_GLANCE = 0.05
_RANKED = 500
_KEPT = 4_000  # of those that fit, for the next letter
_RARE = "zqxjkvwybfhgmupdclnoirsaet_-./"  # letters of paths, the rarest first, and before them any that is not here
_BREAKS = frozenset("/_-. ")
_RG = ("--no-config", "--color=never", "--no-messages", "--no-follow", "--no-ignore-global", "--files", "--glob=!*\n*")


@dataclass(frozen=True)
class _Paths:
    """Project-relative paths, directories with a slash; the same in lower case; and the last part of that."""

    paths: Sequence[str] = ()
    low: Sequence[str] = ()
    names: Sequence[str] = ()

    @classmethod
    def of(cls, paths: Sequence[str]) -> _Paths:
        low = list(map(_folded, paths))
        return cls(paths, low, [path[path.rfind("/", 0, -1) + 1 :] for path in low])

    def only(self, places: Sequence[int]) -> _Paths:
        """Those at `places`."""
        picked = ([texts[at] for at in places] for texts in (self.paths, self.low, self.names))
        return _Paths(*picked)


class FileIndex:
    """The files and directories of `workspace`'s project. `secrets` are variables that no child process may get.

    Nothing happens before the first `refresh` or `fuzzy`. May be asked from any thread: where two ask at once, a list
    is made twice at worst.
    """

    def __init__(self, workspace: Workspace, secrets: frozenset[str] = frozenset()) -> None:
        self._workspace = workspace
        self._secrets = secrets
        self._jobs = Jobs()
        self._token = CancelToken()
        self._loading: Job | None = None
        self._due = 0.0
        self._all = _Paths()
        self._last: tuple[str, _Paths] = ("", self._all)  # a query and every path that fits it
        self.loaded = False

    def refresh(self) -> None:
        """Takes in what has been listed, and lists anew if that is old. Does not wait."""
        self._take(0.0)
        if self._loading is None and time.monotonic() >= self._due and not self._token.cancelled:
            self._loading = self._jobs.start("file index", self._load, self._token)

    def wait(self, seconds: float) -> bool:
        """Waits for the first list, at most so long; whether there is one."""
        self.refresh()
        until = time.monotonic() + seconds
        while not (self.loaded or self._token.cancelled) and (left := until - time.monotonic()) > 0:
            self._take(min(left, _GLANCE))  # somebody else may be told of it
        return self.loaded

    def fuzzy(self, query: str, limit: int = 20) -> list[str]:
        """The paths that `query` means, the likeliest first; for an empty one what lies at the top of the project."""
        self.refresh()
        query = _folded(query).replace("\n", "")
        if not query:
            return sorted(path for path in self._all.paths if "/" not in path[:-1])[:limit]
        ranked = sorted((-_score(path, query), len(path), path) for path in self._fitting(query))
        return [path for _, _, path in ranked[:limit]]

    def close(self, timeout: float = 1.0) -> bool:
        """Ends a listing that is under way; False if it does not end within `timeout`."""
        self._token.cancel()
        return self._jobs.close(timeout)

    def _fitting(self, query: str) -> set[str]:
        """The paths worth ranking: all in which the letters of `query` follow one another. Where these are too many,
        the shortest of them, of those where they do so in the name, and of those that have it in one piece."""
        before, among = self._last
        if not (before and query.startswith(before)):
            among = self._all
        fits = among.only(_subsequences(query, among.low, _KEPT))
        if len(fits.paths) < _KEPT:  # that is all of them, and with more letters it will be fewer
            self._last = query, fits
            among = fits
        best = set(fits.paths[:_RANKED])
        if len(fits.paths) > _RANKED:
            texts = among.low if "/" in query else among.names
            whole = (path for text, path in zip(texts, among.paths, strict=True) if query in text)
            best.update(islice(whole, _RANKED))
            if texts is among.names:
                best.update(among.paths[at] for at in _subsequences(query, texts, _RANKED))
        return best

    def _take(self, seconds: float) -> None:
        try:
            done = self._jobs.inbox.get(timeout=seconds) if seconds else self._jobs.inbox.get_nowait()
        except queue.Empty:
            return
        if isinstance(done, JobDone):
            self._due = time.monotonic() + max(FRESH, SHARE * (done.ended - done.job.started))
            self._loading, self.loaded = None, True
            if isinstance(done.value, _Paths) and done.value.paths != self._all.paths:
                self._all = done.value
                self._last = "", self._all

    def _load(self, job: Job) -> _Paths | None:
        ctx = ToolContext(self._workspace, job.token, secrets=self._secrets)
        root = os.path.realpath(self._workspace.root)
        try:
            rg = program(ctx)
            found = _with_folders(_by_ripgrep(rg, root, ctx)) if rg else _by_walk(root, ctx)
            # What cannot be typed or shown as it is is not offered.
            return _Paths.of(sorted(filter(str.isprintable, found), key=lambda path: (len(path), path)))
        except (OSError, CoreCoderError):
            return None


def _by_ripgrep(rg: str, root: str, ctx: ToolContext) -> Iterator[str]:
    skip = len(root.rstrip("/")) + 1
    with running([rg, *_RG, "--", root], token=ctx.token, limit=_LIMIT, without=ctx.secrets) as child:
        for line in islice(child.lines(), MOST):
            yield os.fsdecode(line)[skip:].replace(os.sep, "/")


def _by_walk(root: str, ctx: ToolContext) -> Iterator[str]:
    with asking(ctx, _LIMIT, do="list", root=root, ignore=True, most=MOST) as child:
        yield from heard(child).found


def _with_folders(files: Iterable[str]) -> Iterator[str]:
    folders: set[str] = set()
    for path in files:
        yield path
        while (cut := path.rfind("/", 0, -1)) > 0 and (path := path[: cut + 1]) not in folders:
            folders.add(path)
            yield path


def _folded(text: str) -> str:
    """`text` in lower case, letter for letter."""
    return text.lower() if text.isascii() else "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _subsequences(query: str, texts: Sequence[str], most: int) -> list[int]:
    """The places of the first `most` of `texts` in which the letters of `query` follow one another."""
    # No part of it can match in two ways, so that it takes no longer than a look at every character. Most texts do not
    # come to that, for they lack one of the rarest letters, which is seen in a few nanoseconds.
    fits = re.compile("".join(f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in query)).match
    a, b, c, *_ = sorted(set(query), key=_RARE.find) * 3
    found = (at for at, text in enumerate(texts) if a in text and b in text and c in text and fits(text))
    return list(islice(found, most))


def _score(path: str, query: str) -> int:
    """How well `query` fits `path`: best in the name, from its start, at the starts of words, in one piece."""
    low = _folded(path)
    name = low.rfind("/", 0, -1) + 1
    stem = low[name:].rstrip("/").partition(".")[0]
    in_name = _aligned(path, low, query, name)
    score = _aligned(path, low, query, 0) if in_name is None else in_name + 2 * len(query)
    begins = low.startswith(query, 0 if "/" in query else name)
    return (score or 0) + 4 * begins + 4 * (query in (low[name:].rstrip("/"), stem))


def _aligned(path: str, low: str, query: str, start: int) -> int | None:
    """3 for each letter that follows the one before it, 3 for each that starts a word; None if `query` is not there.

    A letter that is not next is rather found at a word's start; where that leaves no room for the rest, anywhere.
    """
    whole = low.find(query, start)
    while whole >= 0:
        if _starts_word(path, whole):
            return 3 * len(query) + 1
        whole = low.find(query, whole + 1)
    for jump in (True, False):
        score, at = 0, start - 1
        for letter in query:
            first = place = low.find(letter, at + 1)
            while jump and place > at + 1 and not _starts_word(path, place):
                place = low.find(letter, place + 1)
            place = first if place < 0 else place
            if place < 0:
                break
            score += 3 if place == at + 1 or _starts_word(path, place) else 0
            at = place
        else:
            return score
    return None


def _starts_word(path: str, at: int) -> bool:
    before = path[at - 1 : at]
    return at == 0 or before in _BREAKS or (path[at].isupper() and before.islower())
