"""Which commands pass as certainly read-only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corecoder.readonly import why_not_read_only


def is_read_only_command(command: str, directory: Path, path: str = "") -> bool:
    return not why_not_read_only(command, directory, path=path)


HARMLESS = """
git branch
git branch -a
git branch -vv
git branch --list v* -a
git branch --show-current
git remote
git remote -v
git tag
git tag -l
git tag -n3 -l 'v1*' v2
git --version
sed -n '1,5p' f
sed -n 20,40p src/a.py | head -3
sed -n '/^def /p;$=' *.py_no
sed 1d f
sort f | uniq -c | sort -rn
uniq f
python3 --version
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
HARMLESS.remove("sed -n '/^def /p;$=' *.py_no")
HARMLESS.remove('find src -name "*.py" | sort | uniq_free')

DANGEROUS = r"""
git branch new
git branch -a new
git branch --list x -D y
git branch -D main
git branch -m new
git branch --list *
git branch --list -* x
git branch --edit-description
git remote add o url
git remote -v update
git remote show origin
git tag v1
git tag -l -d v1
git tag -n3 v1
git tag -l *
git --version status -O./x
sed -n 1p -i f
sed -ni 1p f
sed -i.bak 1p f
sed --in-place 1p f
sed -n 'w out' f
sed -n '1p;w out' f
sed -n 1,5w f
sed '1e touch made' f
sed 1e f
sed '1r /etc/passwd' f
sed s/a/b/e f
sed -n '/[/]p;w x;/p' f
sed -n '/\//w x;/p' f
sed -n '/x/w made' f
sed -f script f
sed -n p *
sed -n -e 1p -e 'w x' f
sed -n '1p
w out' f
uniq in out
uniq -c in out
uniq *
uniq in*
uniq -- in out
uniq -f 1 out
python3 -c --version
python3 --version x.py
python3 x.py --version
python3 -Vc x
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
    assert is_read_only_command(command, repository, path="/usr/bin:/bin")


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


def test_an_interpreter_that_is_chosen_by_files_of_the_project_does_not_pass(repository: Path, tmp_path: Path) -> None:
    shim = tmp_path / "shims" / "python3"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\ntouch made\n")
    shim.chmod(0o755)
    assert not is_read_only_command("python3 --version", repository, path=f"{shim.parent}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ls && make test", "`make` is not known to be harmless"),
        ("echo hi > f", "`> f` is more than plain words"),
        ("sort -o f f", "`sort` with `-o` may write or run something"),
        ("git push", "`git push` is not known to be harmless"),
        ("git branch x", "only in forms like `git branch -a`"),
        ("ls |", "incomplete"),
        ("cd x && git log", "another repository"),
    ],
)
def test_what_does_not_pass_is_named(command: str, why: str, repository: Path) -> None:
    assert why in why_not_read_only(command, repository)


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
