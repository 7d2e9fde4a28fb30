"""Undo: what a step changes comes back, byte for byte, and what somebody else changed stays."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corecoder.agent import Agent
from corecoder.checkpoints import Bounds, Checkpoints
from corecoder.errors import CoreCoderError
from corecoder.events import Event, Notice
from corecoder.jobs import CancelToken
from corecoder.messages import unpaired
from corecoder.permissions import Permissions
from corecoder.scripted import ScriptedLLM, call
from corecoder.session import Session
from corecoder.sessiondir import project_directory
from corecoder.snapshot import ignored_directories, repository
from corecoder.tool import Workspace

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX file modes and links")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


class Project:
    """An agent in the current directory, and what is asked of it; everything runs without a question."""

    def __init__(self, home: Path, *, session: Session | None = None, bounds: Bounds | None = None) -> None:
        self.home = home
        self.root = Path.cwd()
        workspace = Workspace.at(self.root)
        self.llm = ScriptedLLM([])
        self.kept = Checkpoints(home, workspace, bounds)
        self.agent = Agent(
            self.llm,
            session=session or Session.create(home, self.root),
            workspace=workspace,
            permissions=Permissions("yolo", workspace),
            checkpoints=lambda: self.kept,
        )

    def play(self, *commands: str) -> list[Event]:
        """One turn in which the model runs these commands, one in each step."""
        return self.calls(*(call("bash", command=command) for command in commands))

    def calls(self, *calls: Any) -> list[Event]:
        self.script([*([each] for each in calls), "done"])
        events = list(self.agent.run(f"turn {len(self.agent.session.turns) + 1}"))
        assert unpaired(self.agent.session.view) == []
        return events

    def script(self, replies: list[Any]) -> None:
        self.agent.llm = ScriptedLLM(replies)

    def notices(self, events: list[Event]) -> list[str]:
        return [event.text for event in events if isinstance(event, Notice)]

    def outcome(self, number: int | None = None, *, force: bool = False) -> dict[str, str]:
        done = self.agent.rewind(number, force=force)
        assert unpaired(self.agent.session.view) == []
        return {change.path: change.action for change in done.files}


@pytest.fixture
def at(home: Path) -> Iterator[Project]:
    project = Project(home)
    yield project
    project.agent.close()


def write(name: str, data: bytes | str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def git(*arguments: str) -> bytes:
    command = ["git", "-c", "user.name=user", "-c", "user.email=user@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


# -- what comes back


@posix
def test_files_directories_links_and_modes_come_back_as_they_were(at: Project) -> None:
    write("src/a.py", b"one\r\ntwo\xff")
    write("src/deep/b.py", "b")
    write("run.sh", "#!/bin/sh\n").chmod(0o750)
    Path("empty").mkdir(mode=0o711)
    Path("link").symlink_to("src/a.py")
    at.play(
        "sed -i s/one/1/ src/a.py; rm -r src/deep; rmdir empty", "chmod 600 run.sh; ln -sfn run.sh link; echo > new"
    )
    assert at.outcome() == {
        "empty": "create",
        "link": "restore",
        "new": "remove",
        "run.sh": "restore",
        "src/a.py": "restore",
        "src/deep": "create",
        "src/deep/b.py": "create",
    }
    assert Path("src/a.py").read_bytes() == b"one\r\ntwo\xff"
    assert Path("src/deep/b.py").read_text() == "b"
    assert [Path(name).stat().st_mode & 0o777 for name in ("run.sh", "empty")] == [0o750, 0o711]
    assert os.readlink("link") == "src/a.py"
    assert not Path("new").exists()


def test_files_that_tools_write_come_back_without_a_look_at_the_project(at: Project, tmp_path: Path) -> None:
    write("a.py", "a = 1\n")
    outside = tmp_path / "outside.txt"
    at.calls(
        call("edit_file", file_path="a.py", old_string="1", new_string="2"),
        call("write_file", file_path="new/deep/b.py", content="b = 1\n"),
        call("write_file", file_path=str(outside), content="x"),
    )
    assert outside.exists()
    assert set(at.outcome()) == {"a.py", "new", "new/deep", "new/deep/b.py", str(outside)}
    assert Path("a.py").read_text() == "a = 1\n"
    assert not Path("new").exists()
    assert not outside.exists()


def test_steps_that_change_nothing_keep_nothing(at: Project, home: Path) -> None:
    write("a.py", "a = 1\n")
    at.calls(call("read_file", file_path="a.py"), call("bash", command="ls"), call("grep", pattern="a"))
    assert not (home / "checkpoints").exists()
    assert at.outcome() == {}
    assert at.agent.session.view == []


@posix
def test_a_directory_that_was_replaced_by_a_link_is_not_written_through(at: Project, tmp_path: Path) -> None:
    write("src/a.py", "mine")
    (tmp_path / "elsewhere").mkdir()
    at.play(f"rm -r src; ln -s {tmp_path}/elsewhere src")
    at.outcome()
    assert not Path("src").is_symlink()
    assert Path("src/a.py").read_text() == "mine"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_whole_project_comes_back_after_it_was_removed(at: Project, project: Path) -> None:
    write("src/a.py", "a")
    write("b.txt", "b")
    at.play(f"rm -rf {project}")
    assert not project.exists()
    at.outcome()
    assert (project / "src/a.py").read_text() == "a"
    assert (project / "b.txt").read_text() == "b"


def test_a_file_that_is_changed_twice_within_a_moment_comes_back(at: Project) -> None:
    path = write("a", "1")
    for text in ("2", "3", "4"):
        at.play(f"printf {text} > a")
    at.outcome()
    assert path.read_text() == "3"
    at.outcome(1)
    assert path.read_text() == "1"


# -- turns and the conversation


def test_turns_are_listed_with_what_each_changed(at: Project) -> None:
    write("a", "1")
    at.play("echo 2 > a")
    at.play("ls")
    at.play("rm a; mkdir b")
    assert [(turn.number, turn.words, turn.files) for turn in at.agent.turns()] == [
        (1, "turn 1", ("a",)),
        (2, "turn 2", ()),
        (3, "turn 3", ("a", "b")),
    ]


def test_a_rewind_takes_all_turns_from_there_on_back(at: Project) -> None:
    write("a", "1")
    at.play("echo 2 > a")
    view = at.agent.session.view
    at.play("echo 3 > a; echo > b")
    at.play("rm a; echo > c")
    assert at.outcome(2) == {"a": "create", "b": "remove", "c": "remove"}
    assert Path("a").read_text() == "2\n"
    assert at.agent.session.view == view
    assert [turn.number for turn in at.agent.turns()] == [1]


def test_a_session_that_is_loaded_again_goes_on_from_the_rewind(at: Project) -> None:
    write("a", "1")
    at.play("echo 2 > a")
    at.play("echo 3 > a")
    at.outcome()
    at.play("echo 4 > a")
    view, path = at.agent.session.view, at.agent.session.path
    at.agent.close()
    again = Project(at.home, session=Session.load(path))
    assert again.agent.session.view == view
    assert [turn.words for turn in again.agent.turns()] == ["turn 1", "turn 2"]
    assert not any("echo 3" in str(message) for _, message in again.agent.session.messages())
    assert again.outcome(1) == {"a": "restore"}
    assert Path("a").read_text() == "1"
    again.agent.close()


def test_a_copy_of_a_session_can_undo_what_the_first_one_did_before(at: Project) -> None:
    write("a", "1")
    at.play("echo 2 > a")
    copy = Project(at.home, session=Session.load(at.agent.session.path))
    assert copy.agent.session.id != at.agent.session.id
    at.play("echo theirs > b")
    copy.play("echo mine > c")
    assert copy.outcome(1) == {"a": "restore", "c": "remove"}
    assert Path("b").exists()
    copy.agent.close()


def test_the_view_before_a_turn_comes_back_even_if_it_was_compacted_since(at: Project) -> None:
    at.play("echo 1 > a")
    view = at.agent.session.view
    at.play("echo 2 > a")
    session = at.agent.session
    session.replace_view([{"role": "user", "content": "all of it, shorter"}], how="summary")
    at.play("echo 3 > a")
    at.outcome(2)
    assert session.view == view
    assert not session.undo()


def test_the_shell_is_where_it_was_before_the_turn(at: Project, project: Path) -> None:
    at.play("mkdir sub; cd sub")
    assert at.agent.workspace.cwd == project / "sub"
    at.outcome()
    assert at.agent.workspace.cwd == project


def test_without_checkpoints_the_conversation_goes_back_and_that_files_do_not_is_said(project: Path) -> None:
    workspace = Workspace.at(project)
    llm = ScriptedLLM([[call("write_file", file_path="a", content="1")], "done"])
    agent = Agent(llm, workspace=workspace, permissions=Permissions("yolo", workspace))
    agent.chat("go")
    assert agent.rewind().notes == ("files stay as they are: nothing keeps what this agent changes",)
    assert agent.session.view == []
    assert Path("a").exists()


def test_there_is_nothing_to_undo_at_first_and_no_turn_out_of_range(at: Project) -> None:
    with pytest.raises(CoreCoderError, match="no turn to undo"):
        at.agent.rewind()
    at.play("ls")
    with pytest.raises(CoreCoderError, match="turns of this session are 1 to 1"):
        at.agent.rewind(2)


# -- what is the user's own


def test_what_the_user_changed_in_other_files_stays(at: Project) -> None:
    write("a", "1")
    write("b", "1")
    at.play("echo 2 > a")
    write("b", "mine")
    write("new/c", "mine")
    at.play("echo 3 > a")
    write("d", "mine")
    assert at.outcome(1) == {"a": "restore"}
    assert [Path(name).read_text() for name in ("b", "new/c", "d")] == ["mine"] * 3


@pytest.mark.parametrize("when", ["since", "in between"])
def test_what_both_changed_is_left_unless_it_is_forced(at: Project, when: str) -> None:
    write("a", "1")
    at.play("echo 2 > a; echo > b")
    write("a", "mine")
    if when == "in between":
        at.play("echo 3 >> a")
    seen = Path("a").read_text()
    plan = at.agent.preview(1)
    assert {change.path: (change.action, change.forcible) for change in plan.files} == {
        "a": ("leave", True),
        "b": ("remove", False),
    }
    assert (Path("a").read_text(), Path("b").exists()) == (seen, True)  # a preview does nothing
    assert at.outcome(1)["a"] == "leave"
    assert Path("a").read_text() == seen


def test_force_brings_back_what_both_changed(at: Project) -> None:
    write("a", "1")
    at.play("echo 2 > a")
    write("a", "mine")
    assert at.outcome(force=True) == {"a": "restore"}
    assert Path("a").read_text() == "1"


@pytest.mark.parametrize("bounds", [Bounds(one=1000), Bounds(in_all=1000)])
@pytest.mark.parametrize("when", ["since", "in between"])
@pytest.mark.parametrize("how", ["replaced", "appended to", "of the same size and age"])
def test_what_the_user_made_of_a_file_that_was_not_kept_stays(home: Path, bounds: Bounds, when: str, how: str) -> None:
    at = Project(home, bounds=bounds)
    at.play("head -c 5000 /dev/zero > big; head -c 5000 /dev/zero > theirs")
    info = os.stat("big")
    mine = {"replaced": b"mine" * 2000, "appended to": bytes(5000) + b"mine", "of the same size and age": b"m" * 5000}
    write("mine", mine[how])
    os.utime("mine", ns=(info.st_atime_ns, info.st_mtime_ns))
    os.replace("mine", "big")
    if when == "in between":
        at.play("printf x >> big; touch other")
    seen = Path("big").read_bytes()
    assert {change.path: change.forcible for change in at.agent.preview(1).files}["big"]
    done = at.outcome(1)
    assert (done["big"], done["theirs"]) == ("leave", "remove")
    assert Path("big").read_bytes() == seen
    assert not Path("theirs").exists()
    assert at.outcome(1, force=True)["big"] == "remove"
    at.agent.close()


@needs_git
@pytest.mark.parametrize(
    "command", ["mv big new", "gzip < big > new; rm big", "mv data new", "mv data/mine new; rmdir data"]
)
def test_what_may_hold_all_that_is_left_of_what_was_not_kept_stays(home: Path, command: str) -> None:
    git("init", "-q")
    write(".gitignore", "data/\n")
    write("big", b"mine" * 500)
    write("data/mine", "mine")
    at = Project(home, bounds=Bounds(one=1000))
    at.play("head -c 2000 /dev/zero > own", "cp own copy; rm own; echo > first", f"{command}; echo > second")
    files = [path for path in (Path("new"), Path("new/mine")) if path.is_file()]
    seen = [path.read_bytes() for path in files]
    done = {change.path: (change.action, change.reason) for change in at.agent.rewind().files}
    assert done[str(files[0])] == ("leave", "it may hold what could not be kept")
    assert (done["first"], done["copy"]) == (("remove", ""), ("remove", ""))
    assert [path.read_bytes() for path in files] == seen
    assert at.outcome(force=True)[str(files[0])] == "remove"
    at.agent.close()


def test_what_was_renamed_stays_under_its_new_name_where_the_old_one_is_left(at: Project) -> None:
    write("a", "1")
    at.play("mv a b; echo > c")
    write("a", "mine")
    assert at.outcome() == {"a": "leave", "b": "leave", "c": "remove"}
    assert [Path(name).read_text() for name in "ab"] == ["mine", "1"]
    assert at.outcome(force=True) == {"a": "restore", "b": "remove"}
    assert Path("a").read_text() == "1"


def test_a_directory_that_the_user_put_something_into_stays(at: Project) -> None:
    at.play("mkdir -p made/deep; touch made/deep/x")
    write("made/mine", "mine")
    assert {change.path: change.action for change in at.agent.preview().files}["made"] == "leave"
    assert at.outcome() == {"made": "leave", "made/deep": "remove", "made/deep/x": "remove"}
    assert os.listdir("made") == ["mine"]
    assert at.agent.turns() == []  # asking again would not help


def test_what_was_left_can_be_forced_afterwards_or_left_for_good(at: Project) -> None:
    write("a", "1")
    for force, content in ((True, "1"), (False, "mine")):
        at.play("echo 2 > a; echo > b")
        view = at.agent.session.view
        write("a", "mine")
        assert at.outcome() == {"a": "leave", "b": "remove"}
        assert (at.agent.session.view, Path("a").read_text()) == (view, "mine")
        assert at.agent.rewind(force=force, keep=not force).taken_back
        assert (at.agent.session.view, Path("a").read_text()) == ([], content)


def test_a_preview_says_that_what_was_made_while_a_command_ran_may_be_the_users(at: Project) -> None:
    at.calls(call("write_file", file_path="a", content="1"))
    assert at.agent.preview().notes == ()
    at.play("echo > b")
    assert "by hand while a command ran" in at.agent.preview().notes[0]


@posix
def test_an_undo_that_failed_can_be_repeated_also_after_loading(at: Project, tmp_path: Path) -> None:
    write("src/a", "1")
    write("b", "1")
    at.play("rm src/a; echo 2 > b")
    view = at.agent.session.view
    shutil.move("src", tmp_path / "src")
    Path("src").symlink_to(tmp_path / "src")
    assert at.outcome() == {"b": "restore", "src/a": "leave"}
    assert at.agent.session.view == view
    at.agent.close()
    again = Project(at.home, session=Session.load(at.agent.session.path))
    Path("src").unlink()
    shutil.move(tmp_path / "src", "src")
    assert again.outcome() == {"src/a": "create"}
    assert (Path("src/a").read_text(), again.agent.session.view) == ("1", [])
    again.agent.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs room that can be reserved")
def test_a_file_with_two_names_for_which_there_is_no_room_stays_as_it_is_until_there_is(at: Project) -> None:
    import resource  # POSIX alone

    write("a", bytes(12_000_000))
    os.link("a", "b")
    at.play("echo short > a")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, limits[1]))
    try:
        changes = at.agent.rewind().files
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {(change.path, change.failed) for change in changes} == {("a", True), ("b", True)}
    assert Path("a").read_text() == "short\n"
    assert at.outcome()["a"] == "restore"
    assert (Path("b").read_bytes(), os.path.samefile("a", "b")) == (bytes(12_000_000), True)


@needs_git
def test_an_index_that_another_git_holds_is_brought_back_the_next_time(at: Project) -> None:
    write("a", "1\n")
    git("init", "-q")
    git("add", "a")
    index = Path(".git/index").read_bytes()
    at.play("git rm -q --cached a")
    lock = write(".git/index.lock", "")
    assert at.outcome() == {".git/index": "leave"}
    lock.unlink()
    assert at.outcome() == {".git/index": "restore"}
    assert Path(".git/index").read_bytes() == index


@needs_git
def test_what_was_staged_is_staged_again_and_nothing_else_in_git_changes(at: Project) -> None:
    write("a", "1\n")
    write("b", "1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    write("a", "staged\n")
    git("add", "a")
    write("a", "changed after that\n")
    write("b", "not staged\n")
    index, staged = Path(".git/index").read_bytes(), git("diff", "--cached")
    at.play("git reset -q --hard")
    assert set(at.outcome()) == {".git/index", "a", "b"}
    assert Path("a").read_text() == "changed after that\n"
    assert Path(".git/index").read_bytes() == index
    assert git("diff", "--cached") == staged


@needs_git
def test_the_index_stays_where_head_has_moved_or_the_user_staged_something(at: Project) -> None:
    write("a", "1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    at.play("echo 2 > a; git add a")
    write("mine", "x")
    git("add", "mine")
    index = Path(".git/index").read_bytes()
    assert at.outcome() == {".git/index": "leave", "a": "restore"}
    assert Path(".git/index").read_bytes() == index
    at.play("echo 3 > a; git -c user.name=u -c user.email=u@example.org commit -qam second")
    index = Path(".git/index").read_bytes()
    plan = at.agent.preview()
    assert [change.path for change in plan.files] == ["a"]
    assert "HEAD has moved" in plan.notes[-1]
    at.outcome()
    assert Path(".git/index").read_bytes() == index


@needs_git
@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("rm -rf .git", "repository is gone"),
        ("git branch -q -D other", "branches, tags or stashes have changed"),
        ("git -c user.name=u -c user.email=u@example.org stash -q", "branches, tags or stashes have changed"),
        ("git checkout -q other", "HEAD has moved"),
        ("git pack-refs --all --prune", ""),
        ("git status", ""),
    ],
)
def test_that_git_has_changed_what_undo_does_not_bring_back_is_said(at: Project, command: str, note: str) -> None:
    write("a", "1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    git("branch", "other")
    write("a", "2\n")
    at.play(f"touch b; {command}")
    notes = " ".join(each for each in at.agent.preview().notes if each.startswith("git's"))
    assert note in notes
    assert bool(note) == bool(notes)


# -- what is not kept


@needs_git
def test_what_is_not_kept_is_said_before_the_step_and_once(at: Project) -> None:
    git("init", "-q")
    write(".gitignore", "build\n.env\n")
    write("build/out.o", "o")
    write(".env", "secret")
    with open("big", "wb") as file:
        file.truncate(21_000_000)
    events = at.play("rm -r build .env big  # of git")
    [notice] = at.notices(events)
    assert notice == (
        "undo will not bring back: git's commits and branches; big (more than 20 MB); build (ignored by git)"
    )
    kinds = [type(event).__name__ for event in events]
    assert kinds.index("Notice") < kinds.index("ToolFinished")
    assert at.notices(at.play("touch x  # git")) == []
    assert at.outcome(1) == {".env": "create", "big": "leave", "build": "leave", "x": "remove"}
    assert Path(".env").read_text() == "secret"


@needs_git
def test_a_repository_that_lies_elsewhere_keeps_its_link_and_its_index(at: Project, tmp_path: Path) -> None:
    git("init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"))
    write("a", "1\n")
    git("add", "a")
    index = (tmp_path / "elsewhere/index").read_bytes()
    at.play("git rm -qf a")
    at.play("rm .git")
    assert at.outcome(1) == {".git": "create", str(tmp_path / "elsewhere/index"): "restore", "a": "create"}
    assert Path("a").read_text() == "1\n"
    assert (tmp_path / "elsewhere/index").read_bytes() == index


@needs_git
def test_directories_that_are_ignored_later_are_not_said_again(at: Project) -> None:
    git("init", "-q")
    write(".gitignore", "out*\n")
    at.play("mkdir out1; touch out1/x")
    [notice] = at.notices(at.play("mkdir out2; touch out2/x"))
    assert notice == "undo will not bring back: out1 (ignored by git)"
    assert at.notices(at.play("touch y")) == []
    [notice] = at.notices(at.play("touch z; git init -q nested"))
    assert notice == "undo will not bring back: git's commits and branches"
    [notice] = at.notices(at.play("touch z"))
    assert notice == "undo will not bring back: nested/.git (a repository of its own)"


def test_what_was_out_of_bounds_before_a_step_is_not_taken_for_new_after_it(home: Path) -> None:
    for number in range(30):
        write(f"many/{number}", "x")
    write("a", "1")
    at = Project(home, bounds=Bounds(files=20))
    assert at.notices(at.play("echo 2 > a; rm -r many/1 many/2 many/3")) == [
        "undo will not bring back: many (too many files)"
    ]
    at.play("rm many/1*")  # now they are few enough to be looked at
    assert at.outcome(1) == {"a": "restore"}
    assert len(os.listdir("many")) == 17
    at.agent.close()


@needs_git
def test_a_directory_that_a_step_stops_ignoring_is_not_taken_for_new(at: Project) -> None:
    git("init", "-q")
    write(".gitignore", "data\n")
    write("data/mine", "mine")
    at.play("echo > .gitignore")
    assert at.outcome() == {".gitignore": "restore"}
    assert Path("data/mine").read_text() == "mine"


@needs_git
def test_what_a_step_destroys_and_has_ignored_comes_back(at: Project) -> None:
    git("init", "-q")
    write("data/a", "a")
    write("data/b", "b")
    at.play("echo data > .gitignore; rm data/a; echo 2 > data/b")
    assert at.outcome() == {".gitignore": "remove", "data/a": "create", "data/b": "restore"}
    assert [Path(name).read_text() for name in ("data/a", "data/b")] == ["a", "b"]


def test_without_git_caches_are_left_out_and_the_rest_is_kept(at: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write("node_modules/x/y.js", "y")
    write("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55")
    write("src/a.py", "a")
    tools = Path("../tools")
    tools.mkdir()
    for name in ("bash", "rm"):
        (tools / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tools.resolve()))
    assert ignored_directories(Path.cwd()) is None
    [notice] = at.notices(at.play("rm -r src node_modules"))
    assert notice == "undo will not bring back: cache, node_modules (a cache)"
    assert at.outcome() == {"node_modules": "leave", "src": "create", "src/a.py": "create"}


@needs_git
def test_only_what_git_ignores_as_a_whole_is_left_out(project: Path) -> None:
    git("init", "-q")
    write(".gitignore", "out\n*.o\n")
    write("out/x", "")
    write("src/only.o", "")
    write("src2/deep/only.o", "")
    assert ignored_directories(project) == {b"out"}
    assert ignored_directories(project / "src2") == frozenset()
    assert ignored_directories(project / "out") in (None, frozenset())


@needs_git
def test_a_directory_that_ignores_itself_stays_as_a_whole(at: Project) -> None:
    git("init", "-q")
    write("secrets/.env", "kept, though it is ignored")
    write(".gitignore", ".env\n")
    git("add", ".gitignore")
    at.play("mkdir -p cache/v; echo '*' > cache/.gitignore; touch cache/README cache/v/x; rm secrets/.env")
    assert at.outcome() == {"cache": "leave", "secrets/.env": "create"}
    assert sorted(os.listdir("cache")) == [".gitignore", "README", "v"]
    assert git("status", "--porcelain") == b"A  .gitignore\n"
    assert at.agent.turns() == []


@needs_git
def test_looking_at_a_repository_runs_nothing_of_its_choosing(at: Project, project: Path) -> None:
    git("init", "-q")
    hook = write("hook", "#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    git("config", "core.fsmonitor", str(project / "hook"))
    git("config", "core.hooksPath", str(project))
    assert ignored_directories(project) == frozenset()
    assert not Path("ran").exists()


@posix
@needs_git
def test_looking_at_a_repository_waits_for_no_pipe_in_it(project: Path) -> None:
    git("init", "-q")
    before = repository(project)
    os.mkfifo(project / ".git/packed-refs")
    assert repository(project) == before


def test_the_oldest_steps_are_dropped_beyond_the_bound_and_that_is_said(home: Path) -> None:
    at = Project(home, bounds=Bounds(stored=1_000_000))
    for _ in range(12):
        at.play("head -c 200000 /dev/urandom > a")
    stored = sum(path.stat().st_size for path in (home / "checkpoints").rglob("files-1.sqlite"))
    assert stored < 1_500_000
    before = Path("a").read_bytes()
    assert "no longer kept" in at.agent.preview(1).notes[0]
    assert "no longer kept" not in at.agent.preview(12).notes[0]
    at.outcome(12)
    assert Path("a").read_bytes() != before
    at.agent.close()


def test_a_store_that_cannot_be_written_does_not_keep_the_work_from_being_done(at: Project, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "checkpoints").write_text("in the way")
    [notice] = at.notices(at.play("echo > a"))
    assert notice.startswith("what is changed from here on cannot be undone: ")
    assert Path("a").exists()
    assert at.notices(at.play("echo > b")) == []


def test_a_damaged_store_is_set_aside(at: Project, home: Path) -> None:
    at.play("echo 1 > a")
    at.agent.close()
    [path] = (home / "checkpoints").rglob("files-1.sqlite")
    path.write_bytes(b"no database" * 1000)
    again = Project(home)
    again.play("echo 2 > a")
    assert again.outcome() == {"a": "restore"}
    assert Path("a").read_text() == "1\n"
    assert len(list(path.parent.glob("*damaged*"))) == 1
    again.agent.close()


# -- cancels, crashes, and two at once


def test_what_a_cancelled_command_had_done_is_undone_as_well(at: Project) -> None:
    write("a", "1")
    at.script([[call("bash", command="echo 2 > a; echo ready; sleep 60")]])
    for event in at.agent.run("go"):
        if type(event).__name__ == "ToolOutput":
            at.agent.cancel()
    assert at.outcome() == {"a": "restore"}
    assert Path("a").read_text() == "1"


def test_a_cancel_during_the_look_runs_nothing(at: Project) -> None:
    write("a", "1")
    token = CancelToken()
    token.cancel()
    with pytest.raises(CoreCoderError), at.kept.step({"command": "x"}, token, print):
        pytest.fail("the step ran")
    at.play("echo 2 > a")
    assert at.outcome() == {"a": "restore"}


CRASH = """
import os, signal, sys
from pathlib import Path
from corecoder.checkpoints import Checkpoints
from corecoder.jobs import CancelToken
from corecoder.tool import Workspace
kept = Checkpoints(Path(sys.argv[1]), Workspace.at("."))
kept.begin(sys.argv[2], int(sys.argv[3]))
with kept.step({"command": "x"}, CancelToken(), print):
    if sys.argv[4] == "after":
        Path("a").write_text("2")
        Path("b").write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@posix
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_step_that_was_killed_can_be_undone(at: Project, when: str) -> None:
    write("a", "1")
    at.play("ls")
    _, turn = at.agent.session.turns[0]
    arguments = [str(at.home), at.agent.session.id, str(turn), when]
    ran = subprocess.run([sys.executable, "-c", CRASH, *arguments], check=False)
    assert ran.returncode == -signal.SIGKILL
    changed = {"a": "restore", "b": "remove"} if when == "after" else {}
    plan = at.agent.preview()
    assert {change.path: change.action for change in plan.files} == dict.fromkeys(changed, "leave")
    assert "cut off" in plan.notes[0]
    assert at.outcome(force=True) == changed
    assert Path("a").read_text() == "1"
    assert not Path("b").exists()
    at.agent.close()
    assert list((at.home / "checkpoints").rglob("*.alive")) == []


@posix
def test_what_was_made_by_hand_after_a_step_was_killed_stays_unless_it_is_forced(at: Project) -> None:
    write("a", "1")
    write("c", "1")
    at.play("ls")
    _, turn = at.agent.session.turns[0]
    subprocess.run([sys.executable, "-c", CRASH, str(at.home), at.agent.session.id, str(turn), "after"], check=False)
    write("c", "mine")
    write("mine", "mine")
    assert {change.reason for change in at.agent.preview().files} == {"somebody else may have changed it"}
    assert set(at.outcome().values()) == {"leave"}
    assert [Path(name).read_text() for name in ("a", "c", "mine")] == ["2", "mine", "mine"]
    assert at.agent.turns() != []
    assert at.outcome(force=True) == {"a": "restore", "b": "remove", "c": "restore", "mine": "remove"}
    assert at.agent.turns() == []


def test_two_sessions_in_one_project_keep_their_steps_apart(at: Project) -> None:
    write("a", "1")
    write("b", "1")
    other = Project(at.home)
    at.play("echo 2 > a")
    other.play("echo 2 > b")
    at.play("echo 3 > a; echo > c")
    assert other.outcome() == {"b": "restore"}
    assert at.outcome(1) == {"a": "restore", "c": "remove"}
    assert [Path(name).read_text() for name in "ab"] == ["1", "1"]
    other.agent.close()


def test_what_another_session_did_during_a_step_is_not_taken_for_that_steps(at: Project) -> None:
    write("a", "1")
    other = Project(at.home)
    other.play("touch first")
    with at.kept.step({"command": "a long one"}, CancelToken(), print):
        other.calls(call("write_file", file_path="theirs", content="x"))
        other.play("echo 2 > a")
    at.play("ls")
    assert at.kept.changes([("", 0)])[0].shared
    assert [change.path for change in at.kept.changes([("", 0)])] == [b"a"]
    assert other.outcome(2) == {"a": "leave", "theirs": "remove"}
    other.agent.close()


def test_steps_that_run_side_by_side_are_all_undone(home: Path, project: Path) -> None:
    workspace = Workspace.at(project)
    kept = [Checkpoints(home, workspace) for _ in range(2)]
    for number, one in enumerate(kept):
        one.begin(f"session {number}", 1)
    meet = threading.Barrier(6)

    def work(number: int) -> None:
        with kept[number % 2].step({"file_path": f"{number}"}, CancelToken(), print):
            meet.wait(20)
            write(f"{number}", "x")
            meet.wait(20)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for number, one in enumerate(kept):
        paths = {change.path for change in one.changes([(f"session {number}", 1)])}
        assert paths == {b"%d" % each for each in range(number, 6, 2)}
        one.close()


@posix
def test_what_is_kept_is_for_the_owner_alone(at: Project, home: Path) -> None:
    at.play("echo > a")
    for path in (home / "checkpoints").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@needs_git
def test_a_directory_that_a_turn_made_goes_with_the_caches_in_it(at: Project) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    write(".gitignore", "__pycache__/\n.ruff_cache/\ndata/\n")
    write("old/mine.py", "x\n")
    tag = "printf 'Signature: 8a477f597d28d172789f06886806bc55\\n'"
    at.play(
        "mkdir -p pkg/__pycache__ pkg/.ruff_cache/0 old/__pycache__; echo 1 | tee pkg/a.py pkg/__pycache__/a.pyc; "
        f"{tag} > pkg/.ruff_cache/CACHEDIR.TAG; echo 3 > pkg/.ruff_cache/0/x; echo 4 > old/__pycache__/mine.pyc",
        "mkdir -p got/data kept/__pycache__; echo 5 > got/data/x; echo 6 > kept/__pycache__/x.pyc; echo > got/b.py",
    )
    write("kept/__pycache__/notes.txt", "the user's\n")
    changes = {change.path: change for change in at.agent.rewind().files}
    assert not os.path.exists("pkg")
    assert os.listdir("old") == ["mine.py"]
    # What may be somebody's own stays, and that is said.
    assert os.listdir("got") == ["data"]
    assert "it holds something" in changes["got"].reason
    assert Path("kept/__pycache__/notes.txt").read_text() == "the user's\n"


@needs_git
def test_a_cache_goes_as_the_turn_left_it_and_stays_with_what_somebody_else_put_into_it(at: Project) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    write(".gitignore", "__pycache__/\n.cache*/\n")
    write(".cache-mine/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n")
    write(".cache-mine/deep/mine.txt", "mine")
    os.utime(".cache-mine/deep/mine.txt", (1, 1))
    time.sleep(2.1)  # what is older than the look before a step by less than this may be the step's
    made = "mkdir -p .cache1/a __pycache__; cp .cache-mine/CACHEDIR.TAG .cache1; cp -r .cache1 .cache2; touch "
    at.play(f"{made} __pycache__/x.pyc", "echo > .cache1/a/new; echo > .cache2/new; mv .cache-mine .cache-moved")
    write(".cache2/a/mine.txt", "mine")
    write("__pycache__/mine.pyc", "mine")
    done = {change.path: (change.action, change.reason) for change in at.agent.rewind().files}
    own = ("leave", "it holds something that may not be the turn's")
    assert done == {
        ".cache-mine": ("leave", "its content was not kept"),
        ".cache-moved": own,
        ".cache1": ("remove", ""),
        ".cache2": own,
        "__pycache__": own,
    }
    assert not os.path.exists(".cache1")
    mine = (".cache-moved/deep/mine.txt", ".cache2/a/mine.txt", "__pycache__/mine.pyc")
    assert [Path(name).read_text() for name in mine] == ["mine"] * 3


@posix
def test_no_undo_is_led_astray_by_a_command_that_goes_on(at: Project) -> None:
    outside = at.root.parent / "outside"
    outside.mkdir()
    for number in range(100):
        write(f"d/{number}", "old\n")
    at.play("for f in d/*; do echo new > $f; done")
    flip = "while :; do mv d e; ln -s ../outside d; rm d; mv e d; done 2>/dev/null"
    with subprocess.Popen(["sh", "-c", flip], start_new_session=True) as flipping:
        try:
            for _ in range(20):
                with contextlib.suppress(CoreCoderError):
                    at.agent.rewind(force=True)
        finally:
            os.killpg(flipping.pid, signal.SIGKILL)
    assert os.listdir(outside) == []


def test_what_is_kept_of_all_projects_together_is_bounded_and_goes_with_the_project(home: Path, project: Path) -> None:
    others = {}
    for number, name in enumerate(("gone", "oldest", "older", "recent", "used")):
        other = project.parent / name
        other.mkdir()
        kept = Checkpoints(home, Workspace.at(other))
        with kept.step({"file_path": str(other / "f")}, CancelToken(), print):
            (other / "f").write_bytes(os.urandom(100_000))
            (other / "f").write_bytes(os.urandom(100_000))
        (other / "f").unlink()
        if name != "used":
            kept.close()
        others[name] = (kept, project_directory(home, other, "checkpoints"))
        if name != "recent":
            for file in others[name][1].iterdir():
                os.utime(file, (number, number))
    shutil.rmtree(project.parent / "gone")

    def left_after_a_step(in_all: int) -> set[str]:
        mine = Checkpoints(home, Workspace.at(project), Bounds(stored_in_all=in_all))
        with mine.step({"file_path": str(project / "f")}, CancelToken(), print):
            pass
        mine.close()
        return {name for name, (_, folder) in others.items() if folder.exists()}

    assert left_after_a_step(10_000_000) == {"oldest", "older", "recent", "used"}
    total = sum(file.stat().st_size for file in (home / "checkpoints").glob("*/*"))
    assert left_after_a_step(total - 1) == {"older", "recent", "used"}
    assert left_after_a_step(0) == {"recent", "used"}
    others["used"][0].close()
