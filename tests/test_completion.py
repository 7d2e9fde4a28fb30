"""Completion: commands with their help, their arguments, and paths that a prompt then really names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import to_plain_text

from corecoder.commands import COMMANDS
from corecoder.completion import ReplCompleter
from corecoder.fileindex import FileIndex
from corecoder.mentions import expand
from corecoder.tool import Workspace

NAMES = (
    "src/agent.py",
    "src/my file.py",
    "my docs/read me.md",
    "notes.txt",
    ".github/ci.yml",
    'quo"te.py',
    "项目/文件.py",
)


def models(name: str, _typed: str) -> Iterable[tuple[str, str]]:
    known = {"model": [("fast", "cheap"), ("deep/thought", "42")]}
    return known.get(name, [])


@pytest.fixture
def completer(project: Path) -> Iterator[ReplCompleter]:
    for name in NAMES:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("content\n")
    index = FileIndex(Workspace.at(project))
    assert index.wait(30)
    yield ReplCompleter(COMMANDS, index, project, models)
    assert index.close(30)


def completions(completer: ReplCompleter, text: str) -> list[Completion]:
    return list(completer.get_completions(Document(text), CompleteEvent()))


def completed(completer: ReplCompleter, text: str) -> list[str]:
    """What the whole text becomes with each completion."""
    found = completions(completer, text)
    return [text[: len(text) + each.start_position] + each.text for each in found]


def test_a_slash_completes_every_command_with_its_help(completer: ReplCompleter) -> None:
    assert [text.strip() for text in completed(completer, "/")] == [f"/{each.name}" for each in COMMANDS]
    [found] = completions(completer, "/comp")
    assert found.text == "/compact "
    compact = next(each for each in COMMANDS if each.name == "compact")
    assert to_plain_text(found.display) == f"/compact {compact.usage}"
    assert to_plain_text(found.display_meta) == compact.summary


def test_a_part_of_a_name_finds_a_command_if_no_name_begins_so(completer: ReplCompleter) -> None:
    assert completed(completer, "/wind") == ["/rewind "]
    assert completed(completer, "/zzz") == []


def test_commands_are_completed_only_at_the_start(completer: ReplCompleter) -> None:
    assert completed(completer, "say /he") == []
    assert completed(completer, "one\n/he") == []


def test_what_a_command_takes_is_asked_of_whoever_knows(completer: ReplCompleter) -> None:
    assert completed(completer, "/model ") == ["/model fast", "/model deep/thought"]
    assert completed(completer, "/model deep/t") == ["/model deep/thought"]
    assert completed(completer, "/model Thou") == ["/model deep/thought"]
    assert to_plain_text(completions(completer, "/model f")[0].display_meta) == "cheap"
    assert completed(completer, "/exit ") == []


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("look at @agp", "look at @src/agent.py"),
        ("(@agent", "(@src/agent.py"),
        ("two\nlines @note", "two\nlines @notes.txt"),
        ("/compact keep @note", "/compact keep @notes.txt"),
        ("看@note", "看@notes.txt"),
        ("@myfile", '@"src/my file.py"'),
        ('@"my f', '@"src/my file.py"'),
        ("@mydocs", '@"my docs/'),
        ('@"my docs/', '@"my docs/read me.md"'),
        ("@src", "@src/"),
        ("@src/", "@src/agent.py"),
        ("@.g", "@.github/"),
        ("@.github/", "@.github/ci.yml"),
        ("@./no", "@./notes.txt"),
        ("@文", "@项目/文件.py"),
    ],
)
def test_paths_are_completed_behind_an_at(typed: str, first: str, completer: ReplCompleter) -> None:
    assert completed(completer, typed)[0] == first


@pytest.mark.parametrize(
    "text", ["me@not", "no", "@note x", '@"notes.txt" x', "@/nowhere/at/all", "@~nobody/x", "@/\0/"]
)
def test_elsewhere_nothing_is_completed(text: str, completer: ReplCompleter) -> None:
    assert completed(completer, text) == []


def test_files_outside_the_project_are_completed_by_their_directory(completer: ReplCompleter, tmp_path: Path) -> None:
    (tmp_path / "home" / "notes").mkdir()
    assert completed(completer, "@~/no") == ["@~/notes/"]
    assert f"@{tmp_path}/project/" in completed(completer, f"@{tmp_path}/pro")
    assert completed(completer, "@../pro") == ["@../project/"]
    (tmp_path / "home" / "notes" / "circle").symlink_to("circle")
    (tmp_path / "home" / "notes" / "clear").mkdir()
    assert completed(completer, "@~/notes/c") == ["@~/notes/circle", "@~/notes/clear/"]


def test_every_completed_path_is_one_that_a_prompt_names(completer: ReplCompleter, project: Path) -> None:
    workspace = Workspace.at(project)
    paths = {text for start in ("@", "@a", "@e", "@i", "@.", "@文", "@./") for text in completed(completer, start)}
    assert len(paths) >= 8
    for text in sorted(paths):
        result = expand(f"what is {text}", workspace, sees_images=False)
        assert len(result.notes) == 1, text
        assert not result.notes[0].startswith("not shown"), text


def test_it_loads_nothing_but_prompt_toolkit_and_text() -> None:
    program = "import sys, corecoder.completion; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name for name in ran.stdout.split() if name.startswith("corecoder")}
    assert ours == {"corecoder", "corecoder.completion", "corecoder.text"}
