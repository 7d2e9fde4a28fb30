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

from .text import one_line

_TOKEN = re.compile(
    r"[ \t]*(?:(?P<op>\|\||&&|\||;)"
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
_FILE = r"[^-\0\n][^\n]*\n"
_ADDRESS = r"(?:\d+|\$|/[^/\[\\\n]*/)"
_STEP = rf"(?:{_ADDRESS}(?:,{_ADDRESS})?)?[pdq=]"
_BRANCH = r"(?:(?:-a|-r|-vv?|--all|--remotes|--verbose|--show-current)\n)*"
# Commands of which only a form is harmless: the arguments, each with a newline behind it, and how to say it.
_FORMS = {
    "sed": (rf"(?:(?:-[nE]+|--quiet|--silent)\n)*{_STEP}(?:; ?{_STEP})*\n(?:{_FILE})*", "sed -n '1,5p' file"),
    "uniq": (r"(?:-[cdiu]+\n)*(?:[^-\0\n][^\0\n]*\n)?", "uniq -c"),
    **dict.fromkeys(("python", "python3"), (r"(?:--version|-V)\n", "python3 --version")),
    "git branch": (rf"{_BRANCH}(?:--list\n(?:{_BRANCH}{_FILE})*)?{_BRANCH}", "git branch -a"),
    "git remote": (r"(?:(?:-v|--verbose)\n)?", "git remote -v"),
    "git tag": (rf"(?:-n\d*\n)?(?:(?:-l|--list)\n(?:{_FILE})*)?", "git tag -l"),
}
_GIT = frozenset("--version blame diff log ls-files ls-tree rev-list rev-parse shortlog show status".split())
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


def why_not_read_only(command: str, directory: Path, *, project: Path | None = None, path: str = "") -> str:
    """Why it is not certain that `command`, run by bash in `directory`, can change nothing; "" where it is.

    `path` is the PATH it runs with ("" for the process's own); nothing that it finds in `project` counts as known.
    """
    parts, rest = _split(command)
    if rest or not all(parts):
        return f"`{one_line(rest, 30)}` is more than plain words, quotes, |, && and ;" if rest else "it is incomplete"
    doubts = (doubt for words in parts if (doubt := _doubt(words)))
    if doubt := next(doubts, ""):
        return doubt
    names = [words[0] for words in parts]
    path = path or os.environ.get("PATH", os.defpath)
    for name in names:
        if _is_of_the_project(name, project or directory, path):
            return f"`{name}` may be a program that the project chooses"
    if "git" in names and "cd" in names:
        return "git after cd may meet another repository"
    if "git" in names and not _is_plain_repository(directory):
        return "settings or hooks here may make git run a program, or this is not the top of a repository"
    return ""


def _is_of_the_project(name: str, project: Path, path: str) -> bool:
    """Whether the program comes from the project, or from a place that depends on the current directory, or is a
    script that chooses an interpreter by the files of the project (pyenv and its kind)."""
    if not all(map(os.path.isabs, path.split(os.pathsep))):
        return True
    found = shutil.which(name, path=path)
    if found and name.startswith("python") and _is_script(found):
        return True
    places = (found, os.path.realpath(found)) if found else ()
    roots = (project, os.path.realpath(project))
    return any(Path(place).is_relative_to(root) for place in places for root in roots)


def _is_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:  # may be run and not be read
        return True


def _split(command: str) -> tuple[list[list[str]], str]:
    """The simple commands of a pipeline or list, unquoted, and the rest from where it is not understood."""
    parts: list[list[str]] = [[]]
    at = 0
    text = command.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        if token["op"]:
            parts.append([])
        elif token["word"]:
            parts[-1].append(_unquoted(token["word"]))
    return parts, text[at:]


def _unquoted(word: str) -> str:
    """`word` without its quotes, glob characters outside of them marked."""

    def piece(match: re.Match[str]) -> str:
        text = match[0]
        return text[1:-1] if text[0] in "'\"" else re.sub(r"[*?\[]", _GLOB, text)

    return re.sub(r"'[^']*'|\"[^\"]*\"|[^'\"]+", piece, word)


def _doubt(words: list[str]) -> str:
    """What of a simple command is not known to be harmless, "" if all of it is."""
    name, *arguments = words
    forbidden = _COMMANDS.get(name)
    if name == "git":
        subcommand, *arguments = arguments or [""]
        name = f"git {subcommand}".strip()
        forbidden = _GIT_OPTIONS if subcommand in _GIT else None
    if name in _FORMS:
        form, example = _FORMS[name]
        fits = re.fullmatch(form, "".join(f"{argument}\n" for argument in arguments))
        return "" if fits else f"`{name}` is known to be harmless only in forms like `{example}`"
    if forbidden is None:
        return f"`{one_line(name, 30)}` is not known to be harmless"
    named = next((argument for argument in arguments if _names(argument, forbidden)), None)
    return f"`{name}` with `{one_line(named.replace(_GLOB, '*'), 30)}` may write or run something" if named else ""


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
