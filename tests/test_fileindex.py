"""The file index: all paths of a project, found by a few letters, never waited for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corecoder.fileindex import FileIndex
from corecoder.tool import Workspace

Make = Callable[..., FileIndex]


@pytest.fixture
def make(project: Path) -> Iterator[Make]:
    """Makes files and an index that has them."""
    made: list[FileIndex] = []

    def make(*names: str) -> FileIndex:
        for name in names:
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).touch()
        made.append(FileIndex(Workspace.at(project)))
        assert made[-1].wait(30)
        return made[-1]

    yield make
    assert all(index.close(30) for index in made)


@pytest.fixture(params=["rg", "own"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ripgrep and without."""
    if request.param == "own":
        monkeypatch.setenv("PATH", "/nowhere")
    elif not shutil.which("rg"):
        pytest.skip("ripgrep is not installed")


@pytest.mark.usefixtures("either")
def test_it_has_files_and_directories_but_nothing_ignored_or_hidden(make: Make, project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".gitignore").write_text("*.log\nbuild/\n")
    index = make("a.py", "src/deep/b.py", "src/c.log", "build/out.o", ".hidden/d.py", "Grüße/ß.txt", "new\nline/e.py")
    assert index.fuzzy("", 100) == ["Grüße/", "a.py", "src/"]
    assert set(index.fuzzy("e", 100)) | set(index.fuzzy("s", 100)) == {
        "Grüße/",
        "Grüße/ß.txt",
        "src/",
        "src/deep/",
        "src/deep/b.py",
    }
    assert index.fuzzy("GRÜSS", 100) == [], "letters are compared one by one"
    assert index.fuzzy("grü/ß", 100) == ["Grüße/ß.txt"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("agent", "corecoder/agent.py"),
        ("agent.py", "corecoder/agent.py"),
        ("tagent", "tests/test_agent.py"),
        ("test_agent", "tests/test_agent.py"),
        ("fidx", "corecoder/fileindex.py"),
        ("corecoder", "corecoder/"),
        ("corecoder/", "corecoder/"),
        ("tools/bash", "corecoder/tools/bash.py"),
        ("toolbash", "corecoder/tools/bash.py"),
        ("rm", "README.md"),
        ("fti", "web/FileTableIndex.tsx"),
        ("cfg", "corecoder/config.py"),
    ],
)
def test_the_likeliest_path_comes_first(query: str, first: str, make: Make) -> None:
    index = make(
        *("corecoder/agent.py", "corecoder/fileindex.py", "corecoder/config.py", "corecoder/tools/bash.py"),
        *("tests/test_agent.py", "tests/test_bash_tool.py", "README.md", "web/FileTableIndex.tsx", "web/shift.css"),
        *("docs/agents/overview.md", "docs/management/agenda-entry.md", "a/g/e/n/t/far.txt", "old/reagent.py"),
    )
    assert index.fuzzy(query, 3)[0] == first


def test_shorter_paths_come_first_among_equals(make: Make) -> None:
    index = make("src/long/way/down/util.py", "src/util.py", "lib/down/util.py")
    assert index.fuzzy("util", 10) == ["src/util.py", "lib/down/util.py", "src/long/way/down/util.py"]


def test_letters_that_mean_something_to_a_regular_expression_are_letters(make: Make) -> None:
    index = make("a+b.c", "a^b[c].d", "c++/-x.h", "back\\slash")
    assert index.fuzzy("a+b", 5) == ["a+b.c"]
    assert index.fuzzy("^[]", 5) == ["a^b[c].d"]
    assert index.fuzzy("++-", 5) == ["c++/-x.h"]
    assert index.fuzzy("\\", 5) == ["back\\slash"]
    assert index.fuzzy("\n", 5) == index.fuzzy("", 5)


def test_typing_on_and_taking_letters_back_give_what_asking_at_once_gives(make: Make) -> None:
    names = [f"{a}/{b}_{c}.py" for a in ("user", "order", "agent") for b in ("view", "model") for c in ("test", "api")]
    index, other = make(*names), make()
    for query in ("u", "us", "usv", "usvt", "usv", "us", "o", "ov", "x", "xy", "", "a", "avt"):
        other.fuzzy("zz", 1)
        assert index.fuzzy(query, 50) == other.fuzzy(query, 50), query


def test_a_good_name_is_found_among_very_many_that_fit(make: Make) -> None:
    crowd = [f"e{n % 10}/x/{n}agents_of_it" for n in range(3000)]
    deep = "packages/frontend/components/sources/shared/tables/AgentTable.tsx"
    index = make(*crowd, deep)
    assert index.fuzzy("agentt", 5)[0] == deep
    assert index.fuzzy("age", 5)
    assert deep in index.fuzzy("tables/agent", 5)


def test_a_question_never_waits_and_a_later_one_knows(project: Path) -> None:
    (project / "a.py").touch()
    index = FileIndex(Workspace.at(project))
    assert not index.loaded
    assert index.fuzzy("a", 5) == [], "nothing is listed yet"
    assert index.wait(30)
    assert index.fuzzy("a", 5) == ["a.py"]
    assert index.close(30)
    assert index.fuzzy("a", 5) == ["a.py"], "a closed index knows what it knew"


def test_a_list_that_has_grown_old_is_made_anew(make: Make, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corecoder.fileindex.FRESH", 0.0)
    monkeypatch.setattr("corecoder.fileindex.SHARE", 0.0)
    index = make("a.py")
    (project / "b.py").touch()
    while index.fuzzy("b", 5) != ["b.py"]:
        index.wait(30)


def test_a_program_in_the_project_is_not_taken_for_ripgrep(
    make: Make, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = project / "rg"
    fake.write_text("#!/bin/sh\ntouch ran\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(project))
    assert make("a.py").fuzzy("", 5) == ["a.py", "rg"]
    assert not (project / "ran").exists()
