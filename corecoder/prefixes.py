"""What "always" stands for: the first words of a command, the program and what it is told to do, such as `git commit`.

Only developers' programs that are known here get one, and of those that do many things only the words that build,
test, check, format, install or commit. They run what the project says, which is what they are for, but not whatever
the rest of the command line says, and they do not send or delete what it names. The price: another program is asked for
every time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

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
_NODE = f"add ci i install lint outdated t test run/{_ANY_WORD}"
# Programs of which the next words say what is done, as patterns; a slash stands between two of them.
_SUBCOMMANDS = {
    **dict.fromkeys(("just", "mage", "make", "rake", "task"), _ANY_WORD),  # what the project calls its own recipes
    **dict.fromkeys(("ant", "gradle", "gradlew", "mill", "mvn", "mvnw", "sbt"), _JVM),
    **dict.fromkeys(("bun", "npm", "pnpm", "yarn"), _NODE),
    **dict.fromkeys(("pdm", "poetry"), "add build check install lock"),
    **dict.fromkeys(("pip", "pip3"), "check freeze install list show"),
    "bazel": "build query test",
    "biome": "check ci format lint",
    "buf": "build format lint",
    "bundle": "add check install",
    "cabal": "build check test",
    "cargo": "add bench build check clippy doc fmt nextest test tree update",
    "composer": f"install require test validate run/{_ANY_WORD}",
    "dart": "analyze format test",
    "deno": "check fmt lint test",
    "dotnet": "build format restore test",
    "dune": "build test",
    "flutter": "analyze build test",
    "git": "add am apply cherry-pick commit merge revert",
    "go": "build fmt get list mod test",
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
    "uv": "add build lock sync tree",
    "vite": "build",
    "zig": "build fmt test",
}


def prefix(words: Sequence[str], directory: Path) -> Prefix | None:
    """The prefix of a simple command in `directory`, None for one that gets none.

    A program that is named by its path has the whole of it in its prefix, and gets one only if it is no link to a
    program of another name.
    """
    program, *arguments = words
    name = os.path.basename(program)
    if program != name:
        program = os.path.normpath(directory / os.path.expanduser(program))
        if os.path.basename(os.path.realpath(program)).partition(".")[0] != name:
            return None
    if name in _PROGRAMS:
        return (program,)
    for pattern in _SUBCOMMANDS.get(name, "").split():
        told = arguments[: pattern.count("/") + 1]
        if re.fullmatch(pattern, "/".join(told)):
            return (program, *told)
    return None


def spoken(prefixes: Sequence[Prefix]) -> str:
    """`git commit …` and `pytest …`"""
    shown = [f"`{' '.join(each)} …`" for each in prefixes]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
