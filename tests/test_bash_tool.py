"""The shell as the model sees it: what it printed, how it ended, where it is now, what still runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corecoder.errors import ToolError
from corecoder.jobs import CancelToken
from corecoder.tool import ToolContext, ToolResult, Workspace, checked_arguments
from corecoder.tools.bash import BashTool
from corecoder.tools.read_file import ReadFileTool

HANG = 30  # seconds; only to tell a hang from a slow machine


class Bash:
    """One session's shell."""

    def __init__(self, project: Path) -> None:
        self.workspace = Workspace.at(project)
        self.secrets: frozenset[str] = frozenset()
        self.files = 0
        self.live: list[str] = []

    def spill(self, text: str) -> Path:
        self.files += 1
        path = self.workspace.root.parent / f"spilled-{self.files}.txt"
        path.write_text(text)
        return path

    def __call__(self, command: str, token: CancelToken | None = None, **arguments: Any) -> ToolResult:
        ctx = ToolContext(
            self.workspace,
            token=token or CancelToken(),
            output=self.live.append,
            spill=self.spill,
            secrets=self.secrets,
        )
        checked = checked_arguments(BashTool.parameters, {"command": command, **arguments})
        result = BashTool().run(checked, ctx)
        json.dumps(result.data)
        return result

    def lines(self, command: str, **arguments: Any) -> list[str]:
        """The result's lines, times left out."""
        return [line.rpartition(", ")[0] if line.endswith(" s]") else line for line in self.said(command, **arguments)]

    def said(self, command: str, **arguments: Any) -> list[str]:
        return self(command, **arguments).content.splitlines()


@pytest.fixture
def bash(project: Path) -> Iterator[Bash]:
    shell = Bash(project)
    yield shell
    assert shell.workspace.end_processes() == []


def test_the_result_is_the_output_and_one_line_on_how_it_ended(bash: Bash) -> None:
    assert bash.lines("echo hi; echo there >&2") == ["hi", "there", "[exit code 0"]
    assert bash.lines("exit 3") == ["(no output)", "[exit code 3"]


def test_an_exit_code_is_stated_and_never_judged(bash: Bash) -> None:
    result = bash("false")
    assert result.ok
    assert result.data["exit_code"] == 1
    assert not result.data["timed_out"]


def test_a_signal_is_named(bash: Bash) -> None:
    result = bash("kill -SEGV $$")
    assert "[killed by SIGSEGV" in result.content
    assert result.data["exit_code"] == 139


@pytest.mark.parametrize("command", ["seq 1 100000 | head -3", "yes | head -1", "true | true", "echo a | grep b"])
def test_a_pipeline_that_did_what_it_should_has_nothing_to_add(bash: Bash, command: str) -> None:
    assert "pipeline" not in bash(command).content


def test_a_failure_hidden_by_the_next_stage_is_stated(bash: Bash) -> None:
    assert bash.lines("sh -c 'echo 2 failed; exit 1' | tail -1") == ["2 failed", "[exit code 0 (in the pipeline: 1, 0)"]


def test_directory_and_variables_carry_over(bash: Bash, project: Path) -> None:
    (project / "sub").mkdir()
    assert bash.lines("cd sub; export A='1 2'; unset HOME")[-1] == f"[now in {project / 'sub'}]"
    assert bash.workspace.cwd == project / "sub"
    assert bash.lines('pwd; echo "$A"; echo ${HOME-unset}')[:3] == [str(project / "sub"), "1 2", "unset"]
    assert bash.lines("cd - > /dev/null")[-1] == f"[now in {project}]"


def test_a_symbolic_link_keeps_its_name_as_directory(bash: Bash, project: Path) -> None:
    (project / "real").mkdir()
    (project / "link").symlink_to("real")
    bash("cd link")
    assert bash.lines("pwd; pwd -P")[:2] == [str(project / "link"), str(project / "real")]


def test_a_time_out_keeps_directory_variables_and_output(bash: Bash, project: Path) -> None:
    bash("export A=1; mkdir sub; cd sub")
    result = bash("cd /; export A=2; echo partial; sleep 300", timeout=0.3)
    assert result.content.startswith("partial\n[timed out after 0.3 s: ")
    assert "a longer timeout (at most 3600) or background gives it time]" in result.content
    assert "as before" in result.content
    assert not result.ok
    assert result.data == {
        "exit_code": None,
        "timed_out": True,
        "cancelled": False,
        "cwd": str(project / "sub"),
        "log": None,
    }
    assert bash.lines("pwd; echo $A")[:2] == [str(project / "sub"), "1"]


def test_a_cancelled_command_says_so_and_keeps_its_output(bash: Bash) -> None:
    token = CancelToken()
    watcher = threading.Thread(target=lambda: (wait_for(bash.live), token.cancel()))
    watcher.start()
    result = bash("echo partial; sleep 300", token=token)
    watcher.join()
    assert result.content.startswith("partial\n[cancelled after ")
    assert re.fullmatch(r"partial\n\[cancelled after \d+\.\d s\]", result.display)
    assert not result.ok
    assert result.data["cancelled"]
    assert bash.workspace.processes.running() == []


def wait_for(sent: list[str]) -> None:
    deadline = time.monotonic() + HANG
    while not sent and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_directory_that_vanished_is_told_not_guessed(bash: Bash, project: Path) -> None:
    assert "no longer exists; now in" in bash("mkdir sub; cd sub; rmdir ../sub").content
    bash("mkdir sub; cd sub")
    (project / "sub").rmdir()
    with pytest.raises(ToolError, match="Nothing was run; the shell is now in"):
        bash("touch here")
    assert not (project / "here").exists()
    assert bash.lines("pwd")[0] == str(project)


def test_what_still_runs_is_listed_and_ends_with_the_session(bash: Bash) -> None:
    result = bash("sleep 300 & setsid sleep 301 >/dev/null 2>&1 & echo started")
    pids = [each.pid for each in bash.workspace.processes.running() if each.command().startswith("sleep")]
    assert len(pids) == 2
    for pid, seconds in zip(pids, (300, 301), strict=True):
        assert f"{pid} sleep {seconds}" in result.content
    assert bash.workspace.end_processes() == []
    assert bash.workspace.processes.running() == []


def test_a_background_job_says_how_to_watch_and_stop_it(bash: Bash) -> None:
    result = bash("echo ready; sleep 300", background=True)
    assert result.ok
    lines = result.content.splitlines()
    pid = bash.workspace.processes.jobs[0].process.pid
    assert lines[0] == "ready"
    assert lines[1].startswith(f"[job 1 runs in the background, pid {pid}; its output goes to {result.data['log']} ")
    assert "stop ends it" in lines[1]
    assert Path(result.data["log"]).read_text() == "ready\n"
    said = bash.said(f"kill -- -{pid}")
    bash.workspace.processes.jobs[0].process.wait(HANG)
    said += bash.said("true") + bash.said("true")
    assert said.count("[background job 1 has ended: killed by SIGTERM; command: echo ready; sleep 300]") == 1


def test_a_background_job_is_stopped_by_its_number_with_all_that_it_started(bash: Bash) -> None:
    bash("setsid sleep 300 & trap '' TERM; while :; do sleep 300; done", background=True)
    result = bash("", stop=1)
    assert result.content.startswith("[background job 1 has ended: killed by SIGKILL; its output: ")
    assert bash.workspace.processes.running() == []
    assert "job" not in bash.said("true")
    with pytest.raises(ToolError, match="no background job 7; those of this session: 1"):
        bash("", stop=7)


def test_the_log_of_a_background_job_is_read_like_output(bash: Bash) -> None:
    log = bash("printf 'a\\0b\\n'; echo; sleep 300", background=True).data["log"]
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline and not Path(log).read_bytes().endswith(b"\n\n"):
        time.sleep(0.02)
    with Path(log).open("ab") as file:  # as it goes on after the first look
        file.write(b"\x1b[31mred\x1b[0m\0\n")
    said = ReadFileTool().run({"file_path": log}, ToolContext(bash.workspace)).content
    assert said == "1\ta\u2400b\n2\t\n3\tred\u2400"


def test_a_background_job_that_fails_at_once_is_told_like_any_command(bash: Bash) -> None:
    assert bash.lines("echo no; exit 4", background=True) == ["no", "[exit code 4"]
    assert bash.workspace.processes.jobs == []


def test_a_background_job_survives_the_next_time_out(bash: Bash) -> None:
    bash("sleep 300", background=True)
    bash("sleep 300", timeout=0.1)
    assert bash.workspace.processes.jobs[0].process.poll() is None


def test_long_output_names_the_file_that_has_all_of_it(bash: Bash) -> None:
    result = bash("seq 1 100000")
    assert len(result.content) < 31_000
    assert result.content.startswith("1\n2\n")
    assert "\n100000\n[exit code 0" in result.content
    assert f"all of it is in {result.data['log']}]" in result.content
    assert Path(result.data["log"]).read_text() == "".join(f"{number}\n" for number in range(1, 100_001))


@pytest.mark.parametrize(("printed", "seen"), [(r"a\0b", "a\u2400b"), (r"\xf0", "\ufffd")])
def test_what_is_not_text_is_shown_readably(bash: Bash, printed: str, seen: str) -> None:
    result = bash(f"printf '{printed}'")
    assert result.content.splitlines()[0] == seen
    assert "not text in UTF-8" in result.content


def test_random_bytes_do_no_harm(bash: Bash) -> None:
    result = bash("head -c 20000 /dev/urandom")
    assert len(result.content) < 1_500
    assert "[20,000 bytes of output, not text in UTF-8" in result.content


def test_no_escape_sequence_gets_through(bash: Bash) -> None:
    result = bash(r"printf '\033]52;c;ZXZpbA==\007\033]0;t\007\033[2J\033[6n\xc2\x9b31m\033]x'; printf 'ok\n'")
    for text in (result.content, *bash.live):
        assert not {char for char in text if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160}


def test_a_password_prompt_fails_at_once_with_a_hint(bash: Bash, project: Path) -> None:
    fake = project / "sudo"
    fake.write_text("#!/bin/sh\nprintf '[sudo] password for u: ' >&2\nread -r word || exit 1\n")
    fake.chmod(0o755)
    result = bash("./sudo ls", timeout=HANG)
    assert result.data["exit_code"] == 1
    assert "there is no terminal and no input here" in result.content


def test_no_command_gets_a_key(bash: Bash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-abcdefgh")
    monkeypatch.setenv("COPY", "sk-abcdefgh")
    bash.secrets = frozenset({"SOME_API_KEY"})
    assert bash.lines("env | grep -c sk-abcdefgh")[0] == "0"
    bash("export SOME_API_KEY=again")
    assert bash.lines("echo ${SOME_API_KEY-none}")[0] == "none"


@pytest.mark.parametrize("arguments", [{"command": " "}, {"command": "true", "timeout": 0}, {"command": "a\0b"}])
def test_what_cannot_be_run_is_an_error_in_words(bash: Bash, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        bash(**arguments)


def test_the_terminal_of_the_person_is_out_of_reach(bash: Bash) -> None:
    """Started from within a terminal, a command can neither change its modes nor read its keys."""
    leader, follower = os.openpty()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            os.close(os.open(os.ttyname(follower), os.O_RDWR))  # becomes the controlling terminal
            result = bash("stty raw </dev/tty; read key </dev/tty; echo code $?")
            code = 0 if "/dev/tty: No such device or address" in result.content else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    os.close(leader)
    os.close(follower)
    assert os.waitstatus_to_exitcode(status) == 0


def test_live_output_arrives_while_the_command_runs(bash: Bash, project: Path) -> None:
    def answer() -> None:
        wait_for(bash.live)
        (project / "go").touch()

    watcher = threading.Thread(target=answer)
    watcher.start()
    result = bash("echo now; until [ -e go ]; do sleep 0.02; done; echo then", timeout=HANG)
    watcher.join()
    assert result.data["exit_code"] == 0
    assert "".join(bash.live) == "now\nthen\n"


def test_two_workspaces_never_meet(bash: Bash, tmp_path: Path) -> None:
    other = Bash(tmp_path)
    bash("export A=1; cd /; sleep 300 & true")
    assert other.lines("pwd; echo ${A-none}")[:2] == [str(tmp_path), "none"]
    other.workspace.end_processes()
    assert bash.workspace.processes.running()


def test_that_gits_own_files_are_gone_is_told_as_a_failure(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    ctx = ToolContext(Workspace.at(project))
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git gc -q && git pack-refs --all"
    assert BashTool().run({"command": commit}, ctx).ok
    result = BashTool().run({"command": "d=.g; rm -rf ${d}it/objects/*"}, ctx)
    assert not result.ok
    said = result.content.splitlines()[-1]
    assert said.startswith("[git's own files are gone or empty since this command: .git/objects;")
    assert BashTool().run({"command": "true"}, ctx).ok
