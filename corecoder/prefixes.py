"""What "always" stands for: the first words of a command, the program and what it is told to do, such as `git commit`.

Only developers' programs that are known here get one, and of those that do many things only the words that build,
test, check, format, install or commit. They run what the project says, which is what they are for, but not whatever
the rest of the command line says: it stays in the project, and holds nothing but options that are known here, names,
and paths in the project. The price: another program, and every other option, is asked for every time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from .shellparse import ANY, GLOB
from .tool import lies_in

Prefix = tuple[str, ...]

# Programs that do one thing.
_PROGRAMS = frozenset(
    # tests
    "ava ctest elm-test jest karma mocha nox pest phpunit pytest py.test rspec tox vitest "
    # checks
    "actionlint bandit basedpyright checkstyle codespell cppcheck credo detekt eslint flake8 hadolint hlint ktlint "
    "luacheck markdownlint markdownlint-cli2 mypy oxlint phpcs phpstan psalm pycodestyle pydocstyle pyflakes pylint "
    "pyright rubocop shellcheck standardrb staticcheck stylelint swiftlint vulture yamllint "
    # formatters
    "autopep8 black clang-format gofmt goimports isort ormolu phpcbf pint prettier rustfmt scalafmt shfmt stylua "
    "swiftformat yapf "
    # builders
    "esbuild javac kotlinc ninja rollup rustc scalac sphinx-build tsc vue-tsc webpack".split()
)
_ANY_WORD = r"[A-Za-z][\w:.-]*"
_JVM = "assemble build check clean compile install package test verify"
_NODE = f"ci i install lint outdated t test run/{_ANY_WORD}"
# Programs of which the next words say what is done, as patterns; a slash stands between two of them.
_SUBCOMMANDS = {
    **dict.fromkeys(("just", "mage", "make", "rake", "task"), _ANY_WORD),  # what the project calls its own recipes
    **dict.fromkeys(("ant", "gradle", "gradlew", "mill", "mvn", "mvnw", "sbt"), _JVM),
    **dict.fromkeys(("bun", "npm", "pnpm", "yarn"), _NODE),
    **dict.fromkeys(("pdm", "poetry"), "build check install lock"),
    **dict.fromkeys(("pip", "pip3"), "check freeze install list show"),
    "bazel": "build query test",
    "biome": "check ci format lint",
    "buf": "build format lint",
    "bundle": "check install",
    "cabal": "build check test",
    "cargo": "bench build check clippy doc fmt nextest test tree update",
    "composer": f"install test validate run/{_ANY_WORD}",
    "dart": "analyze format test",
    "deno": "check fmt lint test",
    "dotnet": "build format restore test",
    "dune": "build test",
    "flutter": "analyze build test",
    "git": "add cherry-pick commit merge revert",
    "go": "build fmt list mod test",
    "golangci-lint": "fmt run",
    "hatch": "build fmt test",
    "helm": "lint template",
    "meson": "compile setup test",
    "mix": "compile credo dialyzer format test",
    "mkdocs": "build",
    "playwright": "test",
    "pre-commit": "run",
    "ruff": "check format",
    "sqlfluff": "fix lint",
    "stack": "build test",
    "swift": "build test",
    "terraform": "fmt validate",
    "turbo": "build lint test",
    "uv": "build lock sync tree",
    "vite": "build",
    "zig": "build fmt test",
}
# What is named behind these comes from elsewhere, and runs: `npm install x`.
_INSTALLERS = frozenset("bun bundle composer npm pdm pip pip3 pnpm poetry yarn".split())
_INSTALLS = frozenset(("ci", "i", "install"))
# Options that change how much is done and said, and never what is run, read from or written to; `=` stands behind those
# that take any text and `:` behind those that take a path.
_ALL = "-q -v -h --color --help --quiet --verbose --version"
_GO_FORMAT = "-d -l -s -w"
_IN_PLACE = "-d -i -r --diff --in-place --recursive"
_NODE_OPTIONS = "-s --frozen-lockfile --ignore-scripts --if-present --no-audit --no-fund --silent --workspaces"
_PIP = "-U -e: -r: --editable: --no-cache-dir --no-deps --requirement: --upgrade --user"
_PYTEST = (
    "-k= -l -m= -n -ra -rA -s -x --capture --co --collect-only --cov --cov-report --durations --exitfirst "
    "--failed-first --ff --last-failed --lf --maxfail --no-cov --no-header --no-summary --nf --showlocals "
    "--stepwise --sw --tb"
)
_REPLAY = "-n -x --abort --continue --no-commit --no-edit --skip"
_OPTIONS = {
    **dict.fromkeys(("autopep8", "yapf"), _IN_PLACE),
    **dict.fromkeys(("bun", "npm", "pnpm", "yarn"), _NODE_OPTIONS),
    **dict.fromkeys(("git cherry-pick", "git revert"), _REPLAY),
    **dict.fromkeys(("gofmt", "goimports", "shfmt"), _GO_FORMAT),
    **dict.fromkeys(("gradle", "gradlew"), "--continue --info --no-daemon --offline --parallel --stacktrace --tests="),
    **dict.fromkeys(("mvn", "mvnw"), "-B -DskipTests -U -e -o"),
    **dict.fromkeys(("pip", "pip3"), _PIP),
    **dict.fromkeys(("py.test", "pytest"), _PYTEST),
    "bandit": "-l -r",
    "black": "-S -l --check --diff --line-length --preview",
    "cargo": "-- -A -D -W -j -p -r --all --all-features --all-targets --benches --bin --bins --check --doc --exact "
    "--example --examples --features --frozen --ignored --jobs --keep-going --lib --locked --message-format "
    "--no-default-features --no-fail-fast --no-run --nocapture --offline --package --release --show-output --test "
    "--test-threads --tests --workspace",
    "clang-format": "-i --dry-run",
    "ctest": "-E= -R= -V -VV -j --output-on-failure --rerun-failed",
    "dotnet": "-c --configuration --filter= --no-build --no-restore",
    "eslint": "--cache --ext --fix --max-warnings",
    "flake8": "--count --ignore --max-line-length --select --statistics",
    "git add": "-A -N -p -u --all --intent-to-add --patch --update",
    "git commit": "-a -am= -m= -s --all --allow-empty --amend --message= --no-edit --signoff",
    "git merge": "-m= --abort --continue --ff-only --no-commit --no-edit --no-ff --squash",
    "go": "-bench= -benchmem -count -cover -failfast -json -m -p -parallel -race -run= -short -tags -timeout",
    "isort": "--check --check-only --diff --profile",
    "jest": "-b -i -t= --bail --ci --coverage --runInBand --silent --testNamePattern=",
    "make": "-B -i -j -k -n -s --always-make --dry-run --jobs --keep-going --silent",
    "mocha": "-b -g= --bail --grep=",
    "mypy": "-m -p --ignore-missing-imports --no-error-summary --no-incremental --pretty --python-version "
    "--show-error-codes --strict",
    "ninja": "-j -k -n",
    "phpunit": "--filter=",
    "pre-commit": "-a --all-files --files",
    "prettier": "-c -l -w --check --list-different --write",
    "pylint": "-E --disable --enable --errors-only",
    "rspec": "-e= --example= --fail-fast",
    "ruff": "--check --diff --fix --ignore --no-cache --output-format --preview --select --statistics --unsafe-fixes",
    "rustfmt": "--check",
    "shellcheck": "-S -e -f -s -x",
    "swift": "--filter=",
    "terraform": "-check -diff -recursive",
    "tox": "-e -p",
    "tsc": "-b -p --build --noEmit --pretty --project",
    "uv": "--all-extras --all-groups --dev --extra --frozen --locked --no-dev",
    "vitest": "-t= --coverage --run --testNamePattern=",
}
# A name, a path or a test in a file; a pattern only in its last part, and not where it may bring in an option.
_WORD = re.compile(r"(?![^,]*/.*,|[^/]*,.*/)[\w./](?:[\w./@+,~^\[\]-]|::)*(?::\d+|\0[^/]*)?")


def prefix(words: Sequence[str], directories: Sequence[Path], project: Path) -> Prefix | None:
    """The prefix of a simple command that may run in any of `directories`, None for one that gets none, which then no
    prefix covers.

    A program that is named by its path has the whole of it in its prefix, and gets one only if it is no link to a
    program of another name, and if there is one directory.
    """
    program, *arguments = words
    name = os.path.basename(program)
    if program != name:
        program = os.path.normpath(directories[0] / os.path.expanduser(program))
        if len(directories) > 1 or os.path.basename(os.path.realpath(program)).partition(".")[0] != name:
            return None
    told = _told(name, arguments)
    if told is None or not all(lies_in(directory, project) for directory in directories):
        return None
    paths = _paths(name, told, arguments[len(told) :])
    if any(path is None or not _is_inside(path, directories, project) for path in paths):
        return None
    return (program, *told)


def _told(name: str, arguments: list[str]) -> list[str] | None:
    """The words that say what the program does, None where it gets no prefix."""
    if name in _PROGRAMS:
        return []
    for pattern in _SUBCOMMANDS.get(name, "").split():
        told = arguments[: pattern.count("/") + 1]
        if re.fullmatch(pattern, "/".join(told)):
            return told
    return None


def _paths(name: str, told: Sequence[str], rest: Sequence[str]) -> Iterator[str | None]:
    """Whatever in the `rest` of a command may be a path; None for a word that is not known to be harmless."""
    options = f"{_ALL} {_OPTIONS.get(name, '')} {_OPTIONS.get(' '.join([name, *told[:1]]), '')}".split()
    known = {option.rstrip("=:"): option[-1] for option in options}
    installs = name in _INSTALLERS and not _INSTALLS.isdisjoint(told)
    words = iter(rest)
    for word in words:
        option, given, value = word.partition("=")
        kind = known.get(option)
        if not word.startswith("-"):
            yield word if word[:1] == "." or not installs else None
        elif kind in ("=", ":"):
            value = value if given else next(words, "-")
            # Some programs take what looks like an option for one, here too.
            unclear = ANY in value or GLOB in value or value.startswith("-")
            yield None if unclear else value if kind == ":" else "."
        elif kind:
            yield value if given else "."
        else:
            group = re.fullmatch(r"-[A-Za-z]+\d*", word)  # `-qx` and `-j4`
            yield "." if group and all(f"-{letter}" in options for letter in word[1:].rstrip("0123456789")) else None


def _is_inside(path: str, directories: Sequence[Path], project: Path) -> bool:
    """Whether `path` leads to no place outside the project, nor to git's own files."""
    if not _WORD.fullmatch(path) or ".git" in path.casefold().split("/"):
        return False
    file, behind, _ = path.replace(GLOB, "*").partition(":")
    # Elsewhere than behind a file a colon may name a plugin to fetch: `mvn test exec::java`.
    if behind and not any(os.path.isfile(directory / file) for directory in directories):
        return False
    return all(lies_in(directory / file, project) for directory in directories)


def spoken(prefixes: Sequence[Prefix]) -> str:
    """`git commit …` and `pytest …`"""
    shown = [f"`{' '.join(each)} …`" for each in prefixes]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
