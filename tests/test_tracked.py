"""A secret that was committed is not printed by git without a question."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from corecoder.permissions import Allow, Ask, Permissions, Refuse
from corecoder.tool import Workspace
from corecoder.tools.bash import BashTool

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def repository(project: Path) -> Path:
    for name in ("src/a.py", "deploy/prod.env", "deploy/notes.txt", "cert.pem", "README.md"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("TOKEN=1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    return project


def git(*words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.test")
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout


def asks(command: str) -> bool:
    verdict = Permissions("ask", Workspace.at(Path.cwd())).judge(BashTool(), {"command": command})
    if isinstance(verdict, Ask):
        assert ".env, which may hold secrets" in verdict.text
        return True
    assert verdict == Allow()
    return False


PRINTS = """
git grep TOKEN
git grep -n TOKEN -- deploy
git grep -e TOKEN deploy
git grep TOKEN '*.env'
git diff
git diff HEAD~1
git diff --cached
git diff HEAD -- .
git diff --stat -p
git show
git show HEAD
git show -p HEAD
git --no-pager log -p
git log -3 --patch
git log -U5
git log -p -S src
git log -p --author src
git log -L1,2:deploy/prod.env
git diff-tree -p HEAD
git status -v
git log --check
git status -sv
git show :/x
git show :(top)deploy
cd src && git diff
cd deploy && git grep TOKEN
git diff -- src ':!src/a.py' deploy/prod.env
git show HEAD:deploy/prod.env
""".strip().splitlines()
PRINTS_NOT = """
git status
git status -uall
git log --oneline
git log --stat -5
git diff --stat
git diff --name-only HEAD
git show --stat HEAD
git diff-tree HEAD
git cat-file -p HEAD
git show HEAD:README.md
git grep TOKEN src
git grep TOKEN -- '*.py'
git diff src/a.py
git diff HEAD -- src README.md
git log -p -- src
git show HEAD -- src deploy/notes.txt
git diff -- . ':!deploy'
git grep TOKEN ':!deploy/prod.env'
git grep TOKEN -- . ':(exclude)*.env'
cd src && git diff -- a.py
git blame README.md
git ls-files
""".strip().splitlines()


@pytest.mark.parametrize("command", PRINTS)
def test_what_would_print_a_tracked_secret_is_asked_for(command: str, repository: Path) -> None:
    command = command.replace(":(top)deploy", "':(top)deploy'")
    assert asks(command)


@pytest.mark.parametrize("command", PRINTS_NOT)
def test_what_prints_no_tracked_secret_runs(command: str, repository: Path) -> None:
    assert not asks(command)


def test_with_nobody_there_the_refusal_says_how_to_leave_the_secret_out(repository: Path) -> None:
    auto = Permissions("auto", Workspace.at(repository))
    refused = auto.judge(BashTool(), {"command": "git diff"})
    assert isinstance(refused, Refuse)
    assert "deploy/prod.env" in refused.words
    assert "-- . as ':!NAME'" in refused.words
    assert auto.judge(BashTool(), {"command": "git diff -- . ':!deploy/prod.env'"}) == Allow()


def test_a_file_by_its_number_may_be_the_secret(repository: Path) -> None:
    number = git("rev-parse", "HEAD:deploy/prod.env").strip()
    assert asks(f"git show --stat {number}")
    assert asks(f"git cat-file -p {number}")
    assert not asks(f"git cat-file -t {number}")


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_of_the_index_is_read(version: str, repository: Path) -> None:
    (repository / "deploy/new.txt").touch()
    git("add", "--intent-to-add", "deploy/new.txt")
    git("update-index", "--index-version", version)
    assert asks("git diff")
    git("rm", "-q", "--cached", "deploy/prod.env")
    assert not asks("git diff")


def test_a_tracked_certificate_is_public_and_a_tracked_key_is_not(repository: Path) -> None:
    git("rm", "-q", "--cached", "deploy/prod.env")
    assert not asks("git diff")
    (repository / "cert.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    verdict = Permissions("ask", Workspace.at(repository)).judge(BashTool(), {"command": "git diff"})
    assert isinstance(verdict, Ask)


@pytest.mark.parametrize("name", [".ssh/config", ".docker/config.json", "a/.kube/config", "x.key~"])
def test_a_secret_is_known_in_the_index_as_anywhere_else(name: str, repository: Path) -> None:
    git("rm", "-q", "--cached", "deploy/prod.env")
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    (repository / name).touch()
    git("add", name)
    verdict = Permissions("ask", Workspace.at(repository)).judge(BashTool(), {"command": "git diff"})
    assert isinstance(verdict, Ask)
    assert name in verdict.text


def test_a_damaged_index_ends_nothing(repository: Path) -> None:
    index = (repository / ".git/index").read_bytes()
    for content in (
        b"",
        b"DIRC",
        index[:40],
        index[:100],
        b"DIRC" + b"\xff" * 200,
        b"DIRC\0\0\0\4\xff\xff\xff\xff" * 9,
    ):
        (repository / ".git/index").write_bytes(content)
        assert not asks("git diff")
