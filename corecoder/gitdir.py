"""Where a git repository has its files: gitrepository-layout(5), read without running git."""

from __future__ import annotations

import os
import re
from pathlib import Path

_POINTER_BYTES = 4096


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
