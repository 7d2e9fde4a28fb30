"""Writing creates what is missing and replaces only what the model knows; a crash leaves the old file or the new."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from corecoder.errors import Cancelled, ToolError
from corecoder.jobs import CancelToken
from corecoder.permissions import Allow, Permissions
from corecoder.tool import ToolContext, ToolResult, Workspace
from corecoder.tools.edit_file import EditFileTool
from corecoder.tools.read_file import ReadFileTool
from corecoder.tools.write_file import WriteFileTool

resource = pytest.importorskip("resource")


@pytest.fixture
def ctx(project: Path) -> ToolContext:
    return ToolContext(Workspace.at(project))


def write(ctx: ToolContext, name: str, content: str) -> ToolResult:
    return WriteFileTool().run({"file_path": name, "content": content}, ctx)


def read(ctx: ToolContext, name: str) -> None:
    ReadFileTool().run({"file_path": name}, ctx)


def said_of(ctx: ToolContext, name: str, content: str) -> str:
    with pytest.raises(ToolError) as caught:
        write(ctx, name, content)
    return str(caught.value)


def test_a_new_file_gets_its_parents_and_the_users_mode(ctx: ToolContext, project: Path) -> None:
    before = os.umask(0o027)
    try:
        result = write(ctx, "src/deep/a.py", "x = 1\n")
    finally:
        os.umask(before)
    path = project / "src/deep/a.py"
    assert path.read_bytes() == b"x = 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert result.content == "Created src/deep/a.py (1 line)."
    assert "--- /dev/null\n+++ b/src/deep/a.py\n@@ -0,0 +1 @@\n+x = 1" in result.display
    assert result.data == {"path": str(path), "action": "write", "added": 1, "removed": 0}
    assert os.listdir(path.parent) == ["a.py"]


def test_a_file_that_was_not_read_is_not_replaced(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("precious\n")
    assert "have not read it" in said_of(ctx, "f.txt", "new\n")
    assert (project / "f.txt").read_text() == "precious\n"
    read(ctx, "f.txt")
    result = write(ctx, "f.txt", "new\n")
    assert result.content == "Replaced f.txt (1 line; +1 -1)."
    assert "-precious\n+new" in result.display
    assert (project / "f.txt").read_text() == "new\n"


def test_a_file_that_changed_since_it_was_read_is_not_replaced(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\n")
    read(ctx, "f.txt")
    (project / "f.txt").write_text("changed by someone\n")
    assert "changed on disk" in said_of(ctx, "f.txt", "new\n")
    assert (project / "f.txt").read_text() == "changed by someone\n"


def edit(ctx: ToolContext, name: str, old: str, new: str) -> None:
    EditFileTool().run({"file_path": name, "old_string": old, "new_string": new}, ctx)


def test_an_edit_does_not_make_an_unread_file_known(ctx: ToolContext, project: Path) -> None:
    lines = [f"{number}\n" for number in range(1000)]
    (project / "f.txt").write_text("".join(lines))
    edit(ctx, "f.txt", "500\n", "half\n")
    assert "not read all of f.txt: it has 1,000 lines" in said_of(ctx, "f.txt", "new\n")
    assert (project / "f.txt").read_text().count("\n") == 1000


def test_an_edit_does_not_make_a_change_from_outside_known(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\nb\n")
    read(ctx, "f.txt")
    (project / "f.txt").write_text("a\nb\nfrom outside\n")
    edit(ctx, "f.txt", "a\n", "A\n")
    assert "not read all" in said_of(ctx, "f.txt", "A\nb\n")
    assert (project / "f.txt").read_text() == "A\nb\nfrom outside\n"
    read(ctx, "f.txt")
    write(ctx, "f.txt", "A\nb\n")


def test_a_file_that_was_read_in_part_is_not_replaced(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\nb\nc\n")
    ReadFileTool().run({"file_path": "f.txt", "limit": 1}, ctx)
    assert "Read on with offset 2" in said_of(ctx, "f.txt", "a\n")
    edit(ctx, "f.txt", "a\n", "a\na\n")
    assert "Read on with offset 3" in said_of(ctx, "f.txt", "a\n")
    edit(ctx, "f.txt", "c", "C")
    ReadFileTool().run({"file_path": "f.txt", "offset": 3}, ctx)
    write(ctx, "f.txt", "a\n")


def test_what_was_read_and_edited_can_be_replaced(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\nb\nc\n")
    read(ctx, "f.txt")
    edit(ctx, "f.txt", "b\n", "x\ny\nz\n")
    edit(ctx, "f.txt", "a\nx\n", "")
    write(ctx, "f.txt", "done\n")


def test_a_change_that_kept_size_and_time_is_noticed_and_a_touch_is_none(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    path.write_text("one\n")
    read(ctx, "f.txt")
    info = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert "changed on disk" in said_of(ctx, "f.txt", "new\n")
    read(ctx, "f.txt")
    os.utime(path, (1, 1))
    path.chmod(0o755)
    write(ctx, "f.txt", "new\n")


class Late(CancelToken):
    """A token that is set as soon as something has been written beside the file."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def check(self) -> None:
        if len(os.listdir(self.directory)) > 1:
            self.cancel()
        super().check()


@pytest.mark.parametrize("late", [False, True])
def test_what_was_cancelled_is_not_written_afterwards(project: Path, late: bool) -> None:
    (project / "f.txt").write_text("a\n")
    token = Late(project) if late else CancelToken()
    if not late:
        token.cancel()
    ctx = ToolContext(Workspace.at(project), token=token)
    read(ctx, "f.txt")
    for change in (lambda: write(ctx, "f.txt", "b\n"), lambda: edit(ctx, "f.txt", "a", "b")):
        with pytest.raises(Cancelled):
            change()
    assert (project / "f.txt").read_text() == "a\n"
    assert os.listdir(project) == ["f.txt"]


def test_what_was_written_can_be_written_again(ctx: ToolContext, project: Path) -> None:
    write(ctx, "f.txt", "one\n")
    write(ctx, "./f.txt", "two\n")
    assert (project / "f.txt").read_text() == "two\n"
    assert "already" in write(ctx, "f.txt", "two\n").content


def test_an_empty_file_has_nothing_to_lose(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").touch()
    write(ctx, "f.txt", "a\n")
    assert (project / "f.txt").read_text() == "a\n"


def test_mark_line_ends_encoding_and_mode_of_a_replaced_file_stay(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    path.chmod(0o755)
    read(ctx, "f.txt")
    write(ctx, "f.txt", "x\ny\n")
    assert path.read_bytes() == b"\xef\xbb\xbfx\r\ny\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    path.write_bytes("café\n".encode("latin-1"))
    read(ctx, "f.txt")
    write(ctx, "f.txt", "thé\n")
    assert path.read_bytes() == "thé\n".encode("latin-1")
    assert "latin-1, which has no" in said_of(ctx, "f.txt", "→\n")


def test_links_are_written_through(ctx: ToolContext, project: Path) -> None:
    (project / "link").symlink_to("made/real.txt")
    write(ctx, "link", "a\n")
    assert (project / "link").is_symlink()
    assert (project / "made/real.txt").read_text() == "a\n"


def test_what_is_no_text_file_is_not_replaced(ctx: ToolContext, project: Path) -> None:
    (project / "d").mkdir()
    (project / "b").write_bytes(b"\0\1")
    assert "directory" in said_of(ctx, "d", "x")
    assert "binary" in said_of(ctx, "b", "x")
    assert (project / "b").read_bytes() == b"\0\1"
    (project / "file").touch()
    assert said_of(ctx, "file/x", "x") == said_of(ctx, "file/x/y", "x") == "file is a file, not a directory."


def test_half_a_character_is_refused_and_nothing_is_created(ctx: ToolContext, project: Path) -> None:
    assert "U+D83D" in said_of(ctx, "f.txt", "ok\n\ud83d")
    assert os.listdir(project) == []


def test_a_nul_and_the_name_of_a_directory_are_refused(ctx: ToolContext, project: Path) -> None:
    assert "NUL character (line 2)" in said_of(ctx, "f.txt", "a\n\0")
    assert said_of(ctx, "new/", "a") == "new/ names a directory. Nothing was written. Give the name of a file in it."
    assert os.listdir(project) == []


def test_a_new_python_file_is_written_as_it_declares(ctx: ToolContext, project: Path) -> None:
    write(ctx, "a.py", "# coding: latin-1\nx = 'é'\n")
    assert (project / "a.py").read_bytes() == b"# coding: latin-1\nx = '\xe9'\n"
    write(ctx, "a.py", "x = 'é→'\n")
    assert (project / "a.py").read_text("utf-8") == "x = 'é→'\n"


def test_a_syntax_error_is_mentioned(ctx: ToolContext) -> None:
    assert "does not parse as Python" in write(ctx, "a.py", "def f(:\n").content
    assert "does not parse as JSON" in write(ctx, "a.json", "{").content
    assert "Warning" not in write(ctx, "b.py", "x = 1\n").content


FLIP = "while :; do mv d e; ln -s ../outside d; rm d; mv e d; done 2>/dev/null"


@pytest.mark.skipif(os.name == "nt", reason="directories cannot be held open")
def test_a_file_is_written_and_read_where_it_was_judged_to_lie_or_nowhere(project: Path) -> None:
    outside = project.parent / "outside"
    outside.mkdir()
    (outside / "f.txt").write_text("secret\n")
    (project / "d").mkdir()
    (project / "d" / "f.txt").write_text("old\n")
    permissions = Permissions("auto", Workspace.at(project))
    verdict = permissions.judge(WriteFileTool(), {"file_path": "d/f.txt", "content": ""})
    assert isinstance(verdict, Allow)
    ctx = ToolContext(Workspace.at(project), judged=verdict.place)
    os.rename(project / "d", project / "e")
    (project / "d").symlink_to(outside)
    for tool, arguments in (
        (ReadFileTool(), {}),
        (WriteFileTool(), {"content": "new\n"}),
        (EditFileTool(), {"old_string": "e", "new_string": "x"}),
    ):
        with pytest.raises(ToolError, match="leads elsewhere"):
            tool.run({"file_path": "d/f.txt", **arguments}, ctx)
    with pytest.raises(ToolError, match="leads elsewhere"):
        WriteFileTool().run({"file_path": "d/new.txt", "content": "x"}, replace(ctx, judged=project / "d" / "new.txt"))
    assert os.listdir(outside) == ["f.txt"]
    assert (outside / "f.txt").read_text() == "secret\n"


@pytest.mark.skipif(os.name == "nt", reason="directories cannot be held open")
def test_no_write_is_led_astray_by_a_command_that_goes_on(project: Path) -> None:
    outside = project.parent / "outside"
    outside.mkdir()
    (project / "d").mkdir()
    permissions = Permissions("auto", Workspace.at(project))
    with subprocess.Popen(["sh", "-c", FLIP], cwd=project) as flipping:
        try:
            for number in range(400):
                arguments = {"file_path": f"d/{number}.txt", "content": "x"}
                verdict = permissions.judge(WriteFileTool(), arguments)
                if isinstance(verdict, Allow):
                    with suppress(ToolError):
                        WriteFileTool().run(arguments, ToolContext(Workspace.at(project), judged=verdict.place))
        finally:
            flipping.kill()
    assert os.listdir(outside) == []


WRITER = """
import sys
from corecoder.tool import ToolContext, Workspace
from corecoder.tools.edit_file import EditFileTool
from corecoder.errors import Cancelled, ToolError
from corecoder.jobs import CancelToken
ctx = ToolContext(Workspace.at("."))
try:
    EditFileTool().run({"file_path": "f.txt", "old_string": "HEAD", "new_string": "x" * 2_000_000}, ctx)
except ToolError as error:
    print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="limits are POSIX")
@pytest.mark.parametrize("linked", [False, True])
def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(project: Path, linked: bool) -> None:
    old = "HEAD\n" + "old line\n" * 1000
    (project / "f.txt").write_text(old)
    if linked:
        os.link(project / "f.txt", project / "g.txt")

    def small_files_only() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [sys.executable, "-c", WRITER], capture_output=True, text=True, preexec_fn=small_files_only, check=True
    )
    assert "File too large" in done.stdout
    assert (project / "f.txt").read_text() == old
    assert sorted(os.listdir(project)) == (["f.txt", "g.txt"] if linked else ["f.txt"])
