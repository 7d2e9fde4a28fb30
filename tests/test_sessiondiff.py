"""The changes of a session against its start, as one diff over all files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from corecoder.agent import Agent
from corecoder.checkpoints import Bounds, Checkpoints
from corecoder.permissions import Permissions
from corecoder.scripted import ScriptedLLM, call
from corecoder.session import Session
from corecoder.sessiondiff import SessionDiff, changed_paths, session_diff
from corecoder.tool import Workspace

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX file modes and links")


def agent_for(home: Path, session: Session | None = None, bounds: Bounds | None = None) -> Agent:
    workspace = Workspace.at(Path.cwd())
    kept = Checkpoints(home, workspace, bounds)
    return Agent(
        ScriptedLLM([]),
        session=session or Session.create(home, workspace.root),
        workspace=workspace,
        permissions=Permissions("yolo", workspace),
        checkpoints=lambda: kept,
    )


def play(agent: Agent, *calls: object) -> None:
    agent.llm = ScriptedLLM([*([each] for each in calls), "done"])
    assert agent.chat("go on") == "done"


def bash(command: str) -> object:
    return call("bash", command=command)


def diff_of(agent: Agent) -> SessionDiff:
    return session_diff(agent.session, agent.checkpoints)


def test_the_diff_is_that_of_the_whole_session_and_applies_as_a_patch(
    home: Path, project: Path, tmp_path: Path
) -> None:
    (project / "a.txt").write_text("one\ntwo\nthree\n")
    (project / "sub").mkdir()
    (project / "sub" / "gone.txt").write_text("bye\n")
    (project / "same.txt").write_text("same\n")
    before = tmp_path / "before"
    shutil.copytree(project, before)
    agent = agent_for(home)
    assert diff_of(agent) == SessionDiff()
    play(agent, bash("sed -i.bak s/two/2/ a.txt && rm a.txt.bak; echo no newline | tr -d '\\n' > new.txt"))
    play(agent, call("edit_file", file_path="a.txt", old_string="three", new_string="3"))
    play(agent, bash("rm -r sub; echo other > same.txt"), bash("echo same > same.txt; touch empty.txt"))
    found = diff_of(agent)
    assert [(each.name, each.summary) for each in found.files] == [
        ("a.txt", "changed, +2 -2"),
        ("empty.txt", "new, empty"),
        ("new.txt", "new, +1 -0"),
        ("sub/gone.txt", "removed, +0 -1"),
    ]
    patch = "\n".join(each.text for each in found.files if each.text) + "\n"
    if shutil.which("git"):
        subprocess.run(["git", "apply", "-"], cwd=before, input=patch.encode(), check=True)
        assert (before / "a.txt").read_text() == "one\n2\n3\n"
        assert (before / "new.txt").read_text() == "no newline"
        assert not (before / "sub" / "gone.txt").exists()
    agent.close()


def test_binary_files_links_and_what_was_not_kept_are_named(home: Path, project: Path) -> None:
    (project / "big.txt").write_text("x" * 5000)
    (project / "bin.dat").write_bytes(b"\0\1")
    agent = agent_for(home, bounds=Bounds(one=4000))
    play(agent, bash("printf 'a\\0bc' > bin.dat; echo y > big.txt"))
    summaries = {each.name: each.summary for each in diff_of(agent).files}
    assert summaries["bin.dat"] == "changed, binary, 2 bytes -> 4 bytes"
    assert summaries["big.txt"] == "changed, its content was not kept"
    agent.close()


@posix
def test_modes_and_links_are_told(home: Path, project: Path) -> None:
    (project / "run.sh").write_text("echo\n")
    (project / "run.sh").chmod(0o644)
    agent = agent_for(home)
    play(agent, bash("chmod 755 run.sh; ln -s run.sh link; mkdir empty"))
    found = {each.name: each for each in diff_of(agent).files}
    assert found["run.sh"].summary == "changed, mode 644 -> 755"
    assert found["link"].summary == "new, a link, +1 -0"
    assert "+run.sh" in found["link"].text
    assert "empty" not in found
    agent.close()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_tools_wrote_into_an_ignored_directory_counts_and_gits_own_files_do_not(home: Path, project: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    (project / ".gitignore").write_text("out/\n")
    agent = agent_for(home)
    play(agent, call("write_file", file_path="out/x.txt", content="1\n"), bash("echo 2 > b.txt; git add b.txt"))
    assert [each.name for each in diff_of(agent).files] == ["b.txt", "out/x.txt"]
    agent.close()


def test_what_was_taken_back_is_no_change_and_words_alone_leave_the_change(home: Path, project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    agent = agent_for(home)
    play(agent, bash("echo two > a.txt"))
    play(agent, bash("echo b > b.txt"))
    agent.rewind(part="words")
    assert [each.name for each in diff_of(agent).files] == ["a.txt", "b.txt"]
    agent.rewind(1)
    assert [each.name for each in diff_of(agent).files] == ["b.txt"]
    assert changed_paths(agent.session, agent.checkpoints) == ["a.txt", "b.txt"]
    agent.close()


def test_a_copy_of_a_session_goes_on_with_the_diff_of_the_first(home: Path, project: Path) -> None:
    agent = agent_for(home)
    play(agent, bash("echo a > a.txt"))
    copy = agent.session.fork()
    play(agent, bash("echo later > later.txt"))
    agent.close()
    again = agent_for(home, Session.load(agent.session.path.with_name(f"{copy}.jsonl")))
    play(again, bash("echo b > b.txt"))
    assert [each.name for each in diff_of(again).files] == ["a.txt", "b.txt"]
    again.rewind()
    assert [each.name for each in diff_of(again).files] == ["a.txt"]
    again.close()


def test_steps_that_are_no_longer_kept_are_said(home: Path, project: Path) -> None:
    agent = agent_for(home, bounds=Bounds(stored=200_000))
    for number in range(12):
        play(agent, bash(f"head -c 30000 /dev/urandom > {number}.bin"))
    [note] = diff_of(agent).notes
    assert note.endswith("of this session changed is no longer kept.")
    agent.close()


def test_without_checkpoints_it_says_that_there_is_no_diff() -> None:
    agent = Agent(ScriptedLLM([]))
    assert diff_of(agent).notes == ("Nothing keeps what this agent changes, so there is no diff.",)
