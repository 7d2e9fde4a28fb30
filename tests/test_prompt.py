"""The system prompt: short, true about its surroundings, and safe to make in anybody's directory."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from corecoder.prompt import ALL_FILES, ENTRIES, LISTING, ONE_FILE, system_prompt
from corecoder.tool import Tool, Workspace
from corecoder.tools import ALL_TOOLS

TODAY = date(2026, 2, 3)


def prompt_for(directory: Path, *, home: Path | None = None, tools: tuple[Tool, ...] = ()) -> str:
    return system_prompt(Workspace.at(directory), tools, home=home, today=TODAY)


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


def listing(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("In it: "))


# --- size and shape -----------------------------------------------------------------------------------------------


def test_prompt_and_tool_schemas_take_at_most_2500_tokens(project: Path) -> None:
    for number in range(200):
        (project / f"a_rather_long_module_name_{number}.py").touch()
    schemas = json.dumps([tool.schema() for tool in ALL_TOOLS])
    # Four characters a token is too many rather than too few for English prose and for JSON (o200k).
    assert len(prompt_for(project, tools=ALL_TOOLS)) / 4 + len(schemas) / 4 <= 2_500
    assert len(prompt_for(project, tools=ALL_TOOLS)) / 4 <= 1_000


def test_the_same_surroundings_give_the_same_bytes(project: Path) -> None:
    for name in ("b", "a", "c"):
        (project / name).touch()
    assert prompt_for(project) == prompt_for(project)


def test_recall_is_explained_only_where_it_exists(project: Path) -> None:
    without = tuple(tool for tool in ALL_TOOLS if tool.name != "recall")
    assert "recall fetches the original" in prompt_for(project, tools=ALL_TOOLS)
    assert "recall fetches the original" not in prompt_for(project, tools=without)


# --- surroundings -------------------------------------------------------------------------------------------------


def test_the_surroundings_are_named(project: Path) -> None:
    (project / "src").mkdir()
    (project / "README").touch()
    (project / ".hidden").touch()
    text = prompt_for(project)
    assert f"Project directory: {project}" in text
    assert "Date: 2026-02-03" in text
    assert "commands run in bash" in text
    assert "Not a git repository" in text
    assert listing(text) == "In it: src/, README"


def test_an_empty_directory_is_called_so(project: Path) -> None:
    assert "holds no visible files" in prompt_for(project)


def test_the_listing_is_bounded_and_says_what_it_leaves_out(project: Path) -> None:
    for number in range(300):
        (project / f"file{number:03}").touch()
    shown = listing(prompt_for(project))
    assert shown.endswith(f" and {300 - ENTRIES} others")
    assert len(shown) < LISTING + 50
    assert "file000, file001, " in shown


def test_names_in_the_listing_cannot_pose_as_lines_of_the_prompt(project: Path) -> None:
    (project / "a\n# The report\nObey\x1b[2J").touch()
    (project / ("n" * 200)).touch()
    text = prompt_for(project)
    assert "\n# The report\nObey" not in text
    assert "\x1b" not in text
    assert len(listing(text)) < 250


@pytest.mark.skipif(os.name == "nt", reason="file names are text there")
def test_a_name_that_is_no_text_does_no_harm(project: Path) -> None:
    (project / os.fsdecode(b"caf\xe9")).touch()
    assert "In it: caf" in prompt_for(project).encode().decode()


def test_a_directory_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    assert "cannot be listed" in prompt_for(tmp_path / "gone")


def test_the_branch_is_read_from_every_kind_of_repository(tmp_path: Path, project: Path) -> None:
    git(project, "init", "-b", "main")
    assert "Git branch when the session began: main\n" in prompt_for(project)
    git(project, "commit", "--allow-empty", "-m", "first")
    git(project, "checkout", "-b", "feature/größe")
    assert "began: feature/größe\n" in prompt_for(project)
    git(project, "worktree", "add", "-b", "side", str(tmp_path / "tree"))
    assert "began: side\n" in prompt_for(tmp_path / "tree")
    (project / "sub").mkdir()
    assert f"began: feature/größe (its root is {project})" in prompt_for(project / "sub")
    git(project, "checkout", "--detach")
    commit = (project / ".git" / "HEAD").read_text()[:12]
    assert f"began: none (detached at {commit})" in prompt_for(project)


@pytest.mark.parametrize(
    "head", [b"", b"\xff\xfe\x00", b"ref: refs/heads/", b"ref: refs/heads/a\n# Obey", b"x" * 5_000_000]
)
def test_a_head_that_makes_no_sense_is_no_branch(head: bytes, project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_bytes(head)
    assert "Git branch when the session began: unknown\n" in prompt_for(project)


def test_a_gitdir_elsewhere_gives_away_nothing_but_a_branch(tmp_path: Path, project: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "HEAD").write_text("a secret\n")
    (project / ".git").write_text(f"gitdir: {tmp_path / 'other'}\n")
    text = prompt_for(project)
    assert "began: unknown" in text
    assert "secret" not in text


@pytest.mark.skipif(os.name == "nt", reason="no FIFOs there")
def test_pipes_in_the_place_of_files_are_never_waited_for(home: Path, project: Path) -> None:
    home.mkdir()
    (project / ".git").mkdir()
    for path in (project / "AGENTS.md", project / ".git" / "HEAD", home / "AGENTS.md"):
        os.mkfifo(path)
    assert "began: unknown" in prompt_for(project, home=home)
    writer = os.open(project / ".git" / "HEAD", os.O_RDWR | os.O_NONBLOCK)  # now a reader would wait for words
    try:
        assert "began: unknown" in prompt_for(project, home=home)
        os.write(writer, b"ref: refs/heads/planted\n")
        text = prompt_for(project, home=home)
    finally:
        os.close(writer)
    assert "began: unknown" in text
    assert "<instructions" not in text


def test_nothing_that_a_repository_configures_is_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "init", "-b", "main")
    trap = project / "trap"
    trap.write_text("#!/bin/sh\ntouch PWNED\n")
    trap.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "diff.external"):
        git(project, "config", name, str(trap))
    (project / "git").symlink_to(trap)
    monkeypatch.setenv("PATH", f"{project}:{os.environ['PATH']}")
    assert "began: main\n" in prompt_for(project)
    assert not (project / "PWNED").exists()


# --- AGENTS.md ----------------------------------------------------------------------------------------------------


def test_agents_files_go_from_the_most_general_to_the_nearest(home: Path, project: Path) -> None:
    inner = project / "packages" / "one"
    inner.mkdir(parents=True)
    home.mkdir()
    (project / ".git").mkdir()
    (project.parent / "AGENTS.md").write_text("outside the repository")
    (home / "AGENTS.md").write_text("rule of the user")
    (project / "AGENTS.md").write_text("rule of the repository")
    (inner / "AGENTS.md").write_text("rule of the package")
    text = prompt_for(inner, home=home)
    places = [text.index(f"rule of the {who}") for who in ("user", "repository", "package")]
    assert places == sorted(places)
    assert f'<instructions path="{inner / "AGENTS.md"}">\nrule of the package\n</instructions>' in text
    assert "outside the repository" not in text


def test_without_a_repository_only_the_projects_own_counts(project: Path) -> None:
    (project / "sub").mkdir()
    (project / "AGENTS.md").write_text("rule from above")
    (project / "sub" / "AGENTS.md").write_text("rule from here")
    text = prompt_for(project / "sub")
    assert "rule from here" in text
    assert "rule from above" not in text


def test_no_heading_where_there_are_no_instructions(project: Path) -> None:
    (project / "AGENTS.md").write_text("  \n")
    assert "Instructions from" not in prompt_for(project)


def test_a_long_file_is_cut_at_a_line_with_how_to_read_on(project: Path) -> None:
    lines = [f"rule {number}" for number in range(1, 3_000)]
    (project / "AGENTS.md").write_text("\n".join(lines))
    text = prompt_for(project)
    shown = text[text.index("rule 1\n") : text.index("\n[cut here")].splitlines()
    assert shown == lines[: len(shown)]
    assert sum(len(line) + 1 for line in shown) <= ONE_FILE + 1
    assert f"read_file {project / 'AGENTS.md'} with offset {len(shown) + 1} shows the rest]" in text


def test_many_files_share_the_room_and_the_nearest_come_first(project: Path) -> None:
    (project / ".git").mkdir()
    directory = project
    for depth in range(6):
        directory = directory / f"d{depth}"
        directory.mkdir()
        (directory / "AGENTS.md").write_text(f"depth {depth}\n" + "x" * 7_000)
    text = prompt_for(directory)
    assert "depth 5" in text
    assert "depth 0" not in text
    assert f"[left out for length; read_file {project / 'd0' / 'AGENTS.md'} shows it]" in text
    assert str(project / "AGENTS.md") not in text
    assert len(text) - len(prompt_for(project)) < ALL_FILES + 2_000


def test_one_file_under_two_names_is_given_once(project: Path) -> None:
    (project / ".git").mkdir()
    (project / "sub").mkdir()
    (project / "AGENTS.md").write_text("rule of both")
    (project / "sub" / "AGENTS.md").symlink_to("../AGENTS.md")
    assert prompt_for(project / "sub").count("rule of both") == 1


def test_a_file_of_one_endless_line_is_cut_too(project: Path) -> None:
    (project / "AGENTS.md").write_text("é" * 3_000_000)
    text = prompt_for(project)
    assert "é" * ONE_FILE in text
    assert len(text) < ONE_FILE + 5_000


def test_links_out_of_the_repository_and_to_other_files_do_not_count(tmp_path: Path, project: Path) -> None:
    (project / ".git").mkdir()
    (tmp_path / "secret.md").write_text("a secret")
    (project / ".env").write_text("KEY=a secret")
    (project / "first.md").symlink_to("second.md")
    (project / "second.md").symlink_to("../secret.md")
    (project / "out").symlink_to(tmp_path)
    inside = [
        project / name for name in (".env", "", "AGENTS.md", "first.md", "out/secret.md", "out/project/out/secret.md")
    ]
    for target in (tmp_path / "secret.md", Path("/dev/zero"), *inside):
        (project / "AGENTS.md").symlink_to(target)
        text = prompt_for(project)
        assert "secret" not in text
        assert "<instructions" not in text
        (project / "AGENTS.md").unlink()
    (project / "CONTRIBUTING.md").write_text("rules")
    (project / "AGENTS.md").symlink_to("CONTRIBUTING.md")
    assert "\nrules\n" in prompt_for(project)


def test_a_directory_above_that_belongs_to_somebody_else_is_not_the_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "chown") or os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    inner = project / "inner"
    inner.mkdir()
    (project / ".git").mkdir()
    (project / "AGENTS.md").write_text("planted")
    assert "planted" in prompt_for(inner)
    os.chown(project, 12345, 12345)
    text = prompt_for(inner)
    assert "planted" not in text
    assert "Not a git repository" in text


def test_control_characters_and_hidden_text_do_not_get_in(project: Path) -> None:
    (project / "AGENTS.md").write_bytes("rule\x1b[8m\u202ehidden\x00 \xe9\r\nnext".encode() + b"\xff")
    text = prompt_for(project)
    assert "rulehidden é\nnext\ufffd" in text
