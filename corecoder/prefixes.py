"""What "always" stands for: the first words of a command, the program and what it is told to do, such as `git commit`.

Some programs get none, because their arguments say what is run, or which file is lost: shells, interpreters, programs
that start others, and those that delete, overwrite or send files. The price of a list: a program of that kind that is
not on it gets a prefix all the same, which the question shows.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from .readonly import is_judged

Prefix = tuple[str, ...]

_NEVER = frozenset(
    # shells and interpreters
    "ash awk bash busybox cmd csh dash deno ed elixir emacs erl ex expect fish gawk gdb ghci guile irb java "
    "jshell julia ksh lldb lua luajit m mawk nawk nim nvim node nodejs ocaml octave osascript perl php pick "
    "powershell psql pwsh pypy python py r rscript ruby scala sed sh sqlite tclsh tcsh toybox vi view vim wish "
    "zsh mysql redis-cli "
    # programs that run others
    "at batch bunx chroot crontab doas docker entr env fd fdfind find flatpak flock kubectl ltrace nc ncat netcat "
    "nice nix nohup npx nsenter parallel pipx podman pnpx rsync runuser scp script setsid sftp socat ssh "
    "stdbuf strace su sudo systemd-run tar time timeout tmux screen unshare uvx watch wine xargs "
    # parts of bash that change what later words mean
    "alias bg bind builtin coproc declare enable eval exec export fg function hash let local mapfile "
    "read readarray readonly set shopt source trap typeset ulimit umask unalias unset . pushd popd "
    # programs that delete, overwrite or send whatever they are given
    "chgrp chmod chown cp curl dd install kill killall launchctl ln mkfs mount mv pkill reboot rm rmdir service "
    "shred shutdown systemctl tee truncate umount unlink wget".split()
)
# Programs of which the next word says what is done; None for all words but those that run other programs.
_SUBCOMMANDS: dict[str, frozenset[str] | None] = {
    "git": frozenset("add am apply branch cherry-pick commit merge mv revert stash switch tag".split()),
    **dict.fromkeys(
        "ant apt apt-get brew bun bundle cargo composer conda dotnet flutter gem gh go gradle gradlew hatch helm just "
        "make mage meson mix mvn mvnw nox npm nx pdm pip pip3 pnpm poetry rake ruff sbt swift task terraform tox "
        "turbo uv yarn zig".split()
    ),
}
_RUNNERS = frozenset(
    "alias api console dlx exec explore extension generate node repl run-script runscript shell tool vet x".split()
)
_SCRIPTS = frozenset({"npm", "pnpm", "yarn", "composer"})  # `run` and the name of a script of the project


def prefix(words: Sequence[str], directory: Path, path: str) -> Prefix | None:
    """The prefix of a simple command in `directory`, None for one that gets none. `path` is the PATH it runs with.

    A program that is named by its path has the whole of it in its prefix.
    """
    program, *arguments = words
    if "/" in program:
        program = os.path.normpath(directory / os.path.expanduser(program))
    found = program if "/" in program else shutil.which(program, path=path) or program
    names = {os.path.basename(each).casefold() for each in (program, found, os.path.realpath(found))}
    stems = {re.match(r"\.?[^\d.]*", name)[0].rstrip("-") for name in names}  # type: ignore[index] # it may be empty
    if (names | stems) & _NEVER:
        return None
    name = os.path.basename(program)
    if name not in _SUBCOMMANDS:  # one that is judged by its options had one that may do harm
        return None if is_judged(name) else (program,)
    allowed = _SUBCOMMANDS[name]
    scripts = name in _SCRIPTS and arguments[:1] == ["run"]
    told = arguments[: 2 if scripts else 1]
    if len(told) < 1 + scripts or not all(re.fullmatch(r"[A-Za-z][\w:.-]*", each) for each in told):
        return None
    if told[0] in _RUNNERS or (told[0] == "run" and not scripts) or (allowed is not None and told[0] not in allowed):
        return None
    return (program, *told)


def spoken(prefixes: Sequence[Prefix]) -> str:
    """`git commit …` and `pytest …`"""
    shown = [f"`{' '.join(each)} …`" for each in prefixes]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
