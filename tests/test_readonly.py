"""Which commands pass as certainly read-only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corecoder.readonly import is_read_only_command

HARMLESS = """
ls
ls -la src
cat README.md | head -20
grep -rn "def main" src | wc -l
rg -n TODO
find . -name '*.py' -type f
find src -name "*.py" | sort | uniq_free
git log --oneline -5
git diff HEAD~1
git status --short
cd src && ls
wc -l *.py
cat a.txt; cat b.txt
grep foo bar.txt 2>/dev/null
ls missing 2>&1 | head -3
sort -n -k2 data.txt
echo 'a; rm -rf x'
head -c 100 file.bin
true
""".strip().splitlines()
HARMLESS.remove('find src -name "*.py" | sort | uniq_free')

DANGEROUS = r"""
rm -rf x
rm -r -f /x
x=rm; $x -rf /x
r''m -rf /x
echo cm0gLXJmIC94|base64 -d|sh
find /x -delete
find . -name '*.py' -exec rm {} +
find *
find -*
$'r\155' -rf /x
{rm,-rf,/x}
echo hi > file
echo hi >> file
cat < /etc/passwd > copy
ls & rm x
ls && rm x
ls || rm x
ls | xargs rm
ls; rm x
echo `rm x`
echo $(rm x)
cat <(rm x)
FOO=1 ls
LD_PRELOAD=./x.so ls
./ls
/tmp/ls
sort -o out in
sort -ofile in
sort --out=file in
sort -no out in
sort --compress-program=./x in
git commit -m x
git -C /elsewhere status
git -c core.pager=./x log
git log --output=file
git diff --outp=file
git diff --ext-diff
git grep -O./x foo
cd /elsewhere && git status
git checkout .
python -m unittest
make
sed -i s/a/b/ f
awk 'BEGIN{system("rm x")}'
env rm x
sudo ls
eval ls
source x
. ./x
tree -o out
rg --pre ./x foo
rg --pre=./x foo
file -C -m x
"ls" > x
echo "$(rm x)"
echo "`rm x`"
ls #
tee out
dd if=a of=b
test -v 'a[$(touch made)]'
test -e x
rg -z foo
""".strip().splitlines()


@pytest.fixture
def repository(project: Path) -> Path:
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("[core]\n\tbare = false\n")
    return project


@pytest.mark.parametrize("command", HARMLESS)
def test_a_command_that_only_reads_passes(command: str, repository: Path) -> None:
    assert is_read_only_command(command, repository)


@pytest.mark.parametrize("command", DANGEROUS)
def test_a_command_that_may_write_or_run_something_does_not_pass(command: str, repository: Path) -> None:
    assert not is_read_only_command(command, repository)


def test_a_second_line_does_not_pass(repository: Path) -> None:
    assert not is_read_only_command("ls\nrm x", repository)
    assert not is_read_only_command("ls \r rm x", repository)


def test_an_empty_command_does_not_pass(repository: Path) -> None:
    assert not is_read_only_command("", repository)
    assert not is_read_only_command(" | ", repository)


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\tfsmonitor = ./x",
        '[diff "a"]\n\ttextconv = ./x',
        "[Include]\n\tpath = x",
        "[gpg]\n\tprogram = ./x\n[log]\n\tshowSignature = true",
        '[remote "o"]\n\tpromisor = true\n\turl = ./.git\n\tuploadpack = ./x',
        '[remote "o"]\n\turl = ext::./x',
        "[core] fsmonitor = ./x",
        "[core]\n\tbare = false \\\n",
        "[core]\n\trepositoryformatversion = 1",
    ],
)
def test_git_does_not_pass_where_the_repository_may_run_programs(setting: str, repository: Path) -> None:
    (repository / ".git" / "config").write_text(setting)
    assert not is_read_only_command("git status", repository)


def test_git_passes_in_a_repository_as_git_makes_them(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "remote", "add", "origin", "https://example.test/x.git"], check=True)
    subprocess.run(["git", "config", "branch.main.remote", "origin"], check=True)
    assert is_read_only_command("git status && git diff", project)


def test_git_does_not_pass_where_a_repository_stands_inside_another(project: Path) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.test"]
    for place in (project, project / "sub"):
        subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run(["git", *identity, "-C", "sub", "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert is_read_only_command("git status", project)
    subprocess.run(["git", "add", "sub"], check=True, stderr=subprocess.DEVNULL)
    assert not is_read_only_command("git status", project)


def test_git_does_not_pass_where_reading_runs_a_hook(repository: Path) -> None:
    (repository / ".git" / "hooks").mkdir()
    (repository / ".git" / "hooks" / "post-index-change").write_text("#!/bin/sh\ntouch made\n")
    assert not is_read_only_command("git status", repository)


def test_a_program_that_stands_in_the_project_does_not_pass(repository: Path) -> None:
    program = repository / "bin" / "ls"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch made\n")
    program.chmod(0o755)
    assert not is_read_only_command("ls", repository, path=f"{program.parent}:/usr/bin:/bin")
    assert not is_read_only_command("cat x", repository, path="bin:/usr/bin:/bin")
    assert is_read_only_command("ls", repository, path=f"/usr/bin:/bin:{program.parent}")


def test_git_does_not_pass_outside_the_top_of_a_repository(project: Path) -> None:
    assert not is_read_only_command("git status", project)
