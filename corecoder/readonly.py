"""Is a shell command certainly read-only? A short list of commands, and a grammar so small that nothing hides in it.

A command passes only if every character of it is understood: plain words, quoted strings without expansions, `|`,
`&&`, `||`, `;`, and redirections to /dev/null. Substitutions, variables, other redirections, background and anything
unknown are "not certain", which costs a question and never a file. A program that stands inside the project, and a
repository whose own files can make git run something, are not certain either.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_TOKEN = re.compile(
    r"\s*(?:(?P<op>\|\||&&|\||;)"
    r"|(?P<null>[12]?>\s?/dev/null(?=[\s|;&]|$)|2>&1(?=[\s|;&]|$))"
    r"|(?P<word>(?:[A-Za-z0-9_./:,@%+^=*?\[\]-]|(?<=\S)~|'[^'\n]*'|\"[^\"$`\\!\n]*\")+))"
)

_ANY = frozenset[str]()
# For each command the options that make it write or run something; a command that is not here is not certain.
_COMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        "basename cat cd cksum cmp cut df dirname du echo egrep false fgrep file fold grep head id ls md5sum nl pwd "
        "readlink realpath rev seq sha1sum sha256sum stat tac tail tr true type uname wc which whoami".split(),
        _ANY,
    ),
    "diff": frozenset({"--to-file", "--from-file"}),
    "file": frozenset({"-C", "--compile"}),
    "find": frozenset({"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"}),
    "rg": frozenset({"--pre", "--hostname-bin", "-z", "--search-zip"}),
    "sort": frozenset({"-o", "--output", "--compress-program", "-T", "--temporary-directory"}),
    "tree": frozenset({"-o", "--output"}),
}
_GIT = frozenset("blame diff log ls-files ls-tree rev-list rev-parse shortlog show status".split())
_GIT_OPTIONS = frozenset({"--output", "--ext-diff", "--textconv", "-O", "--open-files-in-pager", "--contents"})
# The lines of a repository's configuration that cannot make git run a program; any other line is not certain.
_PLAIN_CONFIG = re.compile(
    r"\s*(?:[#;].*|\[(?:core|user|remote \"[^\"\\]+\"|branch \"[^\"\\]+\")\]"
    r"|(?:repositoryformatversion *= *0"
    r"|(?:filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks) *= *\w+"
    r"|(?:name|email|fetch|remote|merge) *= *[^\\]*|url *=(?![\s\"]*ext::)[^\\]*))?\s*",
    re.IGNORECASE,
)
_GITLINK = (0o160000).to_bytes(4, "big")  # the mode of an index entry that is a repository of its own
_GLOB = "\0"  # stands for an unquoted *, ? or [ once a word is unquoted


def is_read_only_command(command: str, directory: Path, *, project: Path | None = None, path: str = "") -> bool:
    """True if `command`, run by bash in `directory`, can change nothing; False whenever that is not certain.

    `path` is the PATH it runs with ("" for the process's own); nothing that it finds in `project` counts as known.
    """
    parts = _split(command)
    if parts is None or not all(_is_harmless(words) for words in parts):
        return False
    names = [words[0] for words in parts]
    path = path or os.environ.get("PATH", os.defpath)
    if any(_is_of_the_project(name, project or directory, path) for name in names):
        return False
    return "git" not in names or ("cd" not in names and _is_plain_repository(directory))


def _is_of_the_project(name: str, project: Path, path: str) -> bool:
    """Whether the program comes from the project, or from a place that depends on the current directory."""
    if not all(map(os.path.isabs, path.split(os.pathsep))):
        return True
    found = shutil.which(name, path=path)
    places = (found, os.path.realpath(found)) if found else ()
    roots = (project, os.path.realpath(project))
    return any(Path(place).is_relative_to(root) for place in places for root in roots)


def _split(command: str) -> list[list[str]] | None:
    """The simple commands of a pipeline or list, unquoted; None if a character is not understood."""
    parts: list[list[str]] = [[]]
    at = 0
    text = command.strip()
    if "\n" in text or "\r" in text:
        return None
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        if token["op"]:
            parts.append([])
        elif token["word"]:
            parts[-1].append(_unquoted(token["word"]))
    return parts if all(parts) else None


def _unquoted(word: str) -> str:
    """`word` without its quotes, glob characters outside of them marked."""

    def piece(match: re.Match[str]) -> str:
        text = match[0]
        return text[1:-1] if text[0] in "'\"" else re.sub(r"[*?\[]", _GLOB, text)

    return re.sub(r"'[^']*'|\"[^\"]*\"|[^'\"]+", piece, word)


def _is_harmless(words: list[str]) -> bool:
    name, *arguments = words
    if name == "git":
        name, *arguments = arguments or [""]
        forbidden = _GIT_OPTIONS if name in _GIT else None
    else:
        forbidden = _COMMANDS.get(name)
    return forbidden is not None and not any(_names(argument, forbidden) for argument in arguments)


def _is_plain_repository(directory: Path) -> bool:
    """Whether nothing in the repository at `directory` makes git run a program: no setting that is not known to be
    harmless, no hook of a command that reads, no repository inside it, whose settings would count as well."""
    git = directory / ".git"
    try:
        config = (git / "config").read_text("utf-8", "replace")
        index = (git / "index").read_bytes() if (git / "index").exists() else b""
    except OSError:
        return False  # not the top of a repository: which configuration counts is not certain
    if not all(map(_PLAIN_CONFIG.fullmatch, config.split("\n"))):
        return False
    return not (_GITLINK in index or (git / "hooks/post-index-change").exists() or any(git.glob("sharedindex.*")))


def _names(argument: str, options: frozenset[str]) -> bool:
    """Whether `argument` may be one of `options`: abbreviated, with `=value`, in a group of letters, or as the name
    of a file that a glob brings in."""
    if options and _GLOB in argument and argument[0] in (_GLOB, "-"):
        return True
    word = argument.partition("=")[0]
    if word.startswith("--"):
        return any(option.startswith(word) for option in options)
    if not word.startswith("-"):
        return False
    letters = {option[1] for option in options if len(option) == 2}
    return word in options or any(letter in letters for letter in word[1:])
