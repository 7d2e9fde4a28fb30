"""Which files a search leaves out: the rules of .gitignore, .ignore and .rgignore files, read as ripgrep reads them.

Sources: gitignore(5) for the patterns; for what wins over what, ripgrep's guide: .rgignore before .ignore before
.gitignore before .git/info/exclude, within one kind the nearest directory first, within one file the last line that
matches. A repository does not look at the .gitignore files above it. Where a search starts outside of any repository,
.gitignore counts all the same, and what git keeps in .git directories does not (`rg --no-require-git
--no-ignore-exclude`). The user's global excludes never count (`rg --no-ignore-global`): an answer depends on the tree
alone.

The rules of a file become two regular expressions, one for those that look at names and one for those that look at
paths, the last rule first: which alternative matched says what is meant. Almost every file matches none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

RULE_FILES = (".rgignore", ".ignore", ".gitignore")
_GIT, _EXCLUDE = RULE_FILES.index(".gitignore"), len(RULE_FILES)
_MOST_BYTES = 1 << 20
_GLOB = re.compile(
    r"(?P<deep>(?:\A|(?<=/))\*\*(?:/|\Z))|(?P<star>\*+)|(?P<any>\?)|(?P<brace>[{},])|(?P<escaped>\\.)"
    r"|(?P<bracket>\[(?:[!^].|[^!^])[^\]]*\])|(?P<open>\[)|(?P<other>.)",
    re.DOTALL,
)


def glob_regex(glob: str) -> str:
    """A regular expression for `re.fullmatch` on a path with forward slashes.

    `*` and `?` stop at slashes, `**` as a whole component spans directories, `[...]` and `{a,b}` are known, a backslash
    takes the next character literally. NUL is matched by none. Raises ValueError for an unclosed bracket or brace.
    """
    out: list[str] = []
    depth = 0
    for token in _GLOB.finditer(glob):
        kind, text = token.lastgroup, token[0]
        if kind == "open":
            raise ValueError("'[' without ']'")
        if kind == "bracket":
            out.append(_bracket(text[1:-1]))
        elif kind == "brace" and (depth or text != ","):
            depth += {"{": 1, "}": -1, ",": 0}[text]
            out.append({"{": "(?:", "}": ")", ",": "|"}[text])
            if depth < 0:
                raise ValueError("'}' without '{'")
        elif kind == "deep":
            out.append("(?:[^/]+/)*" if text.endswith("/") else r"[^\0]+")
        else:
            out.append({"star": r"[^/\0]*", "any": r"[^/\0]"}.get(kind or "") or re.escape(text[-1]))
    if depth:
        raise ValueError("'{' without '}'")
    return "".join(out)


def _bracket(body: str) -> str:
    negated = body[0] in "!^"
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", body[negated:])
    try:
        re.compile(f"[{body}]")
    except re.error as error:
        raise ValueError(str(error)) from None
    return rf"(?!\0)[{'^' if negated else ''}{body}]"


class _Either:
    """Rules (regular expression, (rank, leave out)) as one expression; the last one that matches wins."""

    def __init__(self, added: list[tuple[str, tuple[int, bool]]]) -> None:
        self._meanings = [meaning for _, meaning in reversed(added)]
        whole = "|".join(f"({regex})" for regex, _ in reversed(added))
        self._regex = re.compile(whole, re.DOTALL) if added else None

    def __call__(self, text: str) -> tuple[int, bool | None]:
        found = self._regex and self._regex.fullmatch(text)
        return self._meanings[(found.lastindex or 1) - 1] if found else (-1, None)


class Rules:
    """The patterns of one ignore file that lies in the directory `base`; `kind` orders it among the others."""

    def __init__(self, base: str, lines: Iterable[str], kind: int) -> None:
        self.kind = kind
        self._skip = len(base.rstrip("/")) + 1
        names: list[tuple[str, tuple[int, bool]]] = []
        paths: list[tuple[str, tuple[int, bool]]] = []
        for rank, line in enumerate(lines):
            line = line.rstrip("\r\n")
            line = line if line.endswith("\\ ") else line.rstrip()
            negated = line.startswith("!")
            glob = line[1:] if negated or line.startswith(("\\!", "\\#")) else line
            only_dir = glob.endswith("/")
            glob = glob.removesuffix("/")
            anchored = "/" in glob
            glob = glob.removeprefix("/")
            if not glob or line.startswith("#"):
                continue
            try:
                regex = glob_regex(glob) + (r"\0" if only_dir else r"\0?")
            except ValueError:  # a broken line matches nothing, as in ripgrep
                continue
            (paths if anchored else names).append((regex, (rank, not negated)))
        self.empty = not names and not paths
        self._by_name, self._by_path = _Either(names), _Either(paths)

    def verdict(self, path: str, name: str, is_dir: bool) -> bool | None:
        """True to leave `path` (absolute, below `base`) out, False to take it in by a `!` line, None for no rule."""
        mark = "\0" if is_dir else ""
        return max(self._by_name(name + mark), self._by_path(path[self._skip :] + mark))[1]


@dataclass(frozen=True)
class Rulebook:
    """All rules that hold in one directory, the weightiest first; none ever where rules are not heeded.

    `git` says whether repositories are.
    """

    heeded: bool
    git: bool
    rules: tuple[Rules, ...] = ()

    @classmethod
    def above(cls, directory: str, heeded: bool) -> Rulebook:
        """The rules that hold for a search of `directory` (absolute, real) because of the directories above it."""
        book = cls(heeded, in_repository(directory))
        for parent in reversed(list(_parents(directory))):
            book = book.entering(parent, rule_names(parent))
        return book

    def entering(self, directory: str, names: Collection[str]) -> Rulebook:
        """The rules inside `directory`, whose entries are `names`."""
        if not self.heeded:
            return self
        above = self.rules
        here = [_read(directory, name, kind) for kind, name in enumerate(RULE_FILES) if name in names]
        if self.git and ".git" in names:
            above = tuple(rules for rules in above if rules.kind not in (_GIT, _EXCLUDE))
            here.append(_read(directory, os.path.join(_git_directory(directory), "info", "exclude"), _EXCLUDE))
        here = [rules for rules in here if not rules.empty]
        if not here and above == self.rules:
            return self
        return Rulebook(self.heeded, self.git, tuple(sorted((*here, *above), key=attrgetter("kind"))))

    def verdict(self, path: str, name: str, is_dir: bool) -> bool | None:
        """As `Rules.verdict`, over all rules in their order."""
        for rules in self.rules:
            verdict = rules.verdict(path, name, is_dir)
            if verdict is not None:
                return verdict
        return None


def in_repository(directory: str) -> bool:
    """Whether `directory` (absolute) or one above it has a `.git`."""
    return any(os.path.lexists(os.path.join(parent, ".git")) for parent in (directory, *_parents(directory)))


def rule_names(directory: str) -> list[str]:
    """The entries of `directory` that rules come from."""
    return [name for name in (*RULE_FILES, ".git") if os.path.lexists(os.path.join(directory, name))]


def _parents(directory: str) -> Iterator[str]:
    while (parent := os.path.dirname(directory)) != directory:
        yield parent
        directory = parent


def _git_directory(directory: str) -> str:
    """Where the repository at `directory` has its files; a worktree shares the main one's (gitrepository-layout(5))."""
    git = os.path.join(directory, ".git")
    if not os.path.isfile(git):
        return git
    git = os.path.join(directory, _lines(git)[0].strip().removeprefix("gitdir:").strip())
    return os.path.join(git, _lines(os.path.join(git, "commondir"))[0].strip())


def _read(directory: str, name: str, kind: int) -> Rules:
    return Rules(directory, _lines(os.path.join(directory, name)), kind)


def _lines(path: str) -> list[str]:
    if not os.path.isfile(path):  # a fifo of that name would block for ever
        return [""]
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8-sig", "surrogateescape").split("\n")
    except OSError:
        return [""]
