"""The sandbox keeps what it says: attempts to get out, the policy of a project, what the backends are given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from escapes import METADATA, Field, run_all

from corecoder.errors import ConfigError
from corecoder.sandbox import Policy, Sandbox, bubblewrap_arguments, choose, policy_for, seatbelt_arguments
from corecoder.tool import ToolContext, Workspace
from corecoder.tools.bash import BashTool


def until(ready: Callable[[], bool]) -> None:
    patience = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < patience
        time.sleep(0.01)


LINUX = [name for name in ("bubblewrap", "landlock") if sys.platform == "linux"]


def sandbox_for(policy: Policy, name: str) -> Sandbox:
    try:
        chosen, _ = choose(policy, name)
    except ConfigError as error:
        pytest.skip(str(error))
    assert chosen
    return chosen


def run(sandbox: Sandbox, command: str, cwd: Path) -> tuple[int, str]:
    done = sandbox.start(
        ["bash", "-c", command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = done.communicate(timeout=30)[0].decode()
    return done.returncode, output


@pytest.mark.parametrize("name", LINUX)
def test_no_attempt_gets_through_that_the_backend_claims_to_stop(name: str, tmp_path: Path) -> None:
    sandbox_for(Policy((tmp_path,)), name)
    left_open = {f"metadata: {each}" for each in METADATA} if name == "landlock" else set()
    assert {title for title, achieved in run_all(tmp_path / "field", name).items() if achieved} <= left_open


@pytest.mark.parametrize("name", LINUX)
def test_work_in_the_project_goes_on_as_ever(name: str, tmp_path: Path) -> None:
    field = Field(tmp_path / "field")
    field.prepare()
    try:
        sandbox = field.sandbox(name)
        git = "git -c user.name=a -c user.email=a@b"
        for command in (
            "echo b > b && mkdir -p d/e && mv b d/e/c && ln -s d/e/c l && cat l && chmod +x a && rm -r d",
            f"git add a && {git} commit -qm one && git mv a z && {git} commit -qm two && git log --oneline",
            f'{sys.executable} -c \'import tempfile, subprocess; print(subprocess.check_output(["echo", "hi"]))\'',
            "cat /dev/null > /dev/null; head -c 3 /dev/urandom > r; echo done > /dev/stdout",
            "cat <(echo b) | sort",
            "git worktree add -q -f w && git -C w status",
            "git worktree remove w && git worktree prune",
        ):
            with sandbox.git.guard() as guarded:
                assert run(sandbox, command, field.project)[0] == 0, command
            assert guarded.put_back == []
    except ConfigError as error:
        pytest.skip(str(error))
    finally:
        field.clear()


@pytest.mark.parametrize("name", LINUX)
def test_a_denial_is_told_from_a_failure(name: str, tmp_path: Path) -> None:
    project = tmp_path / "confined"
    project.mkdir()
    sandbox = sandbox_for(Policy((project,), offline=True), name)
    (tmp_path / "kept").write_text("")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    for command in (
        f"echo x > {tmp_path}/f",
        f"touch {tmp_path}/f 2>&1 | tail -3",
        f"touch {tmp_path}/f || echo failed",
        "mkdir ../d; true",
        f'{sys.executable} -c \'open("../kept", "a")\'; true',
        *(
            ("curl -sS http://example.invalid || true", "curl -sS http://127.0.0.1:9 | cat")
            if shutil.which("curl")
            else ()
        ),
    ):
        code, output = run(sandbox, command, project)
        assert "unconfined" in sandbox.denial(code, output, project), (command, output)
    (project / "script").write_text("")
    for command in ("./script", "cat missing", "echo AssertionError; false", f"cat {tmp_path}/kept/x"):
        code, output = run(sandbox, command, project)
        assert code
        assert sandbox.denial(code, output, project) == "", (command, output)
    for line in ("Permission denied", f"a.py:7: '{tmp_path}/f': Permission denied", "a:1: could not resolve"):
        assert sandbox.denial(0, line, project) == ""
    assert sandbox.denial(1, "kill: (1) - Operation not permitted", project)
    assert sandbox.denial(1, "umount: device or resource busy", project) == ""


def test_a_denial_that_is_not_the_sandboxs_is_no_reason_to_leave_it(tmp_path: Path) -> None:
    policy = Policy((tmp_path,), (tmp_path / ".git/config",), (Path("/etc/hidden"),))
    sandbox = Sandbox("none", subprocess.Popen, "", policy)
    assert sandbox.denial(1, "grep: /etc/hidden/x: Permission denied", tmp_path) == ""  # there is nothing to read
    assert sandbox.denial(1, "touch: cannot touch '/proc/1/nothing/x': Permission denied", tmp_path) == ""
    assert sandbox.denial(6, "curl: (6) Could not resolve host: example.invalid", tmp_path) == ""  # not offline
    assert sandbox.denial(4, "error: could not write config file .git/config: Device or resource busy", tmp_path)


def test_with_bubblewrap_a_setting_of_git_that_cannot_be_written_is_a_denial(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    sandbox = sandbox_for(policy_for(project, project.parent / "home"), "bubblewrap")
    for command in ("git config core.pager x", "git config core.pager x || true", "echo x > .git/hooks/update"):
        assert "makes git run programs" in sandbox.denial(*run(sandbox, command, project), project), command


@pytest.mark.parametrize("name", LINUX)
def test_what_makes_git_run_programs_is_put_back_as_it_was(name: str, tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "config").write_text("[core]\n")
    (git / "hooks" / "old").write_text("#!/bin/sh\n")
    (git / "hooks" / "old").chmod(0o755)
    (git / "hooks" / "link").symlink_to("old")
    policy = Policy((tmp_path,), (git / "hooks", git / "config"))
    sandbox = sandbox_for(policy, name)
    unwatched = Sandbox(name, subprocess.Popen, "", policy)  # as if the backend could not keep anything from it
    for command in (
        "rm -r .git/hooks; mkdir h; ln -s ../h .git/hooks",
        "rm .git/config; mkdir -p .git/config/x; echo > .git/config/x/y",
        "echo >> .git/hooks/old; chmod -x .git/hooks/old; rm .git/hooks/link; echo > .git/hooks/new",
    ):
        for each in (sandbox, unwatched):
            with each.git.guard():
                run(each, command, tmp_path)
            assert (git / "config").read_text() == "[core]\n"
            assert sorted(os.listdir(git / "hooks")) == ["link", "old"]
            assert (git / "hooks" / "old").read_text() == "#!/bin/sh\n"
            assert os.access(git / "hooks" / "old", os.X_OK)
            assert os.readlink(git / "hooks" / "link") == "old"
    with unwatched.git.guard() as guarded:
        run(unwatched, "mv .git g && echo x > g/hooks/old", tmp_path)
    assert guarded.put_back == []
    with unwatched.git.guard() as guarded:
        run(unwatched, "mv g .git", tmp_path)
    assert guarded.put_back == [str(git / "hooks" / "old")]


LAYOUTS = {  # where the hooks of a repository may be, and how a command would add one
    "ln -s ../githooks .git/hooks; mkdir githooks": ("echo x > githooks/pre-commit", "rm .git/hooks; mkdir .git/hooks"),
    'ln -s "$PWD/githooks" .git/hooks; mkdir githooks': ("echo x > githooks/pre-commit",),
    "ln -s ../githooks .git/hooks": ("mkdir githooks; echo x > githooks/pre-commit",),
    "git config core.hooksPath .husky/_": ("mkdir -p .husky/_; echo x > .husky/_/pre-commit",),
    "git config core.hooksPath tools/git/hooks": (
        "mkdir -p tools/git/hooks; echo x > tools/git/hooks/pre-commit",
        "mkdir -p evil/git/hooks; echo x > evil/git/hooks/pre-commit; ln -s evil tools",
    ),
    "git config core.hooksPath tools/git/hooks; mkdir -p tools/git/hooks": (
        "mkdir -p evil/git/hooks; echo x > evil/git/hooks/pre-commit; mv tools t; ln -s evil tools",
        "mv tools t; cp -r t tools; echo x > tools/git/hooks/pre-commit",
    ),
}


@pytest.mark.parametrize("name", LINUX)
def test_hooks_are_kept_as_they_are_wherever_they_lie(name: str, tmp_path: Path) -> None:
    for number, (layout, attempts) in enumerate(LAYOUTS.items()):
        for attempt in attempts:
            top = tmp_path / f"{number}{attempts.index(attempt)}"
            subprocess.run(["git", "init", "-q", str(top)], check=True)
            shutil.rmtree(top / ".git/hooks")
            subprocess.run(layout, shell=True, check=True, cwd=top)
            sandbox = sandbox_for(policy_for(top, tmp_path / "home"), name)
            asked = subprocess.check_output(["git", "rev-parse", "--git-path", "hooks"], cwd=top, text=True)
            hooks = top / asked.strip()
            with sandbox.git.guard() as guarded:
                assert run(sandbox, "true", top) == (0, ""), layout
            assert guarded.put_back == []
            with sandbox.git.guard():
                run(sandbox, attempt, top)
            assert not (hooks / "pre-commit").exists(), (layout, attempt)


@pytest.mark.parametrize("name", LINUX)
def test_what_comes_to_lie_where_hooks_would_be_stays_if_it_holds_none(name: str, project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "config", "core.hooksPath", "tools/git/hooks"], check=True)
    sandbox = sandbox_for(policy_for(project, project.parent / "home"), name)
    for command in (
        "echo x > tools",
        "rm tools; mkdir other; ln -s other tools",
        "rm tools; mkdir -p tools/git; echo x > tools/git/x",
        "mv tools moved; ln -s moved tools",
    ):
        with sandbox.git.guard() as guarded:
            assert run(sandbox, command, project) == (0, "")
        assert guarded.put_back == []
        assert (project / "tools").exists()


def test_what_a_background_job_changes_later_is_put_back_once_a_command_runs_or_the_session_ends(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    config = project / ".git" / "config"
    # As if the backend could keep nothing from it.
    sandbox = Sandbox("none", subprocess.Popen, "", policy_for(project, project.parent / "home"))
    ctx = ToolContext(Workspace.at(project), sandbox=sandbox)
    for number, look in enumerate((lambda: BashTool().run({"command": "true"}, ctx).content, sandbox.git.check)):
        evil = "echo x > .git/hooks/update; git config core.pager evil"
        later = f"read _ < go{number}; {evil}; echo > done{number}; sleep 99"
        os.mkfifo(project / f"go{number}")
        BashTool().run({"command": later, "background": True}, ctx)
        (project / f"go{number}").write_text("now\n")
        until(lambda number=number: (project / f"done{number}").exists())
        assert "update" in str(look())
        assert not (project / ".git/hooks/update").exists()
        assert "evil" not in config.read_text()
    # A person's own work of the meantime stays, where it cannot run anything.
    subprocess.run(["git", "-C", str(project), "config", "user.name", "me"], check=True)
    assert "put back" not in BashTool().run({"command": "true"}, ctx).content
    assert "me" in config.read_text()
    assert ctx.workspace.end_processes() == []


def test_what_git_itself_writes_into_a_new_repository_stays(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "old/.git/hooks").mkdir(parents=True)
    sandbox = Sandbox("none", subprocess.Popen, "", policy_for(project, project.parent / "home"))
    git = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always"
    with sandbox.git.guard() as guarded:
        command = (
            f"git init -q a && {git} -C a commit -q --allow-empty -m x && git clone -q a b && "
            f"{git} -C b worktree add -q ../c && {git} -C b submodule --quiet add $PWD/a s/t && "
            f"{git} -C b commit -qm s && git clone -q b e && {git} -C e submodule --quiet update --init && mv b d"
        )
        assert run(sandbox, command, project)[0] == 0
    assert guarded.put_back == []


PAINTER = """
import os, subprocess, sys
from pathlib import Path
from corecoder.sandbox import Policy, choose
sandbox, _ = choose(Policy((Path.cwd(),)), sys.argv[1])
command = f"echo painted > {os.ttyname(0)}; echo painted > /dev/tty; head -c 1 {os.ttyname(0)}; echo done > done"
sandbox.start(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
              start_new_session=True).wait(30)
"""


@pytest.mark.parametrize("name", LINUX)
def test_a_confined_command_does_not_reach_the_terminal_at_which_a_person_sits(name: str, project: Path) -> None:
    sandbox_for(Policy((project,)), name)
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"typed\n")
        subprocess.run([sys.executable, "-c", PAINTER, name], stdin=theirs, check=True, timeout=60)
        assert (project / "done").exists()
        os.set_blocking(ours, False)
        assert os.read(ours, 1000).strip() == b"typed"  # the echo, and nothing else
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_policy_names_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, home, project = tmp_path / "user", tmp_path / "user/.corecoder", tmp_path / "user/code/project"
    for path in (home, project, user / ".aws", user / ".npm", user / "keys"):
        path.mkdir(parents=True)
    (user / ".ssh").symlink_to(user / "keys")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    monkeypatch.setenv("HOME", str(user))
    policy = policy_for(project, home)
    assert {project, project / ".git", user / ".npm"} < set(policy.writable)
    assert {home, user / "keys", user / ".aws", user / ".netrc"} < set(policy.hidden)  # what comes to exist as well
    assert {user / ".bash_history", user / ".config/chromium", Path("/run/secrets")} < set(policy.hidden)
    assert project / ".git/hooks" in policy.guarded
    for wide in (user, tmp_path, Path("/")):
        with pytest.raises(ConfigError, match="holds the home directory"):
            policy_for(wide, home)


def test_no_cache_is_writable_from_which_programs_are_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = project.parent / "user"
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", f"{user}/.cache/uv/x/bin:{user}/link:{user}/.local/share/pnpm:{user}/.yarn/bin:/bin")
    for name in (".cache/uv", ".cache/pip", ".npm/bin", ".local/share/pnpm/store", ".yarn/bin", ".yarn/berry"):
        (user / name).mkdir(parents=True)
    (user / "link").symlink_to(".npm/bin")
    (user / ".cache/pre-commit").mkdir()
    writable = policy_for(project, user / ".corecoder").writable
    written = {str(each.relative_to(user)) for each in writable if each.is_relative_to(user)}
    assert written == {".cache/pip", ".local/share/pnpm/store", ".yarn/berry"}


def test_a_worktree_may_write_the_directory_it_shares(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    git = ["git", "-C", str(main), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True, stderr=subprocess.DEVNULL)
    policy = policy_for(tree, tmp_path / "home")
    assert main / ".git" in policy.writable
    assert main / ".git/hooks" in policy.guarded


def test_what_bubblewrap_is_given(tmp_path: Path) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / "key").write_text("")
    policy = Policy((tmp_path,), (tmp_path / ".git/hooks", tmp_path / ".git/config"), (tmp_path / "key",), offline=True)
    told = " ".join(bubblewrap_arguments(policy)).replace(str(tmp_path), "P")
    assert told.startswith(
        "--unshare-pid --unshare-ipc --ro-bind / / --dev /dev --proc /proc --bind P P --bind P/.git P/.git "
        "--ro-bind P/.git/hooks P/.git/hooks --ro-bind /dev/null P/key --unshare-net"
    )


def test_what_seatbelt_is_given() -> None:
    """Untried: nobody with a Mac has run it yet."""
    project, git, keys = Path('/p"(allow default)'), Path("/p/.git/config"), Path("/u/.ssh")
    told = seatbelt_arguments(Policy((project,), (git,), (keys,), offline=True))
    assert told[0] == "-p"
    assert told[1].splitlines() == [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        '(allow file-write* (subpath (param "W0")))',
        '(allow file-write* (subpath (param "W1")))',
        '(deny file-write* (subpath (param "G0")))',
        '(deny file-read* file-write* (subpath (param "H0")))',
        "(deny network*)",
    ]
    assert told[2:] == ["-D", f"W0={project}", "-D", "W1=/dev", "-D", f"G0={git}", "-D", f"H0={keys}"]


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock")
def test_landlock_is_not_taken_where_it_could_not_hide_a_key(tmp_path: Path) -> None:
    sandbox_for(Policy((tmp_path,)), "landlock")
    with pytest.raises(ConfigError, match="cannot hide"):
        choose(Policy((tmp_path,), hidden=(tmp_path / "home",)), "landlock")


def test_a_backend_that_does_not_work_here_is_named_with_the_reason(tmp_path: Path) -> None:
    wanted = "seatbelt" if sys.platform != "darwin" else "landlock"
    with pytest.raises(ConfigError, match=f"{wanted}: .* --sandbox off"):
        choose(Policy((tmp_path,)), wanted)
    assert choose(Policy((tmp_path,)), "off") == (None, "")
