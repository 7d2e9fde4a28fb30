"""Tools: arguments as the schema wants them or words for the model, and what a call is given."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corecoder.tool import Tool, ToolContext, ToolResult, Workspace, checked_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "ratio": {"type": "number"},
        "all": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "lines": {"type": ["integer", "string"]},
        "maybe": {"type": ["string", "null"]},
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "done": {"type": "boolean"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        },
        "any": {},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def test_sound_arguments_come_back_as_they_are() -> None:
    given = {
        "path": "a",
        "limit": 3,
        "ratio": 1.5,
        "all": False,
        "mode": "fast",
        "tasks": [{"text": "x", "done": True}],
    }
    assert checked_arguments(SCHEMA, given) == given
    assert checked_arguments(SCHEMA, {"path": "", "lines": "1-5", "maybe": None}) == {"path": "", "lines": "1-5"}
    assert checked_arguments(SCHEMA, {"path": "a", "any": [1, {"x": None}]})["any"] == [1, {"x": None}]
    assert checked_arguments({"type": "object", "properties": {}}, {}) == {}
    assert checked_arguments({"type": "object", "properties": {}}, {"more": 1}) == {"more": 1}


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("limit", "12", 12),
        ("limit", " -3 ", -3),
        ("limit", 5.0, 5),
        ("ratio", "1.5", 1.5),
        ("ratio", "2", 2.0),
        ("all", "true", True),
        ("all", "False", False),
        ("lines", "7", "7"),
        ("lines", 7, 7),
        ("limit", None, None),
    ],
)
def test_what_models_get_wrong_without_ambiguity_is_forgiven(name: str, written: Any, meant: Any) -> None:
    checked = checked_arguments(SCHEMA, {"path": "a", name: written})
    assert checked.get(name) == meant
    assert type(checked.get(name)) is type(meant)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing path (accepted: path, limit"),
        ({"file": "a"}, "missing path; unknown file (accepted: path,"),
        ({"path": "a", "x": 1, "y": 2}, "unknown x, y"),
        ({"path": None}, "path must be string, not NoneType None"),
        ({"path": 5}, "path must be string, not int 5"),
        ({"path": "a", "limit": "ten"}, "limit must be integer, not str 'ten'"),
        ({"path": "a", "limit": "+-5"}, "limit must be integer"),
        ({"path": "a", "limit": "1" * 5000}, "limit must be integer"),
        ({"path": "a", "limit": ""}, "limit must be integer"),
        ({"path": "a", "limit": 1.5}, "limit must be integer, not float 1.5"),
        ({"path": "a", "limit": True}, "limit must be integer, not bool True"),
        ({"path": "a", "ratio": "1e5"}, "ratio must be number"),
        ({"path": "a", "all": 1}, "all must be boolean, not int 1"),
        ({"path": "a", "mode": "medium"}, "mode must be one of fast, slow, not str 'medium'"),
        ({"path": "a", "lines": [1]}, "lines must be integer or string, not list [1]"),
        ({"path": "a", "tasks": "x"}, "tasks must be array"),
        ({"path": "a", "tasks": [{"text": "x"}, {}]}, "missing tasks[1].text (accepted: text, done)"),
        ({"path": "a", "tasks": [{"text": "x", "why": 1}]}, "unknown tasks[0].why"),
        ({"path": "a", "tasks": [{"text": "x", "done": "maybe"}]}, "tasks[0].done must be boolean"),
        ({"path": {"long": "x" * 500}}, "..."),
    ],
)
def test_what_is_wrong_is_said_in_words_that_name_the_place(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        checked_arguments(SCHEMA, arguments)
    assert len(str(caught.value)) < 250


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "true", "1.5"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "done", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), VALUES))
def test_any_arguments_are_accepted_for_good_or_refused_with_a_value_error(arguments: dict[str, Any]) -> None:
    try:
        checked = checked_arguments(SCHEMA, arguments)
    except ValueError:
        return
    assert isinstance(checked["path"], str)
    assert checked.keys() <= arguments.keys()
    assert type(checked.get("limit", 0)) is int
    assert repr(checked_arguments(SCHEMA, checked)) == repr(checked)


class Echo(Tool):
    name: ClassVar[str] = "echo"
    description: ClassVar[str] = "Says it again."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"text": {"type": "string"}}}

    def execute(self, text: str = "nothing") -> str:  # type: ignore[override]
        return text


class WithContext(Echo):
    def execute(self, ctx: ToolContext, text: str = "nothing") -> ToolResult:  # type: ignore[override]
        return ToolResult(f"{ctx.workspace.root.name} {text}", ok=False)


def test_a_tool_gets_plain_arguments_and_the_context_only_if_it_asks(project: Path) -> None:
    ctx = ToolContext(Workspace.at(project))
    assert Echo().run({"text": "hi"}, ctx) == ToolResult("hi")
    assert Echo().run({}, ctx).content == "nothing"
    result = WithContext().run({"text": "hi"}, ctx)
    assert (result.content, result.ok) == ("project hi", False)
    with pytest.raises(TypeError):
        Echo().run({"wrong": 1}, ctx)


def test_a_tool_describes_itself_as_the_api_wants_it() -> None:
    assert Echo().schema() == {
        "type": "function",
        "function": {"name": "echo", "description": "Says it again.", "parameters": Echo.parameters},
    }


def test_a_context_without_a_session_recalls_and_spills_nothing(project: Path) -> None:
    ctx = ToolContext(Workspace.at(project))
    with pytest.raises(KeyError):
        ctx.recall(1)
    assert ctx.spill("text") is None
    ctx.output("text")


def test_paths_follow_the_shells_directory_and_are_shown_from_the_project(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.at(project)
    (project / "src").mkdir()
    workspace.cwd = project / "src"
    assert workspace.resolve("a.py") == project / "src" / "a.py"
    assert workspace.resolve("../b.py") == project / "b.py"
    assert workspace.resolve(str(tmp_path)) == tmp_path
    assert workspace.resolve("~/x") == Path(os.path.expanduser("~")) / "x"
    assert workspace.show(project / "src" / "a.py") == os.path.join("src", "a.py")
    assert workspace.show(tmp_path) == str(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_link_out_of_the_project_is_outside(project: Path, tmp_path: Path) -> None:
    workspace = Workspace.at(project)
    (project / "out").symlink_to(tmp_path)
    (project / "in").symlink_to(project / "other")
    assert workspace.contains(project / "new" / "file.py")
    assert workspace.contains(project / "in")
    assert not workspace.contains(project / "out" / "file.py")
    assert not workspace.contains(project / ".." / "x")
    assert not workspace.contains(Path(str(project) + "-other"))
