"""Which simple commands certainly change nothing: the commands that do not, and what each must not be given.

A command must be in a table here, with no option that writes or runs something, and come from outside the project; a
repository whose own files can make git run something is not certain either, nor is anything where an earlier command
changed a variable that may make it run something else. Whatever is not certain costs a question and never a file.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from .gitdir import PLAIN_CONFIG, led_to, lines_of, regular_file
from .shellparse import ANY, GLOB
from .text import one_line

_NONE = frozenset[str]()
# Commands that only give back their arguments or look at names; what they are given need not be known.
INERT = frozenset(": basename dirname echo false printf pwd seq true".split())
# For each command the options that make it write or run something, or take the names of files from another file; a
# command that is not here is not certain.
_COMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ": basename cat cd cksum cmp column comm cut df dirname echo egrep expand false fgrep fmt fold "
        "free grep groups head hexdump id join ls md5sum nl nproc od paste pwd readlink realpath rev seq sha1sum "
        "sha256sum sha512sum sleep stat tac tail tr true type uname unexpand uptime which whoami".split(),
        _NONE,
    ),
    "base64": frozenset({"-o", "--output"}),
    "diff": frozenset({"--to-file", "--from-file", "-l", "--paginate"}),
    "du": frozenset({"--files0-from"}),
    "file": frozenset({"-f", "--files-from", "-C", "--compile", "-z", "-Z", "--uncompress", "--uncompress-noreport"}),
    "find": frozenset(
        {"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"}
    ),
    "rg": frozenset({"--pre", "--hostname-bin", "-z", "--search-zip"}),
    "sort": frozenset({"-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"}),
    "tree": frozenset({"-o", "--output", "-R"}),
    "wc": frozenset({"--files0-from"}),
}
_FILE = r"[^-\0\n][^\n]*\n"
_ADDRESS = r"(?:\d+|\$|/[^/\[\\\n]*/)"
# A delimiter within brackets ends the expression in one sed and not in another.
_BETWEEN = r"(?:\\[^\n]|\[\^?[^][/|#,\\\n]+\]|(?!DELIMITER)[^[\\\n])*DELIMITER"
_CHANGE = "|".join(
    "s" + sign + 2 * _BETWEEN.replace("DELIMITER", sign) + r"[gpI\d]*" for sign in ("/", r"\|", "#", ",")
)
_STEP = rf"(?:(?:{_ADDRESS}(?:,{_ADDRESS})?)?(?:[pdq=]|{_CHANGE}))"
_BRANCH = r"(?:(?:-a|-r|-vv?|--all|--remotes|--verbose|--show-current)\n)*"
_FIELD = r"(?:\$(?:\d+|NF)|NR|NF|\"[^\"\\\n]*\")"
_ROWS = r"(?:/[^/\\\n]*/|(?:NR|NF|\$\d+) *(?:==|!=|<|<=|>|>=) *(?:\d+|\"[^\"\\\n]*\"))"
_VERSIONED = "bash clang g++ gcc make node python python3".split()
# Commands of which only a form is harmless: the arguments, each with a newline behind it, and an example of it.
_FORMS = {
    "awk": (
        rf"(?:-F\n?[^\n]{{1,3}}\n)?(?:{_ROWS}(?: *&& *{_ROWS})*)? *"
        rf"(?:\{{ *print(?: +{_FIELD}(?:,? *{_FIELD})*)? *\}})?\n(?:{_FILE})*",
        "awk '{print $1}' file",
    ),
    "command": (r"-[vV]\n(?:[^\n]+\n)+", "command -v name"),
    "date": (
        r"(?:(?:-u|-R|-I\w*|--utc|--iso-8601(?:=\w+)?|--rfc-3339=\w+|\+[^\n]*|--date=[^\n]*)\n|-d\n[^\n]+\n)*",
        "date +%F",
    ),
    "exit": (r"(?:\d+\n)?", "exit 1"),
    "hostname": ("", "hostname"),
    "jq": (
        r"(?:(?:-[rcnsSejM]+|--raw-output|--compact-output|--slurp|--sort-keys)\n)*"
        rf"(?:--version\n|(?!-)(?![^\n]*\b(?:env|ENV|import|include|input_filename|debug|stderr)\b)[^\n]+\n(?:{_FILE})*)",
        "jq '.a' file",
    ),
    "printenv": (r"(?:PATH|HOME|SHELL|LANG|USER|VIRTUAL_ENV|TMPDIR)\n", "printenv PATH"),
    # Not %n, which sets a variable, PATH for instance.
    "printf": (r"(?!-|[^\n]*%[^a-zA-Z%\n]*[hlLjzt]*n)[^\0\1\n]+\n(?:[^\n]*\n)*", "printf '%s' words"),
    "ps": (r"(?:-?aux\n|-ef\n|-A\n|(?:-p|-eo|-o)\n(?![\w,]*env)[\w,%]+\n)*", "ps aux"),
    "sed": (rf"(?:(?:-[nEr]+|--quiet|--silent)\n)*{_STEP}(?:; ?{_STEP})*\n(?:{_FILE})*", "sed -n '1,5p' file"),
    # Not @file, from which binutils takes more arguments, and says which of them it cannot open.
    "strings": (r"(?:[^@\0\n][^\n]*\n)*", "strings file"),
    "test": (
        r"(?:!\n)?(?:-[abcdefghknprsuwxzGLNOS]\n[^\n\1]*\n|[^-\n\1][^\n\1]*\n(?:=|==|!=)\n[^\n\1]*\n"
        r"|\d+\n-(?:eq|ne|lt|le|gt|ge)\n\d+\n)",
        "test -f file",
    ),
    "uniq": (r"(?:-[cdiu]+\n)*(?:[^-\0\n][^\0\n]*\n)?", "uniq -c"),
    "unzip": (rf"-l\n{_FILE}", "unzip -l file"),
    "xxd": (r"(?:(?:-[pbu]|-[lsc]\n?\d+)\n)*(?:[^-\0\n][^\0\n]*\n)?", "xxd file"),
    **dict.fromkeys(_VERSIONED, (r"(?:--version|-V)\n", "")),
    "git branch": (rf"{_BRANCH}(?:--list\n(?:{_BRANCH}{_FILE})*)?{_BRANCH}", "git branch -a"),
    "git config": (r"--get\n(?:user|core|init|remote|branch|pull|push)\.[\w.-]+\n", "git config --get name"),
    "git reflog": (r"(?:show\n)?(?:-\d+\n|-n\n\d+\n|--oneline\n|HEAD\n)*", "git reflog -5"),
    "git remote": (r"(?:(?:-v|--verbose)\n)?|get-url\n[\w.-]+\n", "git remote -v"),
    "git stash": (r"list\n(?:--oneline\n)?", "git stash list"),
    "git symbolic-ref": (r"(?:(?:--short|-q)\n)*HEAD\n", "git symbolic-ref HEAD"),
    "git tag": (r"(?:-n\d*\n)?(?:(?:-l|--list)\n(?:{_FILE})*)?", "git tag -l"),
    "git worktree": (r"list\n(?:--porcelain\n)?", "git worktree list"),
}
_GIT = frozenset(
    "--version blame cat-file check-ignore cherry count-objects describe diff diff-tree for-each-ref grep log ls-files "
    "ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status".split()
)
_GIT_OPTIONS = frozenset(
    "--output --ext-diff --textconv --filters -O --open-files-in-pager --contents --batch --batch-command --stdin "
    "--pathspec-from-file --submodule --recurse-submodules".split()
)
_SUBMODULE = frozenset({"--submodule", "--submodule=log", "--submodule=short"})  # and not `diff`, which runs git in it
# Variables that make whatever is started run something else: ld.so(8), bash(1), iconv(1).
_STEERS_ALL = r"LD_\w+|DYLD_\w+|BASH\w*|ENV|SHELLOPTS|PS4|GCONV_PATH"
_STEERS = {
    "git": rf"{_STEERS_ALL}|GIT_\w+|HOME|XDG_CONFIG_HOME",  # git(1), and where its settings lie
    "rg": rf"{_STEERS_ALL}|RIPGREP_CONFIG_PATH",
}
# And those that do so for some program.
_STEERING = (
    rf"{'|'.join(_STEERS.values())}|PATH|CDPATH|XDG_\w+|PYTHON\w*|PYTEST_\w+|PIP_\w+|UV_\w+|VIRTUAL_ENV|NODE_\w+"
    r"|NPM_CONFIG_\w+|YARN_\w+|PERL\w*|RUBY\w*|GEM_\w+|BUNDLE_\w+|PHP\w*|LUA_\w+|\w*JAVA_\w+|CLASSPATH|MAVEN_\w+"
    r"|GRADLE_\w+|RUSTC\w*|RUSTFLAGS|RUSTUP_\w+|CARGO\w*|GO[A-Z]+|CC|CXX|LD|AR|AS|CFLAGS|CXXFLAGS|LDFLAGS|MAKE\w*"
    r"|SHELL|EDITOR|VISUAL|\w*PAGER|BROWSER|LESS\w*|MAN\w*|SSH_\w+|RSYNC_\w+|DOCKER_\w+|TAR_OPTIONS"
)
_HEAD = re.compile(rb"ref: refs/[^\s]+\n?|[0-9a-f]{40}\n?")
_MOST_HEAD_BYTES = 200  # git reads no more than 255
_MOST_BYTES = 100_000_000
# A setting of the user's own with which `git log -p` runs what the settings of a repository inside this one say.
_SHOWS_SUBMODULES = re.compile(r"\s*(?:\[.*\])?\s*submodule\s*=\s*\"?diff", re.IGNORECASE)
_GITLINK = (0o160000).to_bytes(4, "big")  # the mode of an index entry that is a repository of its own


def why_not_harmless(words: Sequence[str]) -> str:
    """What of a simple command is not known to be harmless, "" if all of it is."""
    name, *arguments = words
    forbidden = _COMMANDS.get(name)
    if name == "git":
        name, arguments = subcommand(arguments)
        forbidden = _GIT_OPTIONS if name[4:] in _GIT else None
    known = forbidden is not None or name in _FORMS
    if known and name not in INERT and any(ANY in argument for argument in arguments):
        return f"it is not certain what `{name}` is given"
    if name in _FORMS:
        form, example = _FORMS[name]
        fits = re.fullmatch(form, "".join(f"{argument}\n" for argument in arguments))
        if fits and not any("\n" in argument for argument in arguments):
            return ""
        if example:
            return f"`{name}` is known to be harmless only in forms like `{example}`"
    if forbidden is None:
        return f"`{one_line(name, 30)}` is not known to be harmless"
    free = _SUBMODULE if name.startswith("git ") else _NONE
    named = next((each for each in arguments if each not in free and names_option(each, forbidden)), None)
    if named is None:
        return ""
    return f"`{name}` with `{one_line(named.replace(GLOB, '*'), 30)}` may write, run or read something else"


def steering(names: Iterable[str], program: str = "") -> list[str]:
    """Those of the environment variables `names` that can make a program run or read something else, as far as that
    concerns `program`, which is one of the harmless ones ("": any program at all)."""
    variables = _STEERS.get(program, _STEERS_ALL) if program else _STEERING
    return sorted(filter(re.compile(variables, re.IGNORECASE).fullmatch, names))


def subcommand(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """`git log` and the arguments behind it, without the options that only say "no pager"."""
    rest = list(itertools.dropwhile(("--no-pager", "-P").__contains__, arguments)) or [""]
    return f"git {rest[0]}".strip(), rest[1:]


def is_of_the_project(name: str, project: Path, path: str) -> bool:
    """Whether the program comes from the project, or from a place that depends on the current directory, or is a
    script that chooses an interpreter by the files of the project (pyenv and its kind)."""
    if not all(map(os.path.isabs, path.split(os.pathsep))):
        return True
    found = shutil.which(name, path=path)
    if found and name in _VERSIONED and _is_script(found):
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


def is_plain_repository(directory: Path) -> bool:
    """Whether nothing in the repository that holds `directory` makes git run a program: no setting that is not known to
    be harmless, no hook of a command that reads, no repository inside it, whose settings would count as well, and
    nothing that says that they lie elsewhere (gitrepository-layout(5))."""
    git = certain_repository(directory)
    if git is None or _lies_there(git / "commondir", git / "config.worktree"):
        return False
    config = regular_file(git / "config", _MOST_BYTES)
    index = regular_file(git / "index", _MOST_BYTES) if _lies_there(git / "index") else b""
    if config is None or index is None:
        return False
    if not all(map(PLAIN_CONFIG.fullmatch, config.decode("utf-8", "replace").split("\n"))):
        return False
    own = (*led_to(git, git.parent), Path("/etc/gitconfig"))
    if any(map(_SHOWS_SUBMODULES.match, itertools.chain.from_iterable(map(lines_of, own)))):
        return False
    return not (_GITLINK in index or (git / "hooks/post-index-change").exists() or any(git.glob("sharedindex.*")))


def certain_repository(directory: Path) -> Path | None:
    """The git directory that git finds from `directory`, None where it is not certain which that is.

    git goes upwards from the real place and passes over a `.git` that lacks one of its pieces: where one lies that it
    might pass over or follow, what it comes to is not certain."""
    real = Path(os.path.realpath(directory))
    top = next((each for each in (real, *real.parents) if _lies_there(each / ".git", each / "HEAD")), real)
    git = top / ".git"
    head = git / "HEAD"
    if any(each.is_symlink() or not os.access(each, os.X_OK) for each in (git, git / "objects", git / "refs")):
        return None
    taken = _HEAD.fullmatch(regular_file(head, _MOST_HEAD_BYTES) or b"") and not head.is_symlink()
    return git if taken and all(map(os.path.isdir, (git / "objects", git / "refs"))) else None


def _lies_there(*paths: Path) -> bool:
    return any(map(os.path.lexists, paths))


def names_option(argument: str, options: frozenset[str]) -> bool:
    """Whether `argument` may be one of `options`: abbreviated, with `=value`, in a group of letters, or as the name
    of a file that a glob brings in."""
    if argument == "--":
        return False
    if options and GLOB in argument and argument[0] in (GLOB, "-"):
        return True
    word = argument.partition("=")[0]
    if word.startswith("--"):
        return any(option.startswith(word) for option in options)
    if not word.startswith("-"):
        return False
    letters = {option[1] for option in options if len(option) == 2}
    return word in options or any(letter in letters for letter in word[1:])
