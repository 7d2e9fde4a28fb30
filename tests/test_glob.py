"""Finding files by name: newest first, rules honoured and said, what is named is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corecoder.errors import Cancelled, ToolError
from corecoder.jobs import CancelToken
from corecoder.tool import ToolContext, Workspace
from corecoder.tools.glob_tool import MOST, GlobTool


@pytest.fixture
def ctx(project: Path) -> ToolContext:
    return ToolContext(Workspace.at(project))


def make(project: Path, *names: str) -> None:
    """Empty files, each a second younger than the one before it."""
    for age, name in enumerate(names):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))


def glob(ctx: ToolContext, pattern: str, path: str = ".") -> str:
    return GlobTool().run({"pattern": pattern, "path": path}, ctx).content


def test_the_newest_comes_first_and_equals_by_name(ctx: ToolContext, project: Path) -> None:
    make(project, "a.py", "src/b.py", "src/deep/c.py")
    assert glob(ctx, "**/*.py") == "src/deep/c.py\nsrc/b.py\na.py"
    os.utime(project / "a.py", ns=(1_700_000_001 * 10**9, 1_700_000_001 * 10**9))
    assert glob(ctx, "**/*.py") == "src/deep/c.py\na.py\nsrc/b.py"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**", ["src/b.py", "src/b.ts", "src/deep/c.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/deep/*", ["src/deep/c.py"]),
        ("**/*.{py,ts}", ["a.py", "src/b.py", "src/b.ts", "src/deep/c.py"]),
        ("src/b.[pt]?", ["src/b.py", "src/b.ts"]),
        ("src/[!b]*", ["src/deep/"]),
        ("*/", ["src/"]),
        ("./src/*.ts", ["src/b.ts"]),
        ("src/b.py", ["src/b.py"]),
        ("src", ["src/"]),
    ],
)
def test_patterns_mean_what_a_shell_means_by_them(
    ctx: ToolContext, project: Path, pattern: str, found: list[str]
) -> None:
    make(project, "a.py", "src/b.py", "src/b.ts", "src/deep/c.py")
    assert sorted(glob(ctx, pattern).splitlines()) == found
    assert sorted(glob(ctx, f"{project}/{pattern.removeprefix('./')}").splitlines()) == found


def test_a_name_that_is_further_down_is_found_there_and_said_so(ctx: ToolContext, project: Path) -> None:
    make(project, "src/b.py", "src/deep/b.py")
    said = glob(ctx, "b.py").splitlines()
    assert said[:2] == ["src/deep/b.py", "src/b.py"]
    assert "below it" in said[2]
    assert glob(ctx, "*.rb") == "No file matches *.rb."


def test_the_list_is_bounded_and_says_so(ctx: ToolContext, project: Path) -> None:
    make(project, *(f"f{n}.txt" for n in range(MOST * 5)))
    lines = glob(ctx, "*.txt").splitlines()
    assert lines[0] == f"f{MOST * 5 - 1}.txt"
    assert lines[MOST - 1] == f"f{MOST * 4}.txt"
    assert lines[MOST] == f"[The newest {MOST} of {MOST * 5}.]"


def test_ignored_files_are_left_out_and_named(ctx: ToolContext, project: Path) -> None:
    make(project, "a.py", "scripts/w.py", "node_modules/x.py", "b.log")
    (project / ".gitignore").write_text("scripts/*\n*.log\nnode_modules\n")
    said = glob(ctx, "**/*")
    assert said.splitlines()[0] == "a.py"
    assert "not searched: b.log, node_modules/, scripts/w.py." in said
    assert glob(ctx, "scripts/w.py") == "scripts/w.py"
    assert glob(ctx, "b.log") == "b.log"
    assert "node_modules/x.py" in glob(ctx, "*.py", "node_modules")
    assert "scripts/w.py" in glob(ctx, "*.py", "scripts")
    assert "scripts/w.py" in glob(ctx, "scripts/*.py")


def test_hidden_files_are_found_where_the_pattern_names_them(ctx: ToolContext, project: Path) -> None:
    make(project, ".github/workflows/ci.yml", "a/.env", "a/b.yml")
    assert glob(ctx, "**/*.yml") == "a/b.yml"
    assert glob(ctx, "**/.env") == "a/.env"
    assert glob(ctx, ".github/**/*.yml") == ".github/workflows/ci.yml"
    assert "Hidden and not searched: .github/." in glob(ctx, "**/*.toml")


def test_links_are_listed_and_not_followed(ctx: ToolContext, project: Path) -> None:
    make(project, "d/a.py")
    (project / "d/loop").symlink_to("..")
    (project / "d/link.py").symlink_to("a.py")
    assert sorted(glob(ctx, "**/*.py").splitlines()) == ["d/a.py", "d/link.py"]


def test_wrong_patterns_and_places_are_explained(ctx: ToolContext, project: Path) -> None:
    make(project, "a.py")
    for pattern, path, words in [
        ("", ".", "empty"),
        ("*.{py", ".", "wrong: '{' without '}'"),
        ("[a", ".", "wrong: '[' without ']'"),
        ("*", "nope", "does not exist"),
        ("*", "a.py", "not a directory"),
    ]:
        with pytest.raises(ToolError) as caught:
            glob(ctx, pattern, path)
        assert words in str(caught.value)


def test_names_cannot_forge_lines(ctx: ToolContext, project: Path) -> None:
    make(project, "a\nb.py", "c\x1b[2J.py", "ä.py")
    (project / os.fsdecode(b"\xff.py")).touch()
    assert sorted(glob(ctx, "*.py").splitlines()) == ["\\xff.py", "a\\nb.py", "c\\x1b[2J.py", "ä.py"]


def test_a_cancelled_search_ends_with_its_process(project: Path) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        glob(ToolContext(Workspace.at(project), token=token), "**/*")
