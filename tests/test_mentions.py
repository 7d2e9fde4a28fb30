"""@path in a prompt: what is named is put below the words, bounded, readable and never a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corecoder.agent import Agent
from corecoder.errors import Cancelled
from corecoder.jobs import CancelToken
from corecoder.mentions import ENOUGH, ENTRIES, PICTURES, Expanded, expand
from corecoder.scripted import ScriptedLLM
from corecoder.session import Session
from corecoder.text import typed
from corecoder.tool import ToolContext, Workspace
from corecoder.tools.edit_file import EditFileTool
from corecoder.tools.read_file import LINES

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def workspace(project: Path) -> Workspace:
    (project / "src").mkdir()
    (project / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (project / "name with spaces.py").write_text("blank\n")
    return Workspace.at(project)


def expanded(prompt: str, workspace: Workspace, *, sees_images: bool = False) -> Expanded:
    result = expand(prompt, workspace, sees_images=sees_images)
    assert typed(result.text) == prompt
    return result


def test_a_file_stands_below_the_words_with_its_line_numbers(workspace: Workspace) -> None:
    result = expanded("fix @src/a.py please", workspace)
    assert result.text.startswith("fix @src/a.py please\n\n")
    assert '<attached path="src/a.py">\n1\tone\n2\ttwo\n3\tthree\n</attached>' in result.text
    assert result.notes == ("src/a.py (3 lines)",)


@pytest.mark.parametrize(
    ("prompt", "notes"),
    [
        ("@src/a.py, @src/a.py. (@src/a.py) `@src/a.py`: '@src/a.py'!", ["src/a.py (3 lines)"]),
        ('see @"name with spaces.py".', ["name with spaces.py (1 line)"]),
        ('go on in @"name with spaces.py', ["name with spaces.py (1 line)"]),
        ("@src/a.py:2-3.", ["src/a.py (lines 2 to 3 of 3)"]),
        ("@src/a.py:2", ["src/a.py (lines 2 to 2 of 3)"]),
        ("@src/a.py:2-", ["src/a.py (lines 2 to 3 of 3)"]),
        ('@"src/a.py":1-1', ["src/a.py (lines 1 to 1 of 3)"]),
        ("看看@src/a.py的第二行，好吗", ["src/a.py (3 lines)"]),
        ("@src/ and @src", ["src/ (1 entry)"]),
        ("@./src/a.py", ["src/a.py (3 lines)"]),
    ],
)
def test_a_name_may_stand_anywhere_in_a_sentence(prompt: str, notes: list[str], workspace: Workspace) -> None:
    assert list(expanded(prompt, workspace).notes) == notes


@pytest.mark.parametrize(
    "prompt",
    [
        "nothing here",
        "mail me@src/a.py",
        "git@src/a.py:2",
        "pkg/@src/a.py",
        "@property\ndef f(): ...",
        "npm install @types/node",
        "import x from '@/components'",
        '@ @. @.. @... @/ @: @"" @"x',
        "@src/b.py:1-2",
        "@src:1",
        "@" + "x" * 5000,
        "@nul\0name",
        "@\udce9",
    ],
)
def test_what_names_nothing_stays_text(prompt: str, workspace: Workspace) -> None:
    assert expand(prompt, workspace, sees_images=True) == Expanded(prompt)


def test_a_name_with_a_colon_or_a_dot_at_its_end_is_found_as_it_is(workspace: Workspace) -> None:
    (workspace.root / "a.py:1-2").write_text("colon\n")
    (workspace.root / "what.").write_text("dot\n")
    assert expanded("@a.py:1-2 @what.", workspace).notes == ("a.py:1-2 (1 line)", "what. (1 line)")


def test_lines_that_are_not_there_are_said_to_be_missing(workspace: Workspace) -> None:
    result = expanded("@src/a.py:9", workspace)
    assert result.notes == ("not shown: src/a.py has 3 lines; offset 9 is beyond its end.",)
    assert "beyond its end" in result.text


def test_paths_are_looked_up_in_the_project_and_then_where_the_shell_is(workspace: Workspace) -> None:
    workspace.cwd = workspace.root / "src"
    assert '<attached path="a.py">' in expanded("@a.py", workspace).text
    assert '<attached path="a.py">' in expanded("@src/a.py", workspace).text, "as the model has to write it there"


def test_what_was_shown_can_be_edited_without_another_read(workspace: Workspace) -> None:
    expanded("@src/a.py", workspace)
    arguments = {"file_path": "src/a.py", "old_string": "two", "new_string": "2"}
    EditFileTool().run(arguments, ToolContext(workspace))
    assert (workspace.root / "src" / "a.py").read_text() == "one\n2\nthree\n"


def test_a_long_file_is_bounded_and_says_how_to_read_on(workspace: Workspace) -> None:
    (workspace.root / "long.txt").write_text("".join(f"{n}\n" for n in range(5000)))
    result = expanded("@long.txt", workspace)
    assert f"[lines 1 to {LINES} of 5,000; go on with offset {LINES + 1}]" in result.text
    assert result.notes == (f"long.txt (lines 1 to {LINES} of 5,000)",)


def test_many_files_are_bounded_together(workspace: Workspace) -> None:
    for number in range(10):
        (workspace.root / f"f{number}.txt").write_text(f"{'x' * 1000}\n" * 30)
    result = expanded(" ".join(f"@f{number}.txt" for number in range(10)), workspace)
    assert len(result.text) < 2 * ENOUGH
    assert result.notes[0] == "f0.txt (30 lines)"
    assert result.notes[-1].startswith("not shown: f9.txt")
    assert "f9.txt is not shown, for there is much above already. Read it with read_file." in result.text


def test_what_is_no_text_is_refused_in_words(workspace: Workspace) -> None:
    (workspace.root / "tool").write_bytes(b"\x7fELF" + bytes(100))
    os.mkfifo(workspace.root / "pipe")
    with (workspace.root / "huge.log").open("wb") as file:
        file.truncate(30_000_000)
    result = expanded("@tool @pipe @huge.log", workspace)
    assert "tool is an ELF program (104 bytes), not text." in result.text
    assert "pipe is a named pipe, not a file." in result.text
    assert "huge.log has 30,000,000 bytes, too many for this tool" in result.text
    assert all(note.startswith("not shown: ") for note in result.notes)


def test_a_directory_is_listed_without_what_rules_ignore(workspace: Workspace) -> None:
    (workspace.root / ".git").mkdir()
    (workspace.root / ".gitignore").write_text("build/\n")
    (workspace.root / "build").mkdir()
    (workspace.root / "build" / "out.o").write_text("")
    (workspace.root / "src" / "deep").mkdir()
    (workspace.root / "src" / "deep" / "b.py").write_text("")
    text = expanded("@./", workspace).text
    listed = text.partition('<attached path="./">\n')[2].splitlines()
    assert listed[:5] == ["name with spaces.py", "src/", "src/a.py", "src/deep/", "src/deep/b.py"]
    assert "build/" in listed[5]
    assert "out.o" not in text
    assert "build/out.o" in expanded("@build", workspace).text, "what is named is shown all the same"


def test_a_large_directory_is_listed_from_its_top_and_bounded(workspace: Workspace) -> None:
    for number in range(ENTRIES + 50):
        (workspace.root / "src" / f"f{number:03}.txt").write_text("")
    result = expanded("@src/", workspace)
    assert result.notes == (f"src/ (the first {ENTRIES} entries)",)
    assert "glob finds the others" in result.text
    assert f"f{ENTRIES + 10:03}" not in result.text


def test_a_directory_that_cannot_be_read_is_said(workspace: Workspace) -> None:
    (workspace.root / "empty").mkdir()
    assert "(nothing)" in expanded("@empty", workspace).text
    if os.getuid():
        (workspace.root / "empty").chmod(0)
        assert expanded("@empty", workspace).notes == ("not shown: empty: Permission denied.",)


def test_a_picture_goes_to_a_model_that_sees(workspace: Workspace) -> None:
    (workspace.root / "shot.png").write_bytes(PNG)
    result = expanded("what is on @shot.png?", workspace, sees_images=True)
    assert [image[:22] for image in result.images] == ["data:image/png;base64,"]
    assert result.notes == ("shot.png (picture)",)
    blind = expanded("what is on @shot.png?", workspace)
    assert blind.images == ()
    assert "takes no pictures" in blind.notes[0]


def test_pictures_are_bounded_in_number(workspace: Workspace) -> None:
    for number in range(PICTURES + 1):
        (workspace.root / f"{number}.png").write_bytes(PNG)
    result = expanded(" ".join(f"@{number}.png" for number in range(PICTURES + 1)), workspace, sees_images=True)
    assert len(result.images) == PICTURES
    assert result.notes[-1].startswith(f"not shown: {PICTURES}.png")


@pytest.mark.skipif(os.name == "nt" or not os.getuid(), reason="root may look everywhere")
def test_a_link_that_leads_where_nobody_may_look_is_said(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0)
    (workspace.root / "link").symlink_to(tmp_path / "closed" / "x")
    assert expanded("@link", workspace).notes[0].startswith("not shown: link")


@pytest.mark.parametrize("name", [".env", "deploy/id_rsa", "link"])
def test_a_file_that_may_hold_secrets_is_left_out(name: str, workspace: Workspace) -> None:
    (workspace.root / "deploy").mkdir()
    for secret in (".env", "deploy/id_rsa"):
        (workspace.root / secret).write_text("hunter2\n")
    (workspace.root / "link").symlink_to(workspace.root / ".env")
    result = expanded(f"use @{name}", workspace)
    assert "hunter2" not in result.text
    assert result.notes == (f"not shown: {name} may hold secrets",)
    assert workspace.seen == {}


def test_what_the_person_names_outside_the_project_is_shown(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("elsewhere\n")
    (tmp_path / "home" / "notes.txt").write_text("at home\n")
    assert "1\telsewhere" in expanded(f"@{tmp_path}/outside.txt", workspace).text
    assert "1\telsewhere" in expanded("@../outside.txt", workspace).text
    assert "1\tat home" in expanded("@~/notes.txt", workspace).text


def test_it_stops_when_it_is_cancelled(workspace: Workspace) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        expand("@src/", workspace, sees_images=False, token=token)


def test_lists_show_the_typed_words_and_not_the_files(workspace: Workspace, home: Path) -> None:
    session = Session.create(home, workspace.root)
    agent = Agent(ScriptedLLM(["ok"]), workspace=workspace, session=session)
    list(agent.run(expanded("fix @src/a.py", workspace).text))
    agent.close()
    assert [info.title for info in Session.listing(home, workspace.root)] == ["fix @src/a.py"]
    assert [turn.words for turn in agent.turns()] == ["fix @src/a.py"]


def test_the_facts_of_a_compaction_quote_the_words_alone(workspace: Workspace) -> None:
    agent = Agent(
        ScriptedLLM([f"answer {n} {'x' * 400}" for n in range(6)] + ["the summary of it all " * 20]),
        workspace=workspace,
    )
    list(agent.run(expanded("fix @src/a.py", workspace).text))
    for number in range(5):
        list(agent.run(f"go on {number}"))
    list(agent.compact())
    memory = str(agent.session.view[0]["content"])
    assert "fix @src/a.py" in memory
    assert "1\tone" not in memory
