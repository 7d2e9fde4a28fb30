"""Running one command: it ends in time, with everything it started, and its state carries over."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corecoder import shell
from corecoder.capture import Capture, LiveOutput
from corecoder.child import Child
from corecoder.errors import Cancelled, ToolError
from corecoder.jobs import CancelToken
from corecoder.processes import MARK, Processes, family

HANG = 30  # seconds; only to tell a hang from a slow machine


class Runner:
    """Commands of one session, with what they print."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes = Processes()
        self.files = 0
        self.text = ""
        self.capture = Capture(self.spill)

    def spill(self, text: str) -> Path:
        self.files += 1
        path = self.directory / f"spill-{self.files}"
        path.write_text(text)
        return path

    def __call__(self, command: str, **options: Any) -> shell.Outcome:
        self.capture = Capture(self.spill, options.pop("output", _drop))
        options = {"cwd": self.directory, "env": shell.environment(os.environ, {}), "timeout": HANG, **options}
        outcome = shell.run(command, self.capture, self.processes, **options)
        self.text = self.capture.text()
        return outcome


@pytest.fixture
def run(project: Path) -> Iterator[Runner]:
    runner = Runner(project)
    yield runner
    assert runner.processes.end() == []
    assert runner.processes.running() == []


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def ended(outcome: shell.Outcome) -> int:
    assert outcome.process
    return outcome.process.wait(HANG)


def _drop(_: str) -> None:
    pass


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_both_outputs_come_in_the_order_they_were_written(run: Runner) -> None:
    assert run("for i in 1 2 3; do echo out $i; echo err $i >&2; done").code == 0
    assert run.text == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3))


def test_much_on_stderr_blocks_nothing(run: Runner) -> None:
    assert run("python3 -c \"import sys; sys.stderr.write('x' * 300000)\"; echo ok").code == 0
    assert run.text.endswith("ok\n")


def test_redirecting_to_dev_stdout_loses_nothing(run: Runner) -> None:
    run("echo a; echo b > /dev/stdout; echo c > /dev/stderr")
    assert run.text == "a\nb\nc\n"


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_the_exit_code_is_the_commands(run: Runner, code: int) -> None:
    assert run(f"exit {code}").code == code


def test_a_shell_that_kills_itself_is_a_signal(run: Runner) -> None:
    assert run("kill -9 $$").code == -signal.SIGKILL


def test_line_numbers_in_messages_are_the_commands_own(run: Runner) -> None:
    run("true\nno-such-command\n")
    assert "line 2: no-such-command: command not found" in run.text
    run("echo before\nif then\n")
    assert run.text.startswith("before\n")
    assert "line 2: syntax error" in run.text


def test_there_is_no_input_and_no_terminal(run: Runner) -> None:
    outcome = run("read x; echo got:$x; cat; python3 -c 'input()' 2>&1 | tail -1; tty; echo x > /dev/tty")
    assert outcome.code == 1
    assert outcome.seconds < HANG / 2
    assert "got:\nEOFError" in run.text
    assert "not a tty" in run.text


def test_pagers_prompts_and_editors_do_not_wait(run: Runner) -> None:
    run("git init -q . && git config user.email a@b.c && git config user.name n")
    env = shell.environment({**os.environ, "GIT_PAGER": "less", "TERM": "xterm", "EDITOR": "sleep 60"}, {})
    outcome = run(
        "git commit --allow-empty -q -m one && git commit --amend --allow-empty -q && git log --oneline", env=env
    )
    assert outcome.code == 0
    assert run.text.endswith(" one\n")


def test_the_shell_does_not_match_its_own_command(run: Runner) -> None:
    assert run("pkill -f very-special-word; echo survived").code == 0
    assert run.text == "survived\n"


def test_no_descriptor_of_ours_reaches_a_command_but_the_report(run: Runner) -> None:
    run("true; python3 -c \"import os; print(len(os.listdir('/dev/fd')))\"")
    assert run.text == "6\n"  # the usual three, the report and its witness, and the listing itself


def test_a_command_of_any_length_runs(run: Runner) -> None:
    run(f"echo {'x' * 3_000_000} | wc -c")
    assert run.text.strip() == "3000001"


@pytest.mark.parametrize("command", ["echo a\0b", "echo \ud800"])
def test_a_command_that_no_shell_can_run_is_refused_in_words(run: Runner, command: str) -> None:
    with pytest.raises(ToolError, match="Nothing was run"):
        run(command)


def test_a_directory_that_is_gone_is_an_error_in_words(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="No such file or directory"):
        run("true", cwd=tmp_path / "gone")


def test_directory_and_exports_are_reported(run: Runner) -> None:
    value = "a\nb\t'\"$`\\ é \x01"
    env = {**shell.environment({**os.environ, "PS1": "$ "}, {}), "GONE": "1", "SAME": value}
    outcome = run("mkdir 'a b'; cd 'a b'; unset GONE; export EMPTY= NEW=\"$SAME\"; LOCAL=1; export DANGLING", env=env)
    assert outcome.state
    assert outcome.state.cwd == run.directory / "a b"
    exports = dict(outcome.state.exports)
    exports.pop("OLDPWD")
    assert exports == {"GONE": None, "EMPTY": "", "NEW": value}


def test_an_exported_value_that_looks_like_an_export_is_only_a_value(run: Runner) -> None:
    value = 'x"\ndeclare -x FAKE="1'
    outcome = run('export REAL="$GIVEN"', env={**shell.environment(os.environ, {}), "GIVEN": value})
    assert outcome.state
    assert outcome.state.exports == {"REAL": value}


def test_a_variable_too_long_for_any_program_is_not_carried(run: Runner) -> None:
    outcome = run("export BIG=$(printf '%200000s' x)")
    assert outcome.state
    assert outcome.state.dropped == ("BIG",)
    assert "BIG" not in outcome.state.exports


def test_variables_that_are_too_long_together_do_not_keep_the_next_command_from_starting(run: Runner) -> None:
    env = shell.environment(os.environ, {})
    outcome = run("for i in {1..80}; do export BIG$i=$(printf '%090000d' 1); done; export SMALL=1", env=env)
    assert outcome.state
    assert outcome.state.exports["SMALL"] == "1"
    assert None not in outcome.state.exports.values()
    assert "BIG80" in outcome.state.dropped
    assert run("echo $SMALL", env=shell.environment(env, outcome.state.exports)).code == 0
    assert run.text == "1\n"


@pytest.mark.parametrize("command", ["exec true", "trap 'echo bye' EXIT", "kill -9 $$"])
def test_a_shell_that_cannot_report_changes_nothing(run: Runner, command: str) -> None:
    assert run("cd /; " + command).state is None


def test_tracing_shows_nothing_of_ours(run: Runner) -> None:
    assert run("set -x; echo a").state
    assert run.text == "+ echo a\na\n"


def test_the_codes_within_a_pipeline_are_known(run: Runner) -> None:
    outcome = run("sh -c 'exit 3' | true | cat")
    assert outcome.code == 0
    assert outcome.state
    assert outcome.state.stages == (3, 0, 0)


@pytest.mark.parametrize("separator", [",", ":", "", "0", "1234567890"])
def test_the_report_does_not_depend_on_the_field_separator(run: Runner, separator: str) -> None:
    outcome = run(f"IFS={separator}; cd /tmp; export TOLD=1; false | true")
    assert outcome.state is not None
    assert (outcome.state.cwd, outcome.state.stages) == (Path("/tmp"), (1, 0))
    assert outcome.state.exports["TOLD"] == "1"


@pytest.mark.parametrize("number", [9, 99, 100, 200, 201, 202])
def test_a_lock_file_at_a_descriptor_of_its_own_stays_empty(run: Runner, number: int) -> None:
    outcome = run(f"exec {number}>lock; cd /tmp")
    assert outcome.state is not None
    assert outcome.state.cwd == Path("/tmp")
    assert (run.directory / "lock").read_bytes() == b""


def test_a_file_opened_in_the_place_of_the_report_stays_as_it_is(run: Runner) -> None:
    outcome = run('for number in $(seq 200 254); do eval "exec $number>lock-$number"; cd /tmp; done')
    assert (outcome.state, outcome.code) == (None, 0)
    assert {path.read_bytes() for path in run.directory.glob("lock-*")} == {b""}


def test_a_report_that_something_else_wrote_is_none(run: Runner) -> None:
    command = "for each in /dev/fd/2??; do printf '%s\\0' wrong /tmp more more >$each; done 2>/dev/null; kill -9 $$"
    assert run(command).state is None


def test_a_dying_subshell_does_not_report_for_the_shell(run: Runner) -> None:
    outcome = run("(cd /; kill -TERM $BASHPID; sleep 5); true")
    assert outcome.state
    assert outcome.state.cwd == run.directory


def test_nothing_that_holds_a_key_reaches_a_command() -> None:
    base = {"MY_KEY": "sk-0123456789", "ALIAS": "Bearer sk-0123456789", "PATH": "/bin", "SHORT": "x", "OTHER": "x"}
    env = shell.environment(base, {"MY_KEY": "again", "PAGER": "less", "PATH": None}, frozenset(("MY_KEY", "SHORT")))
    assert set(env) & {"MY_KEY", "ALIAS", "SHORT", "PATH"} == set()
    assert env["OTHER"] == "x"
    assert env["PAGER"] == "less"
    assert env["GIT_TERMINAL_PROMPT"] == "0"


@pytest.mark.parametrize("command", ["sleep 300 & echo started", "setsid sleep 300 & echo started"])
def test_a_background_child_does_not_keep_the_call(run: Runner, command: str) -> None:
    outcome = run(command)
    assert outcome.seconds < HANG / 3
    assert run.text == "started\n"
    assert [each.command() for each in outcome.left] == ["sleep 300"]


def test_a_detached_grandchild_is_found_without_pipe_session_or_parent(run: Runner) -> None:
    start = (
        "import subprocess as s; s.Popen(['sleep', '300'], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL)"
    )
    outcome = run(f'python3 -c "{start}"; echo ok')
    assert run.text == "ok\n"
    assert [each.command() for each in outcome.left] == ["sleep 300"]


def test_what_outlives_the_shell_can_go_on_writing(run: Runner) -> None:
    outcome = run("(while [ ! -e go ]; do sleep 0.02; done; echo later; echo done > done) & echo first")
    assert outcome.left
    (run.directory / "go").touch()
    assert soon((run.directory / "done").exists)
    log = run.capture.path
    assert log
    assert soon(lambda: log.read_text() == "first\nlater\n")


def test_a_child_that_ends_with_the_shell_is_not_reported(run: Runner) -> None:
    outcome = run("echo word > >(cat)")
    assert outcome.left == ()
    assert run.text == "word\n"


def test_time_out_keeps_what_was_printed_and_ends_the_tree(run: Runner) -> None:
    outcome = run("echo one; sleep 300 & sleep 300 | sleep 300", timeout=0.3)
    assert (outcome.ending, outcome.code, outcome.left, outcome.state) == ("timed out", None, (), None)
    assert run.text.startswith("one\n")
    assert run.processes.running() == []


def test_what_ignores_term_is_killed_even_in_another_session(run: Runner) -> None:
    stubborn = "bash -c 'trap \"\" TERM; while :; do sleep 300; done'"
    outcome = run(f"trap '' TERM; setsid {stubborn} & (setsid {stubborn} & ) ; {stubborn}", timeout=0.3)
    assert outcome.ending == "timed out"
    assert 2 < outcome.seconds < HANG / 2
    assert run.processes.running() == []


def test_a_stopped_process_is_ended_too(run: Runner) -> None:
    run("sleep 300 & kill -STOP $!; wait", timeout=0.3)
    assert run.processes.running() == []


def test_a_process_that_hides_its_mark_is_ended_by_its_parent(run: Runner) -> None:
    if not shutil.which("setsid") or not shutil.which("pgrep"):
        pytest.skip("needs setsid and pgrep")
    sleep = f"sleep {1_000 + os.getpid()}"
    outcome = run(f"env -i $(command -v setsid) -w {sleep}", timeout=0.3)
    assert outcome.left == ()
    assert subprocess.run(["pgrep", "-fx", sleep], capture_output=True, check=False).stdout == b""


def test_time_out_spares_what_an_earlier_call_left(run: Runner) -> None:
    earlier = run("sleep 300 &").left
    run("sleep 300", timeout=0.1)
    assert earlier[0].pid in {each.pid for each in run.processes.running()}


def test_a_bounded_fork_bomb_is_ended(run: Runner) -> None:
    run("bomb() { [ $1 -gt 0 ] && { bomb $(($1-1)) & bomb $(($1-1)) & }; sleep 300; }; bomb 6; wait", timeout=0.3)
    assert run.processes.running() == []


def cancelled_after(run: Runner, command: str, ready: str) -> tuple[shell.Outcome, float]:
    """Cancels `command` once it has printed `ready`; the outcome, and how long the cancel itself took."""
    token, took = CancelToken(), []

    def cancel() -> None:
        before = time.monotonic()
        token.cancel()
        took.append(time.monotonic() - before)

    threads: list[threading.Thread] = []

    def seen(text: str) -> None:
        if ready in text and not threads:
            threads.append(threading.Thread(target=cancel))
            threads[0].start()

    outcome = run(command, token=token, output=seen)
    threads[0].join()
    return outcome, took[0]


def test_cancel_ends_the_command_and_keeps_its_output(run: Runner) -> None:
    outcome, took = cancelled_after(run, "echo ready; sleep 300", "ready")
    assert outcome.ending == "cancelled"
    assert run.text == "ready\n"
    assert took < 0.2
    assert run.processes.running() == []


def test_cancel_kills_what_outlives_the_shell(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corecoder.child.GRACE", 0.3)
    outcome, _ = cancelled_after(run, "setsid bash -c 'trap \"\" TERM; echo ready; sleep 300' & sleep 300", "ready")
    assert outcome.ending == "cancelled"
    assert run.processes.running() == []


def test_a_polite_program_gets_its_term_once(run: Runner) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('term', flush=True));"
        "print('ready', flush=True)\nfor _ in range(15): time.sleep(0.02)"
    )
    outcome, _ = cancelled_after(run, f'exec python3 -c "{program}"', "ready")
    assert outcome.ending == "cancelled"
    assert run.text == "ready\nterm\n"


def test_a_token_that_is_already_set_starts_nothing(run: Runner) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        run("touch started", token=token)
    assert not (run.directory / "started").exists()


def test_a_failing_listener_leaves_no_process(run: Runner) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("listener")

    with pytest.raises(RuntimeError, match="listener"):
        run("echo x; sleep 300", output=fail)
    assert run.processes.running() == []


def test_live_output_is_sent_in_bounded_pieces() -> None:
    sent: list[str] = []
    live = LiveOutput(sent.append)
    for number in range(20_000):
        live.add(f"line {number}\n")
    live.pass_on(last=True)
    assert "".join(sent).endswith("line 19999\n")
    assert len(sent) < 100
    assert max(map(len, sent)) < 5_000


def test_live_output_that_was_left_out_is_marked() -> None:
    sent: list[str] = []
    live = LiveOutput(sent.append)
    live.add("first\n")
    live.add("x" * 20_000)
    live.pass_on(last=True)
    assert sent[0] == "first\n"
    assert sent[1].startswith("[…]\nx")


def test_endless_output_costs_no_memory(run: Runner) -> None:
    run("yes", timeout=0.2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = run("yes", timeout=0.7)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert outcome.ending == "timed out"
    assert run.capture.byte_count > 1_000_000
    assert grown < 8_000  # KiB; bytes on macOS, where this is lenient
    assert len(run.text) < 31_000


def test_no_descriptor_is_left_open(run: Runner) -> None:
    run("true")
    before = descriptors()
    for command in ("true", "sleep 300 &", "x" * 5_000, "exit 3"):
        run(command)
    run("sleep 300", timeout=0.1)
    with contextlib.suppress(ToolError):
        run("true", cwd=Path("/no/such/place"))
    assert descriptors() == before


def test_a_job_goes_on_and_its_log_with_it(run: Runner) -> None:
    outcome = run(
        "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second; exit 5", timeout=0.2, background=True
    )
    assert outcome.ending == "running"
    assert run.text == "first\n"
    (run.directory / "go").touch()
    assert ended(outcome) == 5
    log = run.capture.path
    assert log
    assert soon(lambda: log.read_text() == "first\nsecond\n")


def test_the_log_of_a_job_is_capped(run: Runner) -> None:
    outcome = run("head -c 30000000 /dev/zero | tr '\\0' x; echo > done", timeout=0.01, background=True)
    assert soon((run.directory / "done").exists)
    ended(outcome)
    assert run.capture.path
    path = run.capture.path
    assert soon(lambda: path.read_bytes()[-100:].endswith(b"x\n[the log ends here: it is full]\n"))
    assert path.stat().st_size <= 20_000_000


def test_the_session_ends_everything_in_time(run: Runner) -> None:
    run("bash -c 'trap \"\" TERM; sleep 300; sleep 300' & setsid sleep 300 &")
    run("sleep 300", timeout=0.05, background=True)
    assert len(run.processes.running()) >= 4
    before = time.monotonic()
    assert run.processes.end(1) == []
    assert time.monotonic() - before < HANG / 3
    assert run.processes.running() == []


def test_two_sessions_do_not_end_each_others_processes(run: Runner) -> None:
    run("sleep 300 &")
    other = Processes()
    other.next_mark()
    assert other.end() == []
    assert run.processes.running()


def test_a_session_inside_a_command_keeps_both_marks(run: Runner) -> None:
    env = {**shell.environment(os.environ, {}), MARK: "outer.1:"}
    run("sleep 300 & echo $" + MARK, env=env)
    assert run.text == f"outer.1:{run.processes.identity}.1:\n"
    assert [each.command() for each in family("outer.1:") if each.command() == "sleep 300"]


def test_another_program_can_be_put_before_bash(run: Runner) -> None:
    def start(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["/usr/bin/env", "ADDED=yes", *argv], **options)

    outcome = run("echo $ADDED; cd /", start=start)
    assert run.text == "yes\n"
    assert outcome.state
    assert outcome.state.cwd == Path("/")


def test_processes_are_found_through_ps_as_well(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("ps"):
        pytest.skip("needs ps")
    left = run("setsid sleep 300 &").left
    monkeypatch.setattr("corecoder.processes._PROC", "/nowhere")
    found = family(sessions={left[0].session})
    assert [each.pid for each in found] == [left[0].pid]
    assert found[0].command() == "sleep 300"


def without_pipes(directory: Path, capture: Capture, command: bytes) -> Child:
    return Child(shell.find_bash(), command, cwd=directory, env=os.environ, capture=capture, piped=False)


def test_without_pipes_a_command_runs_through_files(project: Path) -> None:
    capture = Capture(lambda _: None)
    child = without_pipes(project, capture, b"cd /; echo out; echo err >&2; exit 3\n")
    assert child.follow(time.monotonic() + HANG, CancelToken()) == "exited"
    report = child.report
    child.close()
    capture.finish()
    assert child.process.returncode == 3
    assert capture.text() == "out\nerr\n"
    assert report.split(b"\0")[1] == b"/"


def test_without_pipes_a_time_out_ends_the_command(project: Path) -> None:
    capture = Capture(lambda _: None)
    child = without_pipes(project, capture, b"echo out; exec sleep 300\n")
    assert child.follow(time.monotonic() + 0.2, CancelToken()) == "timed out"
    child.stop("no mark")
    child.close()
    capture.finish()
    assert child.process.returncode == -signal.SIGKILL
    assert capture.text() == "out\n"
