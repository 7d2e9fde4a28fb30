"""Where a git repository has its files, and which files make it run programs: gitrepository-layout(5), git-config(1),
githooks(5), read without running git.

A git directory is known by what lies in it, not by its name: a bare one, one behind a link and one that a `.git` file
points to run hooks as well. Settings are read line by line, and an include counts whatever its condition is. The
price: a command that a setting names by its path, such as a filter, is not followed to its file.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

RUNS = ("hooks", "config", "config.worktree", "commondir")  # files of a repository that can make git run a program
_POINTER_BYTES = 4096
_PIECES = frozenset(("HEAD", "objects", "refs"))  # by which git takes a directory for a repository
_MOST_CONFIG_BYTES = 1_000_000
_MOST_INCLUDES = 20
_SETTING = re.compile(
    r"\s*(?:\[\s*(?P<section>[\w.-]+)[^\]]*\])?\s*(?:(?P<name>[\w-]+)\s*=\s*(?P<value>.*))?", re.IGNORECASE
)
# Lines of a configuration that cannot make git run a program. Whatever is not here is not certain.
_PLAIN = (
    r"\s*(?:[#;].*|\[(?:core|user|SECTIONSremote \"[^\"\\]+\"|branch \"[^\"\\]+\")\]"
    r"|(?:repositoryformatversion *= *0"
    r"|(?:filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinksNAMES) *= *\w+"
    r"|(?:name|email|fetch|remote|mergeTEXTS) *= *[^\\]*|url *=(?![\s\"]*ext::)[^\\]*))?\s*"
)


def _plain(sections: str = "", names: str = "", texts: str = "") -> re.Pattern[str]:
    filled = _PLAIN.replace("SECTIONS", sections).replace("NAMES", names).replace("TEXTS", texts)
    return re.compile(filled, re.IGNORECASE)


PLAIN_CONFIG = _plain()
# With what `git clone`, `git submodule` and `git worktree` write, which may make git read something else.
WRITTEN_BY_GIT = _plain(
    r"extensions|init|pull|push|submodule(?: \"[^\"\\]+\")?|lfs|",
    "|active|promisor|prune|rebase|sparsecheckout|worktreeconfig|default|sparsecheckoutcone",
    "|worktree|partialclonefilter|tagopt|defaultbranch|objectformat",
).fullmatch


def git_directory(top: Path) -> Path | None:
    """git's own directory of the repository whose top is `top`; None if there is none that can be read. In a linked
    worktree or a submodule `.git` is a file `gitdir: <path>`. Never waits, whatever `.git` is."""
    git = top / ".git"
    try:
        if git.is_file():
            with open(git, "rb") as file:
                pointer = re.match(rb"gitdir: (.+)", file.read(_POINTER_BYTES))
            if not pointer:
                return None
            git = top / os.fsdecode(pointer[1].strip())
        return git if git.is_dir() else None
    except (OSError, ValueError):
        return None


def common_directory(git: Path) -> Path:
    """The directory that holds what all worktrees share; `git` itself where it is not that of a linked one.
    Raises OSError."""
    link = git / "commondir"
    return git / os.fsdecode(link.read_bytes().strip()) if link.is_file() else git


def regular_file(path: Path, most: int) -> bytes | None:
    """The content of a regular file of at most `most` bytes, None for anything else. Never waits, as a pipe would."""
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            content = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError):
        return None
    return content if content is None or len(content) <= most else None


def is_of_git(place: Path, root: Path) -> bool:
    """Whether the file at the real path `place` is one of git's own, whatever its directory is called and be it the
    one that makes a repository of it, or one that a repository around it, or that at `root`, runs or is set by."""
    if ".git" in (name.casefold() for name in place.parts):  # macOS and Windows take .GIT for .git
        return True
    if any(_is_repository(above, place.relative_to(above).parts[0]) for above in place.parents):
        return True
    for top in dict.fromkeys((root, *place.parents)):
        for git in git_directories(top):
            if any(place.is_relative_to(each) for each in (git, *led_to(git, top))):
                return True
    return False


def _is_repository(directory: Path, added: str = "") -> bool:
    """Whether git would take `directory` for a git directory, once `added` lies in it."""
    missing = [name for name in _PIECES if name != added]
    return all(os.path.lexists(directory / name) for name in missing)


def git_directories(top: Path) -> list[Path]:
    """The real places of the git directory of the repository at `top`, and of the one that it shares; [] for none."""
    git = git_directory(top)
    if git is None:
        return []
    try:
        return [Path(os.path.realpath(each)) for each in dict.fromkeys((git, common_directory(git)))]
    except OSError:
        return [Path(os.path.realpath(git))]


def directories_in(git: Path, kinds: tuple[str, ...] = ("modules", "worktrees")) -> Iterator[Path]:
    """`git` and the git directories in it, those of submodules (which may be named like paths) and of linked worktrees;
    a link among them as it is."""
    yield git
    waiting = [git / kind for kind in kinds]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as scan:
                entries = list(scan)
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                yield path
            elif (path / "HEAD").exists():
                yield path
                waiting += [path / kind for kind in kinds]
            elif entry.is_dir():
                waiting.append(path)


def pieces_of(git: Path) -> set[Path]:
    """What git needs to take `git` for its own, as far as it is there and not empty."""
    return {git / name for name in _PIECES if (git / name).is_file() or next(_entries(git / name), None)}


def _entries(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as scan:
            yield from (entry.name for entry in scan)
    except OSError:
        return


def repositories(root: Path, most: int) -> Iterator[tuple[Path, Path]]:
    """(top, git directory) of every repository at or below `root` that a look at `most` entries comes to, breadth
    first, with the git directories in it; a bare one is its own top."""
    waiting = deque([root])
    while waiting and most > 0:
        top = waiting.popleft()
        try:
            with os.scandir(top) as scan:
                entries = {entry.name: entry for entry in scan}
        except OSError:
            continue
        most -= len(entries)
        if entries.keys() >= _PIECES:
            yield from ((top, git) for git in directories_in(top))
            continue
        if ".git" in entries:
            yield from ((top, each) for git in git_directories(top) for each in directories_in(git))
        folders = (entry for entry in entries.values() if entry.is_dir(follow_symlinks=False))
        waiting.extend(Path(entry.path) for entry in folders if entry.name != ".git")


def led_to(git: Path, top: Path) -> list[Path]:
    """The real places beyond `git` of hooks and settings of the repository at `top`: a directory that core.hooksPath
    names, files that are included, what the hooks, their directory and the settings are links to."""
    home = Path(os.path.expanduser("~"))
    own = [git / "config", git / "config.worktree", git / "hooks"]
    real = [Path(os.path.realpath(each)) for each in own]
    waiting = deque([*own[:2], *real[:2], home / ".gitconfig", _settings_home(home) / "git/config"])
    seen: list[Path] = []
    hooks = real[2:]
    while waiting and len(seen) < _MOST_INCLUDES:
        file = waiting.popleft()
        if file in seen:
            continue
        seen.append(file)
        for name, value in _settings(file):
            path = Path(os.path.expanduser(value))
            if name == "core.hookspath":
                hooks.append(Path(os.path.realpath(top / path)))
            else:
                waiting.append(Path(os.path.realpath(file.parent / path)))
    links = [Path(os.path.realpath(link)) for each in hooks for link in _links(each)]
    return [file for file in (*seen, *hooks, *links) if file not in own]


def _settings_home(home: Path) -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")


def _settings(file: Path) -> Iterator[tuple[str, str]]:
    """The settings in a configuration file that lead to other files."""
    section = ""
    for line in lines_of(file):
        match = _SETTING.match(line)
        if match is None:
            continue
        section = (match["section"] or section).casefold()
        name = f"{section}.{(match['name'] or '').casefold()}"
        if name in ("core.hookspath", "include.path", "includeif.path") and match["value"]:
            value = re.sub(r"\s+[#;].*", "", match["value"]).strip()
            yield name, value.replace('"', "").replace("\\\\", "\\")


def lines_of(file: Path) -> list[str]:
    """The lines of a regular file, [] if there is none that can be read."""
    try:
        if not file.is_file():
            return []
        with open(file, "rb") as opened:
            return opened.read(_MOST_CONFIG_BYTES).decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):
        return []


def _links(hooks: Path) -> list[str]:
    try:
        with os.scandir(hooks) as scan:
            return [entry.path for entry in scan if entry.is_symlink()]
    except OSError:
        return []
