"""Searching contents: one answer from ripgrep and from our own search, bounded, in time, and honest about its gaps."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from corecoder.errors import Cancelled, ToolError
from corecoder.jobs import CancelToken
from corecoder.tool import ToolContext, Workspace
from corecoder.tools import ripgrep
from corecoder.tools.grep import COUNTED, MOST_CHARACTERS, MOST_LINES, GrepTool

RG = shutil.which("rg")
needs_rg = pytest.mark.skipif(RG is None, reason="ripgrep is not installed")
ENGINES = [pytest.param("rg", marks=needs_rg), "own"]


@pytest.fixture
def ctx(project: Path) -> ToolContext:
    return ToolContext(Workspace.at(project))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test that asks for this runs with ripgrep, where there is one, and without."""
    use(request.param, monkeypatch)
    return str(request.param)


def use(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(RG) if engine == "rg" and RG else "/nowhere")


def grep(ctx: ToolContext, pattern: str, path: str = ".", include: str = "") -> str:
    return GrepTool().run({"pattern": pattern, "path": path, "include": include}, ctx).content


def said_of(ctx: ToolContext, pattern: str, path: str = ".", include: str = "") -> str:
    with pytest.raises(ToolError) as caught:
        grep(ctx, pattern, path, include)
    return str(caught.value)


def make(project: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


# --- answers -------------------------------------------------------------------------------------------------------


def test_lines_come_with_path_and_number_in_order_of_path(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"b.py": "x\nMARK 1\n", "a/z.py": "MARK 2\r\n\nMARK 3", "a.py": "nothing\n", "a-b": "MARK 4\n"})
    assert grep(ctx, "MARK") == (
        "a/z.py:1: MARK 2\na/z.py:3: MARK 3\na-b:1: MARK 4\nb.py:2: MARK 1\n[4 matching lines in 3 files.]"
    )
    assert grep(ctx, "mark") == "No line matches."
    assert grep(ctx, "(?i)mark 1", "b.py") == "b.py:2: MARK 1\n[1 matching line in 1 file.]"


def test_paths_are_shown_from_the_shells_directory(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"sub/a.py": "MARK\n", "b.py": "MARK\n"})
    ctx.workspace.cwd = project / "sub"
    assert grep(ctx, "MARK").startswith("a.py:1: MARK\n")
    assert grep(ctx, "MARK", "..").startswith(f"{project}/b.py:1: MARK\na.py:1: MARK\n")


@pytest.mark.parametrize(
    ("include", "found"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("**/*.py", ["a.py", "src/b.py"]),
        ("src/**", ["src/b.py", "src/c.ts", "src/d/e.tsx"]),
        ("src/*.py", ["src/b.py"]),
        ("*.{ts,tsx}", ["src/c.ts", "src/d/e.tsx"]),
        ("*.ts, *.tsx", ["src/c.ts", "src/d/e.tsx"]),
        ("!*.py", ["src/c.ts", "src/d/e.tsx"]),
        ("*.rs", []),
    ],
)
def test_include_narrows_by_name_or_path(
    ctx: ToolContext, project: Path, engine: str, include: str, found: list[str]
) -> None:
    names = ["a.py", "src/b.py", "src/c.ts", "src/d/e.tsx", ".hidden.py"]
    make(project, dict.fromkeys(names, "MARK\n"))
    lines = [line.split(":")[0] for line in grep(ctx, "MARK", include=include).splitlines() if ": MARK" in line]
    assert lines == found
    below = [f"{project}/{name}" for name in found if name.startswith("src/")]
    ctx.workspace.cwd = project.parent
    said = grep(ctx, "MARK", f"{project}/src", include.replace("src/", f"{project.name}/src/"))
    assert [f"{project.parent}/{line.split(':')[0]}" for line in said.splitlines() if ": MARK" in line] == below


def test_a_long_line_is_cut_around_its_match(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"x.min.js": "a" * 300_000 + "stats" + "é" * 300_000 + "\n", "short.js": "b" * 390 + "stats\n"})
    long, short = (line.split(": ", 1)[1] for line in reversed(grep(ctx, "stats").splitlines()[:2]))
    assert long == "…" + "a" * 120 + "stats" + "é" * 275 + "…"
    assert short == "b" * 390 + "stats"


def test_the_whole_is_bounded_and_says_what_there_is(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"a.txt": "match\n" * 1000, "b.txt": ("long match" + "x" * 380 + "\n") * 300})
    lines = grep(ctx, "match").splitlines()
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == f"[The first {MOST_LINES} of 1,300 matching lines.]"
    wide = grep(ctx, "match", "b.txt")
    assert len(wide) < MOST_CHARACTERS + 100
    assert wide.splitlines()[-1].endswith("of 300 matching lines.]")
    make(project, {"c.txt": "match\n" * COUNTED})
    assert "of 5,000 matching lines.]" in grep(ctx, "match", "c.txt")
    assert "of more than 5,000 matching lines; the rest was not counted.]" in grep(ctx, "match")


@needs_rg
def test_ripgrep_tells_no_more_places_of_a_file_than_are_counted(ctx: ToolContext, project: Path) -> None:
    """They are read one by one: 8 million of them in one log took 20 s."""
    make(project, {"tree/big.log": "match\n" * 1000, "rg": f'#!/bin/sh\n{RG} "$@" | tee {project}/told'})
    (project / "rg").chmod(0o755)
    argv = [str(project / "rg"), "-e", "match", "--", str(project / "tree")]
    found = ripgrep.search(ctx, argv, 30.0, wanted=lambda _: True, whole=False, most=2, count=7)
    assert found is not None
    assert found.total == 7
    assert (project / "told").read_bytes().count(b"\n") == 7


def test_a_log_of_millions_of_matches_in_utf_16_is_read_once(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"wide.log": ("match\n" * 400_000).encode("utf-16")})
    said = grep(ctx, "match").splitlines()
    assert said[MOST_LINES - 1] == f"wide.log:{MOST_LINES}: match"


def test_text_in_other_encodings_is_searched_as_far_as_marks_tell(ctx: ToolContext, project: Path, engine: str) -> None:
    make(
        project,
        {
            "marked": b"\xef\xbb\xbfMARK first\nMARK\n",
            "wide": "x\nMARK é\nMARK\n".encode("utf-16"),
            "latin": b"caf\xe9 MARK\n",
        },
    )
    said = grep(ctx, "^MARK|é MARK|MARK$").splitlines()
    assert said[:-1] == [
        "latin:1: caf\ufffd MARK",
        "marked:1: MARK first",
        "marked:2: MARK",
        "wide:2: MARK é",
        "wide:3: MARK",
    ]


def test_binary_files_have_no_lines_unless_they_are_named(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"a.bin": b"MARK\n\0\nMARK\n", "late.bin": b"MARK\n" * 100_000 + b"\0", "t.txt": "MARK\n"})
    assert grep(ctx, "MARK") == "t.txt:1: MARK\n[1 matching line in 1 file.]"
    assert grep(ctx, "MARK", "a.bin") == "a.bin is binary; 2 matching lines (see grep -a)."


# --- what is left out ----------------------------------------------------------------------------------------------


def ignored_tree(project: Path) -> None:
    make(
        project,
        {
            ".gitignore": "scripts/*\n*.log\nnode_modules/\n",
            "scripts/w.py": "MARK\n",
            "a.log": "MARK\n",
            "node_modules/x.js": "MARK\n",
            "ok.py": "MARK\n",
            ".hidden/h.py": "MARK\n",
        },
    )


def test_ignored_files_are_left_out_and_named_also_outside_of_git(ctx: ToolContext, project: Path, engine: str) -> None:
    ignored_tree(project)
    said = grep(ctx, "MARK").splitlines()
    assert said[0] == "ok.py:1: MARK"
    assert said[1] == (
        "[1 matching line in 1 file. Ignored by rules like .gitignore, not searched: a.log, node_modules/, "
        "scripts/w.py. Name a path to search it.]"
    )
    (project / "ok.py").unlink()
    (project / "ok.txt").touch()
    assert "Hidden and not searched: .hidden/." in grep(ctx, "MARK")


def test_a_path_that_is_named_is_searched_whatever_the_rules_say(ctx: ToolContext, project: Path, engine: str) -> None:
    ignored_tree(project)
    assert grep(ctx, "MARK", "a.log").startswith("a.log:1: MARK")
    assert grep(ctx, "MARK", "node_modules").startswith("node_modules/x.js:1: MARK")
    assert grep(ctx, "MARK", ".hidden").startswith(".hidden/h.py:1: MARK")
    said = grep(ctx, "MARK", "scripts/")
    assert said.startswith("scripts/w.py:1: MARK")
    assert "Everything in scripts is ignored" in said
    (project / "scripts/inner").mkdir()
    shutil.move(project / "scripts/w.py", project / "scripts/inner/w.py")
    assert grep(ctx, "MARK", "scripts").startswith("scripts/inner/w.py:1: MARK")


def test_hidden_files_are_named_also_where_everything_else_is_ignored(
    ctx: ToolContext, project: Path, engine: str
) -> None:
    make(project, {".gitignore": "out/*\n!out/.env\n", "out/a.py": "x\n", "out/.hid": "MARK\n"})
    assert "Everything in out is ignored" in grep(ctx, "MARK", "out")
    assert "Hidden and not searched: out/.hid." in grep(ctx, "MARK", "out")


def test_nothing_is_left_out_by_name_alone(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"node_modules/x.js": "MARK\n", "build/y.py": "MARK\n"})
    assert "2 matching lines in 2 files" in grep(ctx, "MARK")


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ({".gitignore": "*.log\n!keep.log\n"}, ["a.txt", "d/a.txt", "d/keep.log", "keep.log"]),
        ({".gitignore": "/a.txt\n"}, ["b.log", "d/a.txt", "d/b.log", "d/keep.log", "keep.log"]),
        ({".gitignore": "d/\n!d/a.txt\n"}, ["a.txt", "b.log", "keep.log"]),
        ({".gitignore": "*.log\n", "d/.gitignore": "!b.log\n"}, ["a.txt", "d/a.txt", "d/b.log"]),
        ({".gitignore": "*.log\n", ".ignore": "!b.log\n"}, ["a.txt", "b.log", "d/a.txt", "d/b.log"]),
        (
            {".ignore": "*.txt\n", ".rgignore": "!a.txt\n"},
            ["a.txt", "b.log", "d/a.txt", "d/b.log", "d/keep.log", "keep.log"],
        ),
        ({".gitignore": "!.dot\n"}, [".dot", "a.txt", "b.log", "d/a.txt", "d/b.log", "d/keep.log", "keep.log"]),
        ({".gitignore": "d/**\n"}, ["a.txt", "b.log", "keep.log"]),
        ({".gitignore": "**/[ab].*\n"}, ["d/keep.log", "keep.log"]),
        ({".gitignore": "*.log  \r\n# a.txt\n\\#x\n[\n"}, ["a.txt", "d/a.txt"]),
        ({".git/info/exclude": "*.log\n"}, ["a.txt", "d/a.txt"]),
        ({".git/HEAD": "", ".gitignore": "*.log\n", "d/.git/HEAD": ""}, ["a.txt", "d/a.txt", "d/b.log", "d/keep.log"]),
        ({".gitignore": "*.log\n", "d/.git/HEAD": ""}, ["a.txt", "d/a.txt"]),
    ],
)
def test_ignore_rules_mean_what_git_and_ripgrep_mean_by_them(
    ctx: ToolContext, project: Path, engine: str, rules: dict[str, str], found: list[str]
) -> None:
    make(project, dict.fromkeys(["a.txt", "b.log", "keep.log", "d/a.txt", "d/b.log", "d/keep.log", ".dot"], "MARK\n"))
    make(project, dict(rules))
    lines = [line.split(":")[0] for line in grep(ctx, "MARK").splitlines() if ": MARK" in line]
    assert lines == found


def test_rules_of_the_directories_above_count_too(ctx: ToolContext, project: Path, engine: str) -> None:
    make(
        project, {".gitignore": "/sub/a.py\n*.log\n", "sub/a.py": "MARK\n", "sub/b.py": "MARK\n", "sub/c.log": "MARK\n"}
    )
    (project.parent / "link").symlink_to(project)
    for path in ("sub", f"{project.parent}/link/sub"):
        said = grep(ctx, "MARK", path)
        assert "1 matching line in 1 file" in said
        assert "b.py:1: MARK" in said
        assert "not searched: " in said


# --- what cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_links_in_a_tree_are_passed_over(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"d/a.py": "MARK\n"})
    os.mkfifo(project / "notes.md")
    (project / "d/loop").symlink_to("..")
    (project / "link.py").symlink_to("d/a.py")
    assert grep(ctx, "MARK") == "d/a.py:1: MARK\n[1 matching line in 1 file.]"
    assert grep(ctx, "MARK", "link.py").startswith("link.py:1: MARK")
    assert "named pipe" in said_of(ctx, "MARK", "notes.md")
    assert "does not exist" in said_of(ctx, "MARK", "nope")


def test_places_that_cannot_be_read_are_mentioned_and_do_not_stop_the_search(
    ctx: ToolContext, project: Path, engine: str
) -> None:
    make(project, {"a.py": "MARK\n", "z.py": "MARK\n"})
    unreadable = project / "locked"
    unreadable.mkdir()
    unreadable.chmod(0)
    if os.access(unreadable, os.R_OK):  # root reads everything, but not a path that is too long for any call
        deep = os.open(project, os.O_RDONLY)
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=deep)
            inner = os.open("d" * 250, os.O_RDONLY, dir_fd=deep)
            os.close(deep)
            deep = inner
        os.close(deep)
    said = grep(ctx, "MARK")
    assert said.startswith("a.py:1: MARK\nz.py:1: MARK\n")
    assert "Could not be read: " in said
    assert "(Permission denied)" in said or "(File name too long)" in said
    unreadable.chmod(0o755)


def test_a_brace_that_is_not_closed_is_wrong(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"a.ts": "x\n", "b.py": "x\n", "c{.x": "x\n"})
    assert said_of(ctx, "x", include="*.{ts,tsx") == "include '*.{ts,tsx' is wrong: '{' without '}'."
    assert "'}' without '{'" in said_of(ctx, "x", include="*.ts}")
    assert grep(ctx, "x", include="*[{].x").startswith("c{.x:1: x")


# --- patterns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2,1}", "(?P<x", "\\"])
def test_a_wrong_pattern_is_explained(ctx: ToolContext, project: Path, engine: str, pattern: str) -> None:
    make(project, {"a": "x\n"})
    assert f"The pattern '{pattern}' cannot be used" in said_of(ctx, pattern)


def test_a_pattern_that_can_never_match_a_line_is_explained(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"a": "x\ny\n"})
    for pattern in ("x\\ny", "x\ny", "x\\r$"):
        assert "line end" in said_of(ctx, pattern)
    assert "a:1: x" in grep(ctx, "x[^\\n]*")
    assert "empty" in said_of(ctx, "")


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("interface {", "type A interface {"),
        ('say\\("hi\\"', 'say("hi")'),
        ("a\\/b", "a/b"),
        ("\\<div\\>", "<div>"),
        ("(?<word>ab)c", "abc"),
        ("[[:digit:]]{3}", "x123"),
        ("[]x]y", "]y"),
        ("\\x{e9}t", "été"),
        ("^\\s+x$", "\tx"),
    ],
)
def test_common_spellings_work_everywhere(
    ctx: ToolContext, project: Path, engine: str, pattern: str, line: str
) -> None:
    make(project, {"a": f"other\n{line}\n"})
    assert grep(ctx, pattern) == f"a:2: {line}\n[1 matching line in 1 file.]"


def test_what_only_one_engine_knows_is_said(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"a": "foobar\nfoo\n"})
    said = grep(ctx, "foo(?!bar)")
    assert said.startswith("a:2: foo\n")
    assert ("ripgrep could not do this search" in said) == (engine == "rg")
    if engine == "own":
        assert "known to ripgrep only" in said_of(ctx, "\\p{Lu}")
        assert "known to ripgrep only" in said_of(ctx, "[a-z&&[^b]]")
        assert "a flag that is turned off is known to ripgrep only" in said_of(ctx, "(?-i)foo")
        for twice in ("a**", "a+*", "a{2}{3}", "a*{2}"):
            assert "a repeat of a repeat is known to ripgrep only" in said_of(ctx, twice)
        assert grep(ctx, "\\**?foob") == "a:1: foobar\n[1 matching line in 1 file.]"
    else:
        assert grep(ctx, "\\p{Lu}") == "No line matches."


@pytest.mark.parametrize("end", ["exit 101", "kill -SEGV $$"])
def test_a_ripgrep_that_breaks_down_loses_no_line(
    ctx: ToolContext, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    program = tmp_path_factory.mktemp("bin") / "rg"
    program.write_text(f"#!/bin/sh\nprintf '{project}/a\\0001:1:0:x\\n'\n{end}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    make(project, {"a": "x\n", "b": "x\n"})
    found = "a:1: x\nb:1: x\n[2 matching lines in 2 files."
    assert grep(ctx, "x") == f"{found} ripgrep could not do this search; Python's engine did.]"


def test_a_lone_carriage_return_at_the_end_costs_no_line(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"a": "foo\nbar\r", "b": "foo\n"})
    assert grep(ctx, "o$").startswith("a:1: foo\nb:1: foo\n[2 matching lines in 2 files.")


@pytest.mark.parametrize("pattern", ["^", "^$", "()", "a|", "x*", "|", "\\B"])
@pytest.mark.parametrize("content", [b"x\n\r", b"\r", b"\r\n\r", b"\xef\xbb\xbf\r", b"x\r"])
def test_a_last_line_of_a_lone_carriage_return_is_empty(
    ctx: ToolContext, project: Path, engine: str, pattern: str, content: bytes
) -> None:
    make(project, {"a": content})
    lines = content.removeprefix(b"\xef\xbb\xbf").decode().removesuffix("\r").split("\n")
    matching = {"^$": [not line.strip() for line in lines], "\\B": [not line.strip() for line in lines]}
    wanted = matching.get(pattern, [True] * len(lines))
    found = [line.split(":")[1] for line in grep(ctx, pattern).splitlines() if line.startswith("a:")]
    assert found == [str(number) for number, matches in enumerate(wanted, 1) if matches]


def test_two_stars_match_a_name_with_a_line_end(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, {"src/a\nb": "x\n"})
    assert grep(ctx, "x", include="**").startswith("src/a\\nb:1: x\n")


def test_what_ripgrep_cannot_read_is_said_as_by_our_own_search(
    ctx: ToolContext, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path_factory.mktemp("bin") / "rg"
    denied = "Permission denied (os error 13)"
    said = f"rg: {project}/a:b: {denied}\n{project}/nx: IO error for operation on {project}/nx: {denied}\n"
    program.write_text(f"#!/bin/sh\ncat >&2 <<END\n{said}END\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    assert "Could not be read: a:b (Permission denied), nx (Permission denied)." in grep(ctx, "x")


class Hasty(GrepTool):
    time_limit = 1.0


def test_a_catastrophic_pattern_ends_in_time(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use("own", monkeypatch)
    make(project, {"a": "early aaa\n", "b": "a" * 35 + "!\n"})
    result = Hasty().run({"pattern": "(a+)+$"}, ToolContext(Workspace.at(project)))
    assert "a:1: early aaa" in result.content
    assert result.content.startswith("[Not everything was searched: stopped after 1 s.")


@needs_rg
def test_ripgrep_has_no_trouble_with_a_catastrophic_pattern(ctx: ToolContext, project: Path) -> None:
    make(project, {"b": "a" * 35 + "!\n"})
    assert grep(ctx, "(a+)+$") == "No line matches."


def test_a_cancel_ends_the_search_and_its_process(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use("own", monkeypatch)
    make(project, {"b": "a" * 35 + "!\n"})
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        grep(ToolContext(Workspace.at(project), token=token), "(a+)+$")
    timer.join()
    assert time.monotonic() - started < 10  # the limit is 30
    assert children() == []


def children() -> list[str]:
    """The processes that this one has started and that still run, where /proc tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:  # ended meanwhile
            continue
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid() and state != "Z":
            found.append(name)
    return found


def test_a_ripgrep_that_lies_in_the_project_is_not_run(
    ctx: ToolContext, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(project, {"bin/rg": "#!/bin/sh\ntouch PWNED\n", "a": "MARK\n"})
    (project / "bin/rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{project}/bin")
    assert grep(ctx, "MARK").startswith("a:1: MARK")
    assert not (project / "PWNED").exists()


# --- one answer ----------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "src", "build", "x.py", "y.js", "z.log", ".hid", "w.min.js", "ä.py", "sp ace", ".env", "-dash"]
LINES = [
    "foo bar",
    "Foo",
    "x = foo(1)",
    "",
    "   ",
    "\tfoo",
    "foo{bar}",
    "été foo",
    "中文 foo",
    "x" * 500 + " foo " + "y" * 600,
]
LINES += ["foo" * 200, "[foo]", "a/b", '"foo"', "1234 foo_5", "<foo>", "\u00a0foo", "caf"]
PATTERNS = [
    "foo",
    "^foo",
    "foo$",
    "(?i)FOO",
    "f.o",
    "[fx]oo",
    r"\bfoo\b",
    "foo {",
    r"\s+foo",
    r"^\s*$",
    "[^a]foo",
    r"\d+",
]
PATTERNS += [
    r"\w+ foo",
    "foo|bar",
    r"\"foo\"",
    "[[:alpha:]]{4}",
    "^$",
    ".*",
    "été",
    "中.",
    r"\S$",
    r"\W",
    r"[\s\S]o$",
    "caf.",
]
RULES = [
    "*.log",
    "build/",
    "/src",
    "!z.log",
    "src/*",
    "**/b",
    "a/**",
    "*.js",
    "!*.min.js",
    ".hid",
    "!.env",
    "# c",
    "",
    "sp ace",
]
RULES += ["*.{py,js}", "[ab]", "/a/b", "src/**/x.py", "?", "!/build", "ä*", "*", "!*/", "!*.py", "x.py "]
INCLUDES = ["", "", "", "*.py", "!*.js", "src/**", "*.{py,js}"]


def grow(rnd: random.Random, directory: Path, repository: bool, depth: int = 0) -> None:
    """A random tree with random rules, line ends, encodings and binary files.

    Repositories lie in repositories only: elsewhere the versions of ripgrep differ on what they mean.
    """
    if rnd.random() < 0.5:
        rules = "\n".join(rnd.choices(RULES, k=rnd.randint(1, 5)))
        (directory / rnd.choice([".gitignore", ".gitignore", ".ignore", ".rgignore"])).write_text(rules)
    if repository and rnd.random() < 0.1:
        (directory / ".git").mkdir(exist_ok=True)
    for name in rnd.sample(NAMES, rnd.randint(2, 6)):
        path = directory / name
        if depth < 3 and rnd.random() < 0.4:
            path.mkdir()
            grow(rnd, path, repository, depth + 1)
            continue
        text = "\n".join(rnd.choices(LINES, k=rnd.randint(0, 8))) + rnd.choice(["", "\n"])
        data = text.encode()
        spoiled = [data] * 8 + [text.encode("utf-16"), b"\xef\xbb\xbf" + data, text.encode("latin-1", "replace")]
        path.write_bytes(rnd.choice([*spoiled, data + b"\0" + data, data.replace(b"\n", b"\r\n"), data * 500]))


@needs_rg
@pytest.mark.parametrize("seed", range(12))
def test_ripgrep_and_our_own_search_give_the_same_answer(
    ctx: ToolContext, project: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rnd = random.Random(seed)
    repository = rnd.random() < 0.5
    if repository:
        (project / ".git").mkdir()
    grow(rnd, project, repository)
    places = [str(path.relative_to(project)) for path in sorted(project.rglob("*")) if ".git" not in path.parts]
    for _ in range(3):
        question = (rnd.choice(PATTERNS), rnd.choice([".", ".", rnd.choice(places)]), rnd.choice(INCLUDES))
        answers = []
        for engine in ("rg", "own"):
            use(engine, monkeypatch)
            answers.append(grep(ctx, *question))
        assert answers[0] == answers[1], question


SECRETS: dict[str, str | bytes] = {
    "a.py": "needle\n",
    "certificate.pem": "-----BEGIN CERTIFICATE-----\n",
    "deploy/server.key": "needle secret\n",
    "deploy/tls.pem": "-----BEGIN RSA PRIVATE KEY-----\nneedle secret\n",
    "deploy/prod.env": "x\n",
    "ignored.key": "needle secret\n",
    ".ssh/id_map": "needle secret\n",
    "id_map/b": "needle\n",
    ".gitignore": "ignored.key\n",
    ".git/HEAD": "",
}


def test_a_search_of_a_directory_leaves_secrets_out_and_says_which(
    ctx: ToolContext, project: Path, engine: str
) -> None:
    make(project, SECRETS)
    said = grep(ctx, "needle")
    assert said.splitlines()[:2] == ["a.py:1: needle", "id_map/b:1: needle"]
    assert "secret" not in "".join(said.splitlines()[:-1])
    left_out = "3 files that may hold secrets were left out: "
    assert left_out in said
    assert all(name in said for name in ("deploy/server.key", "deploy/tls.pem", "deploy/prod.env"))
    assert "CERTIFICATE" not in said.replace("certificate.pem", "")
    # What is in them cannot be found out by asking: the note is the same whether they match or not.
    assert left_out in grep(ctx, "nowhere")
    assert "1 file that may hold secrets was left out: deploy/server.key." in grep(ctx, "needle", include="*.{key,py}")


def test_a_secret_that_is_named_is_searched(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, SECRETS)
    assert "needle secret" in grep(ctx, "needle", "deploy/server.key")
    assert "needle secret" in grep(ctx, "needle", include="*.key")
    assert "needle secret" in grep(ctx, "needle", ".ssh")


def test_in_a_huge_tree_secrets_are_left_out_as_well(ctx: ToolContext, project: Path, engine: str) -> None:
    make(project, SECRETS)
    (project / "many").mkdir()
    for number in range(10_001):
        (project / "many" / str(number)).touch()
    said = grep(ctx, "needle")
    assert "needle secret" not in said
    assert "Files that may hold secrets are left out." in said
