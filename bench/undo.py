"""Undo against destructive steps, and what a checkpoint costs: python bench/undo.py

Each step runs in a project of its own, a git repository with work of the user's in it: something staged, something
changed after that, something untracked, something ignored. The step is a command of the agent's, in a turn; then the
user edits one file that the step left alone and makes another; then the turn is undone. But for what was said to be
beyond undo (the records of the nested repository), every byte, mode, link and empty directory has to be as before the
step, the conversation too, and so `git status --porcelain=v2`, `git diff --cached` and the bytes of .git/index; what
the user did by hand has to be there as well.

The cost is that of a command which changes nothing but may, with a checkpoint and without, taken in turns. Exit code 1
if a step is not undone.
"""

from __future__ import annotations

import os
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corecoder.agent import Agent
from corecoder.checkpoints import Checkpoints
from corecoder.events import Notice
from corecoder.jobs import CancelToken
from corecoder.permissions import Permissions
from corecoder.scripted import ScriptedLLM, call
from corecoder.tool import ToolContext, Workspace
from corecoder.tools.bash import BashTool

STEPS = [
    ("sed -i", "sed -i 's/one/two/' src/*.py README.md"),
    ("rm -r", "rm -r src"),
    ("rm -rf of everything", "rm -rf -- * .gitignore .env"),
    ("git checkout .", "git checkout -q ."),
    ("git reset --hard", "git reset -q --hard"),
    ("git clean -fd", "git clean -qfd"),
    ("git clean -fdx", "git clean -qfdx"),
    ("git stash -u", "git stash -q -u"),
    ("git add -A; git rm", "git add -A; git rm -qrf src/a.py docs"),
    ("git apply of a patch", "git diff HEAD -- src/b.py | git apply -R"),
    ("mv of a directory", "mv src lib"),
    ("mv over a file", "mv src/a.py src/b.py"),
    ("mv of two names", "mv src/a.py t && mv src/b.py src/a.py && mv t src/b.py"),
    ("truncate", "truncate -s 3 binary.dat src/a.py"),
    (": > file", "for f in src/*.py notes.txt; do : > $f; done"),
    ("chmod", "chmod 600 src/a.py; chmod +x README.md; chmod 700 docs"),
    ("chmod -R 000", "chmod -R 000 src"),
    ("link to another target", "ln -sfn docs link"),
    ("link replaced by a file", "rm link && cp README.md link"),
    ("file replaced by a link", "ln -sf README.md src/a.py; ln -sf ../../../etc/passwd notes.txt"),
    ("directory replaced by a link", "rm -r src && ln -s /etc src"),
    ("CR LF to LF", "sed -i 's/\\r$//' crlf.txt; sed -i 's/$/\\r/' src/b.py"),
    ("Latin-1 recoded", "iconv -f latin1 -t utf8 latin.txt > t && mv t latin.txt"),
    ("binary patched", "printf '\\0\\1' | dd of=binary.dat bs=1 seek=7 conv=notrunc status=none"),
    ("newline at the end of a file", 'echo >> no-newline.txt; printf %s "$(cat README.md)" > README.md'),
    ("file replaced by a directory", "rm src/a.py && mkdir -p src/a.py/deep && touch src/a.py/deep/x"),
    ("directory replaced by a file", "rm -r docs && echo flat > docs"),
    ("directory, file and back", "rm -r docs && touch docs && rm docs && mkdir docs && touch docs/new"),
    ("empty directory removed", "rmdir empty; mkdir -p some/more/empty"),
    ("odd names", "for f in odd/*; do echo x >> \"$f\"; done; rm odd/*b*; touch odd/$'\\377new\\n'"),
    ("many new files", "mkdir gen && for i in $(seq 300); do echo $i > gen/$i.txt; done"),
    ("nested repository", "rm -r nested/inner.txt && echo x > nested/new.txt"),
    ("ignored file", "rm .env; echo 1 > build.log"),
    ("hard link written through", "echo more >> hard-1"),
    ("a script that fails half-way", "sed -i s/one/1/ src/a.py && rm notes.txt && false && rm -r src"),
    ("an interpreter", "python3 -c \"import shutil; shutil.rmtree('src'); open('README.md','w').close()\""),
]


def git(project: Path, *arguments: str) -> bytes:
    # Without locks, so that looking does not refresh the index.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    user = ("-c", "user.name=user", "-c", "user.email=user@example.org")
    return subprocess.run(["git", *user, *arguments], cwd=project, env=env, capture_output=True, check=True).stdout


def make_project(project: Path) -> None:
    for name in ("src", "docs", "odd", "empty", "nested"):
        (project / name).mkdir(parents=True)
    for name in ("a", "b", "c"):
        (project / f"src/{name}.py").write_text(f"one = '{name}'\n" * 40)
    (project / "README.md").write_text("one\n")
    (project / "docs/guide.md").write_text("guide\n")
    (project / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (project / "latin.txt").write_bytes(b"caf\xe9\r\n")
    (project / "binary.dat").write_bytes(bytes(range(256)) * 50)
    (project / "no-newline.txt").write_bytes(b"no newline")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("src/a.py")
    (project / "dangling").symlink_to("nowhere")
    for name in (b"a blank", b"new\nline", b"\xfcber", b"-dash", b"quote\"'b", b"tab\t"):
        Path(os.fsdecode(os.path.join(os.fsencode(project), b"odd", name))).write_bytes(name)
    (project / ".gitignore").write_text("*.log\n.env\n")
    (project / ".gitattributes").write_text("*.txt text eol=crlf\n*.py ident\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A", "--", ".", ":!nested")
    git(project, "commit", "-q", "-m", "first")
    (project / "src/b.py").write_text("staged = 1\n")
    (project / "docs/staged.md").write_text("staged\n")
    git(project, "add", "src/b.py", "docs/staged.md")
    (project / "src/b.py").write_text("staged = 1\nchanged after that = 1\n")
    (project / "src/c.py").write_text("changed, not staged\n")
    (project / "notes.txt").write_text("untracked\n")
    (project / ".env").write_text("SECRET=1\n")
    git(project / "nested", "init", "-q")
    (project / "nested/inner.txt").write_text("inner\n")
    (project / "hard-1").write_text("hard\n")
    os.link(project / "hard-1", project / "hard-2")


def picture(project: Path) -> dict[bytes, tuple[object, ...]]:
    """Everything in the project but git's own directory."""
    top = os.fsencode(project)
    found: dict[bytes, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(top):
        if b".git" in folders:
            folders.remove(b".git")
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content: object = None
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, top)] = (info.st_mode, content)
    return found


def records(project: Path) -> dict[str, bytes]:
    return {
        "git status": git(project, "status", "--porcelain=v2"),
        "git diff --cached": git(project, "diff", "--cached"),
        ".git/index": (project / ".git/index").read_bytes(),
    }


def undone(command: str, folder: Path) -> list[str]:
    """What is not as it was after `command` and its undo."""
    project = folder / "project"
    make_project(project)
    before, git_before = picture(project), records(project)
    workspace = Workspace.at(project)
    script = ["hello", [call("bash", command=command)], "done"]
    agent = Agent(
        ScriptedLLM(script),
        workspace=workspace,
        permissions=Permissions("yolo", workspace),
        checkpoints=lambda: Checkpoints(folder / "home", workspace),
    )
    agent.chat("good day")
    view = agent.session.view
    said = " ".join(event.text for event in agent.run("do it") if isinstance(event, Notice))
    if picture(project) == before:
        return ["the step did nothing"]
    by_hand = {b"by hand.txt": b"mine\n"}
    if picture(project).get(b"run.sh") == before[b"run.sh"]:
        by_hand[b"run.sh"] = b"#!/bin/sh\n# mine\n"
    for name, data in by_hand.items():
        (project / os.fsdecode(name)).write_bytes(data)
    done = agent.rewind()
    agent.close()
    left = [change for change in done.files if change.action == "leave"]
    faults = [f"{change.path}: {change.reason}" for change in left if change.path not in said]
    after = picture(project)
    for name, data in by_hand.items():
        if after.pop(name, (0, b""))[1] != data:
            faults.append(f"{os.fsdecode(name)}: the user's own change is lost")
        before.pop(name, None)
        (project / os.fsdecode(name)).unlink(missing_ok=True)
    if b"run.sh" in by_hand:
        (project / "run.sh").write_text("#!/bin/sh\n")
        (project / "run.sh").chmod(0o755)
    faults += [
        f"{name!r}: {before.get(name)} became {after.get(name)}"
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    ]
    faults += [what for what, data in records(project).items() if data != git_before[what]]
    if agent.session.view != view:
        faults.append("the conversation")
    return faults


def overhead(count: int, folder: Path) -> str:
    project = folder / "project"
    for number in range(count):
        path = project / f"package{number // 20:04}/module{number % 20}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n" * 200)
    git(project, "init", "-q")
    git(project, "add", "-A")
    workspace = Workspace.at(project)
    kept = Checkpoints(folder / "home", workspace)
    arguments = {"command": "touch one"}

    def run(*, keep: bool) -> float:
        started = time.perf_counter()
        if keep:
            with kept.step(arguments, CancelToken(), lambda _: None):
                BashTool().run(arguments, ToolContext(workspace))
        else:
            BashTool().run(arguments, ToolContext(workspace))
        return (time.perf_counter() - started) * 1000

    time.sleep(2.1)  # a project is not made in the moment before its first command
    run(keep=False)
    first = run(keep=True) - run(keep=False)
    run(keep=True)
    pairs = [(run(keep=True), run(keep=False)) for _ in range(15)]
    following = statistics.median(kept_ - plain for kept_, plain in pairs)
    edit = {"file_path": "package0001/module1.py"}
    started = time.perf_counter()
    for _ in range(20):
        with kept.step(edit, CancelToken(), lambda _: None):
            pass
    tool = (time.perf_counter() - started) * 1000 / 20
    kept.close()
    stored = sum(path.stat().st_size for path in (folder / "home").rglob("*") if path.is_file()) / 1e6
    return f"| {count:,} | {first:,.0f} ms | {following:,.0f} ms | {tool:.1f} ms | {stored:.1f} MB |"


def main() -> int:
    failed = 0
    print("| step | undone |\n|---|---|")
    for name, command in STEPS:
        with tempfile.TemporaryDirectory() as folder:
            faults = undone(command, Path(folder).resolve())
        failed += bool(faults)
        print(f"| {name} | {'yes' if not faults else 'NO: ' + '; '.join(faults)[:2000]} |", flush=True)
    print(f"\n{len(STEPS) - failed} of {len(STEPS)} undone\n")
    print("| files | first command | each following | each edit | stored |\n|---|---|---|---|---|")
    for count in (2_000, 20_000):
        with tempfile.TemporaryDirectory() as folder:
            print(overhead(count, Path(folder).resolve()), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
