"""Reading shows a file as it is, so much at a time, and says in plain words what cannot be shown."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path

import pytest

from corecoder.errors import ToolError
from corecoder.tool import Seen, ToolContext, ToolResult, Workspace
from corecoder.tools import files
from corecoder.tools.read_file import LINE_WIDTH, MOST_CHARACTERS, MOST_IMAGE_BYTES, ReadFileTool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def ctx(project: Path) -> ToolContext:
    return ToolContext(Workspace.at(project))


def read(ctx: ToolContext, name: str = "f.txt", **more: int) -> ToolResult:
    return ReadFileTool().run({"file_path": name, **more}, ctx)


def said_of(ctx: ToolContext, name: str, **more: int) -> str:
    with pytest.raises(ToolError) as caught:
        read(ctx, name, **more)
    return str(caught.value)


def test_lines_are_numbered_and_nothing_else_is_added(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\n\n  b\tc\n")
    result = read(ctx)
    assert result.content == "1\ta\n2\t\n3\t  b\tc"
    assert result.data == {"path": str(project / "f.txt"), "action": "read", "lines": [1, 3], "total": 3}


def test_a_part_says_where_it_is_and_how_to_go_on(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    assert read(ctx, offset=10, limit=2).content == (
        "10\tline 10\n11\tline 11\n[lines 10 to 11 of 100; go on with offset 12]"
    )
    assert read(ctx, offset=100).content == "100\tline 100\n[lines 100 to 100 of 100]"
    assert read(ctx, offset=0, limit=1).content.startswith("1\tline 1\n")


def test_an_offset_beyond_the_end_and_senseless_numbers_are_explained(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\nb\n")
    assert said_of(ctx, "f.txt", offset=3) == "f.txt has 2 lines; offset 3 is beyond its end."
    assert "from 1" in said_of(ctx, "f.txt", offset=-5)
    assert "at least 1" in said_of(ctx, "f.txt", limit=0)


def test_a_long_line_is_clipped_and_its_length_stated(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("short\n" + "x" * 649_467 + "\n")
    result = read(ctx).content
    assert len(result) < LINE_WIDTH + 300
    assert "649,467 characters" in result
    assert "1 line clipped" in result


def test_the_whole_is_bounded_and_pages_join_without_gap_or_overlap(ctx: ToolContext, project: Path) -> None:
    lines = [f"{n} " + "é" * 150 for n in range(1, 3001)]
    (project / "f.txt").write_text("\n".join(lines) + "\n")
    seen: list[str] = []
    offset = 1
    while offset <= len(lines):
        result = read(ctx, offset=offset)
        assert len(result.content) <= MOST_CHARACTERS + 200
        first, last = result.data["lines"]
        assert first == offset
        seen += [line.split("\t", 1)[1] for line in result.content.splitlines()[: last - first + 1]]
        offset = last + 1
    assert seen == lines


def test_line_ends_and_marks_are_not_shown(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    assert read(ctx).content == "1\ta\n2\tb"
    (project / "mac.txt").write_bytes(b"a\rb\r")
    assert read(ctx, "mac.txt").content == "1\ta\n2\tb"


@pytest.mark.parametrize(
    ("encoding", "text", "note"),
    [
        ("utf-16", "naïve 中文", "utf-16-le"),
        ("latin-1", "café", "latin-1, guessed"),
        ("cp1252", "“café”", "cp1252, guessed"),
        ("gbk", "这是一个测试文件", "gb18030, guessed"),
    ],
)
def test_other_encodings_are_read_and_named(
    ctx: ToolContext, project: Path, encoding: str, text: str, note: str
) -> None:
    (project / "f.txt").write_bytes(text.encode(encoding))
    assert read(ctx).content == f"1\t{text}\n[encoding: {note}]"


def test_an_empty_file_is_called_empty(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").touch()
    assert read(ctx).content == "f.txt is empty."
    (project / "marked.txt").write_bytes(b"\xef\xbb\xbf")
    assert read(ctx, "marked.txt").content == "marked.txt is empty."


def test_binary_files_are_called_what_they_are(ctx: ToolContext, project: Path) -> None:
    (project / "a.out").write_bytes(b"\x7fELF\0\1")
    (project / "b.bin").write_bytes(b"\1\2\0\3")
    assert said_of(ctx, "a.out") == "a.out is an ELF program (6 bytes), not text. Use bash to inspect it."
    assert "binary" in said_of(ctx, "b.bin")


def test_a_giant_file_is_refused_at_once_with_a_way_to_go_on(ctx: ToolContext, project: Path) -> None:
    with open(project / "big.log", "wb") as file:
        file.truncate(50_000_000_000)
    said = said_of(ctx, "big.log")
    assert "50,000,000,000 bytes" in said
    assert "grep" in said


def test_a_directory_shows_what_is_in_it(ctx: ToolContext, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "deep").mkdir()
    (project / "src" / "a.py").touch()
    (project / "none").mkdir()
    assert said_of(ctx, "src") == "src is a directory, not a file. In it: a.py, deep/"
    assert "empty" in said_of(ctx, "none")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_sockets_and_devices_are_not_opened(ctx: ToolContext, project: Path) -> None:
    os.mkfifo(project / "pipe")
    assert "a named pipe" in said_of(ctx, "pipe")
    assert "a device" in said_of(ctx, "/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        assert "a socket" in said_of(ctx, "sock")


def test_a_missing_file_gets_the_nearest_names(ctx: ToolContext, project: Path) -> None:
    (project / "README.md").touch()
    assert said_of(ctx, "READNE.md") == "READNE.md does not exist. Similar: README.md."
    assert said_of(ctx, "no/such/dir/x") == "no/such/dir/x does not exist, nor does the directory no."
    (project / "src").mkdir()
    assert said_of(ctx, "scr/x").endswith("nor does the directory scr. Similar: src.")
    assert "README.md is a file, not a directory." in said_of(ctx, "README.md/x")
    assert "empty" in said_of(ctx, " ")


def test_an_image_is_given_as_a_picture_to_models_that_see(project: Path) -> None:
    (project / "p.png").write_bytes(PNG)
    seeing = ToolContext(Workspace.at(project), sees_images=True)
    result = read(seeing, "p.png")
    assert result.images == (f"data:image/png;base64,{base64.b64encode(PNG).decode()}",)
    blind = ToolContext(Workspace.at(project))
    assert "PNG image" in said_of(blind, "p.png")
    (project / "q.png").write_bytes(PNG + b"\0" * MOST_IMAGE_BYTES)
    assert "too many to show" in said_of(seeing, "q.png")


def test_paths_follow_the_shells_directory_and_are_shown_so(ctx: ToolContext, project: Path) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "f.txt").touch()
    ctx.workspace.cwd = project / "sub"
    assert read(ctx, "f.txt").content == "f.txt is empty."
    assert said_of(ctx, "../nope") == f"{project}/nope does not exist."


def test_a_name_with_control_characters_cannot_forge_a_line(ctx: ToolContext, project: Path) -> None:
    (project / "a\n[2J\x1b[2Jb").write_bytes(b"\0")
    said = said_of(ctx, "a\n[2J\x1b[2Jb")
    assert "\x1b" not in said
    assert "\n" not in said


def test_what_was_read_is_noted_with_its_state(ctx: ToolContext, project: Path) -> None:
    (project / "real.txt").write_text("a\n")
    (project / "link.txt").symlink_to("real.txt")
    read(ctx, "link.txt")
    assert ctx.workspace.seen == {project / "real.txt": Seen(files.digest(b"a\n"), 1)}


def test_parts_that_follow_one_another_add_up(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\nb\nc\nd\n")
    for offset, limit, known in ((2, 1, 0), (1, 2, 2), (4, 1, 2), (3, 1, 3), (1, 1, 3), (4, 1, 4)):
        read(ctx, "f.txt", offset=offset, limit=limit)
        assert ctx.workspace.seen[project / "f.txt"].lines == known
    (project / "f.txt").write_text("a\nb\nc\nx\n")
    read(ctx, "f.txt", limit=1)
    assert ctx.workspace.seen[project / "f.txt"].lines == 1
