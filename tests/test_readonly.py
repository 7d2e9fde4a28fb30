"""Which commands pass as certainly read-only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from commands_corpus import DANGEROUS, HARMLESS

from corecoder.judgement import Place, judge
from corecoder.secretfiles import SecretFiles
from corecoder.shellparse import Unclear


def doubt(
    command: str, directory: Path, path: str = "/usr/bin:/bin", *, started: Mapping[str, str] | None = None, **more: str
) -> str:
    """Why `command` does not pass in a project at `directory`, "" if it does."""
    home = directory.parent / "home"
    secrets = SecretFiles(str(home / ".corecoder"))
    env = {"HOME": str(home), "PATH": path, **more}
    try:
        parts = judge(command, Place(directory, directory, env, secrets, started or env))
    except Unclear as unclear:
        return str(unclear)
    return next((part.doubt for part in parts if part.doubt), "")


def is_read_only_command(command: str, directory: Path, path: str = "/usr/bin:/bin") -> bool:
    return not doubt(command, directory, path)


@pytest.fixture
def repository(project: Path) -> Path:
    for name in ("objects", "refs"):
        (project / ".git" / name).mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (project / ".git" / "config").write_text("[core]\n\tbare = false\n")
    for name in (
        "src/main.py",
        "src/a.py",
        "src/b.py",
        "tests/test_main.py",
        "README.md",
        "server.pem",
        ".env.example",
    ):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("x\n")
    (project / ".env").write_text("KEY=secret\n")
    (project / "link.txt").symlink_to(".env")
    (project / "empty").mkdir()
    (project / "deploy").mkdir()
    (project / "deploy" / "server.key").write_text("x\n")
    (project / "a").mkdir()
    (project / "a" / "l").symlink_to(project.parent / "elsewhere")
    (project.parent / "elsewhere").mkdir()
    (project.parent / "elsewhere" / ".env").write_text("KEY=secret\n")
    (project / "linked").symlink_to(project.parent / "home" / ".ssh")
    return project


def test_nine_of_ten_harmless_commands_pass(repository: Path) -> None:
    assert len(set(HARMLESS)) == len(HARMLESS) >= 150
    stopped = {command: why for command in HARMLESS if (why := doubt(command, repository))}
    share = 1 - len(stopped) / len(HARMLESS)
    assert share >= 0.9, f"{share:.1%} of {len(HARMLESS)} pass; not these: {stopped}"


@pytest.mark.parametrize("command", DANGEROUS)
def test_a_command_that_may_do_harm_does_not_pass(command: str, repository: Path) -> None:
    assert not is_read_only_command(command, repository)


def test_the_corpus_of_dangerous_commands_is_large() -> None:
    assert len(set(DANGEROUS)) == len(DANGEROUS) >= 150
    assert set(DANGEROUS).isdisjoint(HARMLESS)


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
        ("echo hi > f", "`> f` may write"),
        ("sort -o f f", "`sort` with `-o` may write, run or read something else"),
        ("git push", "`git push` is not known to be harmless"),
        ("git branch x", "only in forms like `git branch -a`"),
        ("ls |", "incomplete"),
        ("cat $(ls)", "what `cat` is given"),
        ("cat <<EOF\n$(ls)\nEOF", "here-document"),
        ("npm run dev &", "in the background"),
        ("x=1 make", "sets a variable"),
        ("cat .env", "`cat` would read .env"),
    ],
)
def test_what_does_not_pass_is_named(command: str, why: str, repository: Path) -> None:
    assert why in doubt(command, repository)


def test_a_program_that_stands_in_the_project_does_not_pass(repository: Path) -> None:
    program = repository / "bin" / "ls"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch made\n")
    program.chmod(0o755)
    assert not is_read_only_command("ls", repository, path=f"{program.parent}:/usr/bin:/bin")
    assert not is_read_only_command("cat x", repository, path="bin:/usr/bin:/bin")
    assert is_read_only_command("ls", repository, path=f"/usr/bin:/bin:{program.parent}")


def test_git_passes_below_the_top_of_a_plain_repository(repository: Path) -> None:
    assert is_read_only_command("cd src && git log", repository)
    assert is_read_only_command("git status", repository / "src")


def test_git_does_not_pass_where_it_would_find_another_repository(project: Path, repository: Path) -> None:
    (repository / "src" / "HEAD").write_text("ref: refs/heads/main\n")  # a bare repository, or what looks like one
    assert not is_read_only_command("cd src && git log", repository)
    (repository / ".git" / "config").unlink()
    assert not is_read_only_command("git status", repository)


@pytest.mark.parametrize("name", ["commondir", "config.worktree"])
def test_git_does_not_pass_where_its_settings_lie_elsewhere(name: str, repository: Path) -> None:
    (repository / ".git" / name).write_text("../other")
    assert not is_read_only_command("git status --short", repository)
    (repository / ".git" / name).unlink()
    assert is_read_only_command("git status --short", repository)


def test_git_does_not_pass_where_the_repository_is_a_link_or_a_file(repository: Path) -> None:
    (repository / ".git").rename(repository / "other")
    (repository / ".git").symlink_to("other")
    assert not is_read_only_command("git status", repository)
    (repository / ".git").unlink()
    (repository / ".git").write_text("gitdir: other\n")
    assert not is_read_only_command("git status", repository)
    (repository / ".git").unlink()
    (repository / ".git").symlink_to("nowhere")
    assert not is_read_only_command("cd src && git status", repository)


def test_git_does_not_pass_where_it_goes_on_upwards_from_what_is_no_repository(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "config", "core.fsmonitor", "touch made; false"], check=True)
    inner = project / "app" / ".git"
    inner.mkdir(parents=True)
    (inner / "config").write_text("[core]\n\tbare = false\n")
    subprocess.run(["git", "status"], cwd=project / "app", check=True, capture_output=True)
    assert any(project.rglob("made"))
    assert not is_read_only_command("git status", project / "app")


@pytest.mark.parametrize("name", ["HEAD", "objects", "refs"])
def test_git_does_not_pass_where_a_piece_of_the_repository_is_missing(name: str, repository: Path) -> None:
    assert is_read_only_command("git status", repository)
    (repository / ".git" / name).rename(repository / "away")
    assert not is_read_only_command("git status", repository)


def test_git_does_not_pass_behind_a_link_into_another_repository(repository: Path) -> None:
    outside = repository.parent / "outside"
    (outside / "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(outside)], check=True)
    (repository / "there").symlink_to(outside / "sub")
    assert is_read_only_command("cd there && git status", repository)
    subprocess.run(["git", "-C", str(outside), "config", "core.fsmonitor", "x"], check=True)
    assert not is_read_only_command("cd there && git status", repository)


@pytest.mark.parametrize("name", ["index", "config", "HEAD"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_git_does_not_pass_where_a_file_of_the_repository_is_a_pipe(name: str, repository: Path) -> None:
    (repository / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(repository / ".git" / name)
    assert not is_read_only_command("git status", repository)


def test_git_does_not_pass_where_the_users_settings_show_what_lies_in_submodules(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = repository.parent / "own"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".gitconfig").write_text("[diff]\n\tsubmodule = log\n")
    assert is_read_only_command("git log -p", repository)
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
    (home / "more").write_text("[diff] submodule=diff\n")
    assert not is_read_only_command("git log -p", repository)


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_COMMON_DIR"])
def test_git_does_not_pass_where_the_environment_names_another_repository(name: str, repository: Path) -> None:
    env = {"HOME": str(repository.parent / "home"), "PATH": "/usr/bin:/bin", name: "other"}
    assert doubt("git status", repository, started=env, **{name: "other"})


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("GIT_CONFIG_COUNT", "git status"),
        ("GIT_EXTERNAL_DIFF", "git diff"),
        ("XDG_CONFIG_HOME", "git log"),
        ("LD_PRELOAD", "ls"),
        ("BASH_ENV", "ls"),
        ("RIPGREP_CONFIG_PATH", "rg x src"),
    ],
)
def test_nothing_passes_that_an_earlier_command_may_have_steered(name: str, command: str, repository: Path) -> None:
    started = {"HOME": str(repository.parent / "home"), "PATH": "/usr/bin:/bin"}
    assert name in doubt(command, repository, started=started, **{name: "x"})
    assert not doubt(command, repository, started={**started, name: "x"}, **{name: "x"})
    assert not doubt(command, repository, started=started, DEBUG="1")


def test_a_program_that_an_earlier_command_put_into_the_path_does_not_pass(repository: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "ls"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch made\n")
    program.chmod(0o755)
    started = {"HOME": str(repository.parent / "home"), "PATH": "/usr/bin:/bin"}
    path = f"{program.parent}:/usr/bin:/bin"
    assert "another program" in doubt("ls", repository, path, started=started)
    assert not doubt("cat README.md", repository, path, started=started)


def test_nothing_passes_where_a_program_is_looked_for_in_the_current_directory(repository: Path) -> None:
    assert not is_read_only_command("ls", repository, path=".:/usr/bin")


@pytest.mark.parametrize("name", ["tree_sitter", "tree_sitter_bash"])
def test_nothing_is_certain_without_tree_sitter(name: str, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # importing it raises ImportError
    assert "tree-sitter does not load" in doubt("ls", repository)


def test_a_recursive_search_passes_where_no_secret_lies(repository: Path) -> None:
    assert not is_read_only_command("grep -rn x .", repository)
    assert is_read_only_command("grep -rn x src", repository)
    assert is_read_only_command("grep -rn x --include='*.py' .", repository)
    for name in (".env", "link.txt", "linked", "deploy/server.key"):
        (repository / name).unlink()
    assert is_read_only_command("grep -rn x .", repository)
    assert is_read_only_command("rg --hidden x", repository)


def test_a_search_of_too_many_files_is_not_certain(repository: Path) -> None:
    (repository / "many").mkdir()
    for number in range(10_001):
        (repository / "many" / str(number)).touch()
    assert "too many files" in doubt("grep -r x many", repository)
    assert "too many files" in doubt("rg x many", repository)
    (repository / ".gitignore").write_text("*.log\n/many/\n")
    for name in ("deploy/server.key", "a/l", "linked"):
        (repository / name).unlink()
    assert is_read_only_command("rg x", repository)


def test_judging_a_command_loads_tree_sitter_and_starting_does_not() -> None:
    program = "import sys, corecoder.permissions; print([name for name in sys.modules if 'tree_sitter' in name])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
