"""Which files a search leaves out: the rules of .gitignore, .ignore and .rgignore files, read as ripgrep reads them.

Sources: gitignore(5) for the patterns; for what wins over what, ripgrep's guide: .rgignore before .ignore before
.gitignore before .git/info/exclude, within one kind the nearest directory first, within one file the last line that
matches. A repository does not look at the .gitignore files above it. Where a search starts outside of any repository,
.gitignore counts all the same, and what git keeps in .git directories does not (`rg --no-require-git
--no-ignore-exclude`). The user's global excludes never count (`rg --no-ignore-global`): an answer depends on the tree
alone.

Almost every file matches no rule, so a directory's rules are asked in two steps: three cheap look-ups that usually
say "none", and only then one rule after the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

RULE_FILES = (".rgignore", ".ignore", ".gitignore")
_MOST_BYTES = 1 << 20
_META = re.compile(r"[*?\[\]{}\\/]")


def glob_regex(glob: str) -> str:
    """A regular expression for `re.fullmatch` on a path with forward slashes.

    `*` and `?` stop at slashes, `**` as a whole component spans directories, `[...]` and `{a,b}` are known, a
    backslash takes the next character literally. Raises ValueError for an unclosed bracket or brace.
    """
    out: list[str] = []
    depth = at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            stars = at - 1
            while at < len(glob) and glob[at] == "*":
                at += 1
            starts = stars == 0 or glob[stars - 1] == "/"
            if at - stars == 2 and starts and at < len(glob) and glob[at] == "/":
                out.append("(?:[^/]+/)*")
                at += 1
            elif at - stars == 2 and starts and at == len(glob):
                out.append(".+")
            else:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            piece, at = _bracket(glob, at)
            out.append(piece)
        elif char == "\\" and at < len(glob):
            out.append(re.escape(glob[at]))
            at += 1
        elif char in "{}" or (char == "," and depth):
            depth += {"{": 1, "}": -1, ",": 0}[char]
            out.append({"{": "(?:", "}": ")", ",": "|"}[char])
        else:
            out.append(re.escape(char))
        if depth < 0:
            raise ValueError("'}' without '{'")
    if depth:
        raise ValueError("'{' without '}'")
    return "".join(out)


def _bracket(glob: str, at: int) -> tuple[str, int]:
    """The class that starts after the bracket before `at`, and where the glob goes on."""
    negated = at < len(glob) and glob[at] in "!^"
    start = at + negated
    end = glob.find("]", start + 1)
    if end < 0:
        raise ValueError("'[' without ']'")
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[start:end])
    try:
        re.compile(f"[{body}]")
    except re.error as error:
        raise ValueError(str(error)) from None
    return f"[{'^' if negated else ''}{body}]", end + 1


@dataclass
class _Rule:
    regex: str
    negated: bool
    only_dir: bool
    compiled: re.Pattern[str] | None = None

    def matches(self, path: str) -> bool:
        if self.compiled is None:
            self.compiled = re.compile(self.regex, re.DOTALL)
        return self.compiled.fullmatch(path) is not None


class Rules:
    """The patterns of one ignore file that lies in the directory `base`."""

    def __init__(self, base: str, lines: Iterable[str], source: str = "") -> None:
        self.source = source
        self._skip = len(base.rstrip("/")) + 1
        self._rules: list[_Rule] = []
        self._names: set[str] = set()
        self._suffixes: set[str] = set()
        others: list[str] = []
        for line in lines:
            self._add(line, others)
        self._others = re.compile("|".join(others), re.DOTALL) if others else None

    def __bool__(self) -> bool:
        return bool(self._rules)

    def _add(self, line: str, others: list[str]) -> None:
        line = line.rstrip("\r\n")
        if not line.endswith("\\ "):
            line = line.rstrip()
        if not line or line.startswith("#"):
            return
        negated = line.startswith("!")
        line = line[1:] if negated or line.startswith(("\\!", "\\#")) else line
        only_dir = line.endswith("/")
        glob = line[:-1] if only_dir else line
        anchored = "/" in glob
        glob = glob[1:] if glob.startswith("/") else glob
        if not glob:
            return
        full = glob if anchored or glob.startswith("**/") else f"**/{glob}"
        try:
            regex = glob_regex(full)
        except ValueError:  # a broken line matches nothing, as in ripgrep
            return
        self._rules.append(_Rule(regex, negated, only_dir))
        if not anchored and not _META.search(glob):
            self._names.add(glob)
        elif not anchored and glob.startswith("*.") and not _META.search(glob[2:]) and "." not in glob[2:]:
            self._suffixes.add(glob[2:])
        else:
            others.append(rf"(?:{regex})\Z")

    def verdict(self, path: str, name: str, is_dir: bool) -> bool | None:
        """True to leave `path` (absolute, below `base`) out, False to take it in by a `!` line, None for no rule."""
        relative = path[self._skip :]
        if (
            name not in self._names
            and name.rpartition(".")[2] not in self._suffixes
            and not (self._others and self._others.match(relative))
        ):
            return None
        for rule in reversed(self._rules):
            if (is_dir or not rule.only_dir) and rule.matches(relative):
                return not rule.negated
        return None


@dataclass(frozen=True)
class Rulebook:
    """All rules that hold in one directory, by kind, nearest first. `git` says whether repositories are heeded."""

    git: bool = True
    kinds: dict[str, tuple[Rules, ...]] = field(default_factory=dict)
    flat: tuple[Rules, ...] = ()

    @classmethod
    def above(cls, directory: str) -> Rulebook:
        """The rules that hold for a search of `directory` (absolute, real) because of the directories above it."""
        book = cls(git=in_repository(directory))
        for parent in reversed(list(_parents(directory))):
            book = book.entering(parent, rule_names(parent))
        return book

    def entering(self, directory: str, names: Collection[str]) -> Rulebook:
        """The rules inside `directory`, whose entries are `names`."""
        here = {kind: _load(directory, kind) for kind in RULE_FILES if kind in names}
        kinds = dict(self.kinds)
        if self.git and ".git" in names:
            kinds.pop(".gitignore", None)
            kinds["exclude"] = ()
            here["exclude"] = _load_exclude(directory)
        if not any(here.values()) and kinds == self.kinds:
            return self
        for kind, rules in here.items():
            if rules:
                kinds[kind] = (rules, *kinds.get(kind, ()))
        flat = tuple(rules for kind in (*RULE_FILES, "exclude") for rules in kinds.get(kind, ()))
        return Rulebook(self.git, kinds, flat)

    def verdict(self, path: str, name: str, is_dir: bool) -> bool | None:
        """As `Rules.verdict`, over all rules in their order."""
        for rules in self.flat:
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


def _load(directory: str, name: str) -> Rules:
    return _read(os.path.join(directory, name), directory)


def _load_exclude(directory: str) -> Rules:
    """`info/exclude` of the repository at `directory`; a worktree shares the main one (gitrepository-layout(5))."""
    git = os.path.join(directory, ".git")
    if os.path.isfile(git):
        git = os.path.join(directory, _first_line(git).removeprefix("gitdir:").strip())
        common = _first_line(os.path.join(git, "commondir"))
        git = os.path.join(git, common) if common else git
    return _read(os.path.join(git, "info", "exclude"), directory)


def _first_line(path: str) -> str:
    lines = _lines(path)
    return lines[0].strip() if lines else ""


def _read(path: str, base: str) -> Rules:
    return Rules(base, _lines(path), path)


def _lines(path: str) -> list[str]:
    if not os.path.isfile(path):  # a fifo of that name would block for ever
        return []
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8-sig", "surrogateescape").split("\n")
    except OSError:
        return []
