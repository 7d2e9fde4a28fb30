"""Editing, reading, finding and searching, in figures: python bench/files.py [--original PYTHON] [--files N]

Edits: the table of `near_misses.py` through edit_file; an edit counts if the file has exactly the right bytes, or is
untouched where a refusal is right. Trees: read_file, glob and grep on N generated files, ours with ripgrep and without
against `rg` itself, the fastest of several rounds taken in turns. `--original` is an interpreter that has
corecoder==0.8.0, which then does the same. Exit code 1 if a bound is missed: every edit right; without ripgrep at
most 15 times slower than `rg`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from near_misses import Row, rows

from corecoder.errors import ToolError
from corecoder.tool import ToolContext, Workspace
from corecoder.tools.edit_file import EditFileTool
from corecoder.tools.glob_tool import GlobTool
from corecoder.tools.grep import GrepTool
from corecoder.tools.read_file import ReadFileTool

ROUNDS = 5
SLOWER = 15
NEEDLE = r"needle_\d+"

# What the original is asked, one JSON line each; the same words for its tools of the same names.
ORIGINAL = """
import json, sys, time
from corecoder.tools import ALL_TOOLS
tools = {tool.name: tool for tool in ALL_TOOLS}
for line in sys.stdin:
    name, arguments = json.loads(line)
    start = time.perf_counter()
    tools[name].execute(**arguments)
    print(json.dumps(time.perf_counter() - start), flush=True)
"""


class Original:
    """corecoder==0.8.0 in a process of its own, asked one call at a time."""

    def __init__(self, python: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [python, "-c", ORIGINAL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )

    def call(self, name: str, **arguments: object) -> float:
        """Runs a tool and gives the seconds it took, the pipe left out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def right(path: Path, row: Row) -> bool:
    return path.read_bytes() == (row.before if row.after is None else row.after)


def edits(folder: Path, original: Original | None) -> bool:
    """The edit-apply rate by kind of mistake; false if one of ours is wrong."""
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    table = rows()
    for at, row in enumerate(table):
        path = folder / f"edit{at}.txt"
        arguments = {"file_path": str(path), "old_string": row.old, "new_string": row.new}
        path.write_bytes(row.before)
        try:
            EditFileTool().run(arguments, ToolContext(Workspace.at(folder)))
            refused = False
        except ToolError:
            refused = True
        ours[row.kind] += right(path, row) and refused == (row.after is None)
        if original:
            path.write_bytes(row.before)
            original.call("edit_file", **arguments)
            theirs[row.kind] += right(path, row)
    print(f"{'edits':<24}{'of':>5}{'ours':>6}{'original' if original else '':>10}")
    for kind, count in Counter(row.kind for row in table).items():
        print(f"{kind:<24}{count:>5}{ours[kind]:>6}{theirs[kind] if original else '':>10}")
    total = len(table)
    share = f"{theirs.total() / total:.0%}" if original else ""
    print(f"{'right':<24}{total:>5}{ours.total() / total:>6.0%}{share:>10}\n")
    return ours.total() == total


def grow(folder: Path, count: int) -> None:
    """`count` source files of a few kilobytes in directories of fifty, and a tenth as many ignored ones."""
    rnd = random.Random(0)
    words = [f"word{n}" for n in range(500)]
    for number in range(count):
        part = folder / f"pkg{number // 1000}" / f"mod{number // 50 % 20}"
        part.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(rnd.choices(words, k=8)) for _ in range(rnd.randint(5, 100))]
        if number % 400 == 0:
            lines.append(f"needle_{number} = 1")
        (part / f"file{number}.{'py' if number % 3 else 'ts'}").write_text("\n".join(lines) + "\n")
    ignored = folder / "node_modules"
    ignored.mkdir()
    for number in range(count // 10):
        (ignored / f"n{number}.js").write_text("needle_1\n")
    (folder / ".gitignore").write_text("node_modules/\n*.log\n")


def seconds(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def trees(folder: Path, original: Original | None) -> bool:
    """Reading, finding and searching against `rg`; false if ours without ripgrep is too slow."""
    context = ToolContext(Workspace.at(folder))
    path, nowhere = os.environ["PATH"], "/nowhere"
    rg = shutil.which("rg")
    some = str(folder / "pkg0" / "mod0" / "file0.ts")

    def ours(search_path: str, tool: type, **arguments: str) -> float:
        os.environ["PATH"] = search_path
        try:
            return seconds(lambda: tool().run(arguments, context))
        finally:
            os.environ["PATH"] = path

    def plain(*arguments: str) -> float:
        return seconds(lambda: subprocess.run([str(rg), *arguments, str(folder)], capture_output=True, check=False))

    def theirs(name: str, **arguments: str) -> float:
        return original.call(name, **arguments) if original else 0.0

    where = str(folder)
    columns: dict[str, Callable[[], tuple[float, float, float, float]]] = {
        "grep": lambda: (
            plain(NEEDLE) if rg else 0.0,
            ours(path, GrepTool, pattern=NEEDLE),
            ours(nowhere, GrepTool, pattern=NEEDLE),
            theirs("grep", pattern=NEEDLE, path=where),
        ),
        "glob": lambda: (
            plain("--files", "-g", "*.ts") if rg else 0.0,
            0.0,
            ours(nowhere, GlobTool, pattern="**/*.ts"),
            theirs("glob", pattern="**/*.ts", path=where),
        ),
        "read": lambda: (
            0.0,
            0.0,
            ours(nowhere, ReadFileTool, file_path=some),
            theirs("read_file", file_path=some),
        ),
    }
    good = True
    print(f"{'milliseconds':<24}{'rg':>9}{'ours+rg':>9}{'ours':>9}{'original':>9}")
    for name, measure in columns.items():
        best = [min(column) for column in zip(*(measure() for _ in range(ROUNDS)), strict=True)]
        print(f"{name:<24}" + "".join(f"{value * 1000:>9.2f}" if value else f"{'-':>9}" for value in best))
        if best[0]:
            slower = best[2] / best[0]
            good = good and slower <= SLOWER
            print(f"{'':<24}without ripgrep x {slower:.1f} of rg (at most {SLOWER})")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--original", metavar="PYTHON", help="interpreter that has corecoder==0.8.0")
    parser.add_argument("--files", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, tree = Path(scratch, "edits"), Path(scratch, "tree")
        folder.mkdir()
        tree.mkdir()
        original = Original(options.original, folder) if options.original else None
        try:
            good = edits(folder, original)
            grow(tree, options.files)
            good = trees(tree, original) and good
        finally:
            if original:
                original.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
