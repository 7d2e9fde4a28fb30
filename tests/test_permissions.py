"""Which call runs, which is asked for, which is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from corecoder.permissions import Allow, Ask, Permissions, Refuse, Verdict
from corecoder.tool import Workspace
from corecoder.tools.bash import BashTool
from corecoder.tools.edit_file import EditFileTool
from corecoder.tools.read_file import ReadFileTool
from corecoder.tools.write_file import WriteFileTool


def judge(mode: str, tool: object, **arguments: object) -> Verdict:
    return Permissions(mode, Workspace.at(Path.cwd())).judge(tool, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["ask", "auto", "plan", "yolo"])
def test_a_read_runs_in_every_mode(mode: str) -> None:
    assert judge(mode, ReadFileTool(), file_path="a.txt") == Allow()
    assert judge(mode, BashTool(), command="ls | head") == Allow()


def test_yolo_runs_everything() -> None:
    assert judge("yolo", BashTool(), command="rm -rf build") == Allow()


def test_plan_mode_refuses_whatever_may_change_something() -> None:
    assert isinstance(judge("plan", BashTool(), command="make"), Refuse)
    assert isinstance(judge("plan", WriteFileTool(), file_path="a", content=""), Refuse)


def test_auto_lets_edits_inside_the_project_through_and_refuses_commands() -> None:
    assert judge("auto", WriteFileTool(), file_path="src/new.py", content="") == Allow()
    assert judge("auto", EditFileTool(), file_path="a", old_string="a", new_string="b") == Allow()
    verdict = judge("auto", BashTool(), command="python -m unittest")
    assert isinstance(verdict, Refuse)
    assert "--yes" in verdict.words


@pytest.mark.parametrize(
    "path", ["../out.txt", "/etc/hosts", "~/x", ".git/hooks/pre-commit", ".GIT/config", "a/../../out", "link/x"]
)
def test_auto_refuses_an_edit_whose_real_place_is_outside_the_project_or_in_git(path: str, project: Path) -> None:
    (project / "link").symlink_to(project.parent)
    assert isinstance(judge("auto", WriteFileTool(), file_path=path, content=""), Refuse)


def test_a_background_command_is_never_read_only() -> None:
    assert isinstance(judge("auto", BashTool(), command="ls", background=True), Refuse)


def test_ask_shows_the_whole_command() -> None:
    command = "python -m unittest && rm -rf " + "x" * 500
    verdict = judge("ask", BashTool(), command=command)
    assert isinstance(verdict, Ask)
    assert verdict.detail == command
    assert verdict.choices[0] == "no"


def test_always_means_this_very_command_for_the_session() -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    tool, command = BashTool(), {"command": "make test"}
    assert permissions.settle(tool, command, "always") == Allow()
    assert permissions.judge(tool, command) == Allow()
    assert isinstance(permissions.judge(tool, {"command": "make install"}), Ask)


def test_always_for_edits_ends_at_the_edge_of_the_project() -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    tool = WriteFileTool()
    assert permissions.settle(tool, {"file_path": "a", "content": ""}, "a") == Allow()
    assert permissions.judge(tool, {"file_path": "b", "content": ""}) == Allow()
    assert isinstance(permissions.judge(tool, {"file_path": "../b", "content": ""}), Ask)


def test_words_after_a_no_reach_the_model() -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    for answer in (
        "no, use pytest instead",
        "no, no, use pytest instead",
        "n use pytest instead",
        "a better way: use pytest instead",
    ):
        verdict = permissions.settle(BashTool(), {"command": "make"}, answer)
        assert isinstance(verdict, Refuse)
        assert verdict.words.endswith("use pytest instead.")
    assert "said no." in permissions.settle(BashTool(), {"command": "make"}, "no").words  # type: ignore[union-attr]


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ValueError, match="ask, auto, plan, yolo"):
        Permissions("careless", Workspace.at(Path.cwd()))
