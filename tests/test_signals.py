"""Signals to the real program: it stops in every phase, leaves nothing behind, and says so with its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from server import D, F, HTTPError, Pause, StrictServer, Text, call, sse

from corecoder.cli import main
from corecoder.processes import family
from corecoder.terminal import Signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
LONG = 45  # seconds: only reached where something hangs


def until(holds: Callable[[], object], what: str) -> None:
    """Waits for `holds`."""
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.01)


@contextmanager
def program(
    server: StrictServer, *argv: str, before: Callable[[], None] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`corecoder` as a process with three pipes."""
    environ = {
        **os.environ,
        "CORECODER_BASE_URL": server.base_url,
        "CORECODER_API_KEY": "key",
        "CORECODER_MODEL": "scripted",
        "PYTHONWARNINGS": "error",
    }
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "corecoder", *argv]
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ, preexec_fn=before
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LONG)
    assert "Traceback" not in err
    return process.returncode, out, err


def goes_on(server: StrictServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Goes on with the session in a strict server's eyes; gives the roles of what is sent."""
    monkeypatch.setenv("CORECODER_BASE_URL", server.base_url)
    monkeypatch.setenv("CORECODER_API_KEY", "key")
    monkeypatch.setenv("CORECODER_MODEL", "scripted")
    server.steps, server.forever = [], "gone on"
    assert main(["-c", "-p", "next", "--no-stdin"]) == 0
    assert server.faults == []
    return [message["role"] for message in server.requests[-1]["messages"]]


SLEEP = f"sleep 45.{os.getpid()}"  # no other run of these tests has the same

PHASES = {
    "waiting for headers": HTTPError(503, {}, pause=LONG),
    "in the stream": sse(D("part of "), Pause(LONG)),
    "in back-off": HTTPError(503, {"error": {"message": "busy"}}, headers={"Retry-After": "40"}),
    "in a tool": [Text("I wait."), call("bash", command=f"touch started; {SLEEP}")],
}


@pytest.mark.parametrize(
    ("phase", "number"),
    [*((phase, "SIGINT") for phase in PHASES), ("in a tool", "SIGTERM"), ("in the stream", "SIGHUP")],
)
def test_a_signal_ends_the_program_in_every_phase_with_its_own_exit_code(
    phase: str, number: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StrictServer(PHASES[phase]) as server:
        with program(server, "--yes", "-p", "go", "--no-stdin") as process:
            until(lambda: server.requests, "the request")
            if phase == "in a tool":
                until((project / "started").exists, "the tool")
            else:
                time.sleep(0.2)  # lets the client get into the phase; a signal that comes earlier must do as well
            process.send_signal(signal.Signals[number])
            code, out, err = ended(process)
        assert (code, out) == (128 + signal.Signals[number], "")
        assert "stopped" in err
        assert not running(SLEEP)
        roles = goes_on(server, monkeypatch)
        assert roles[0] == "system"
        assert roles[-1] == "user"


def running(command: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return any(line.strip() == command for line in listed.splitlines())


def test_a_signal_while_it_reads_its_input_ends_it_at_once() -> None:
    with StrictServer() as server, program(server, "-p", "hi") as process:
        assert process.stderr is not None
        said = process.stderr
        until(lambda: "--no-stdin" in said.readline(), "the word on waiting")
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143
        assert server.requests == []


LOSES = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "corecoder.app":
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                for _ in range(1000):
                    pass
            except BaseException:  # as Python does in a callback of its own import system
                pass

sys.meta_path.insert(0, Finder())
"""


def test_a_signal_in_the_midst_of_an_import_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(LOSES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with StrictServer("never") as server, program(server, "-p", "hi", "--no-stdin") as process:
        assert ended(process) == (143, "", "")
        assert server.requests == []


def test_however_often_a_signal_is_sent_it_ends_as_cleanly(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictServer(call("bash", command=f"touch started; trap '' TERM INT; {SLEEP}; {SLEEP}")) as server:
        with program(server, "--yes", "-p", "go", "--no-stdin") as process:
            until((project / "started").exists, "the tool")
            while process.poll() is None:  # into its very last moments
                process.send_signal(signal.SIGINT)
                time.sleep(0.005)
            assert ended(process)[0] == 130
        assert not running(SLEEP)
        assert goes_on(server, monkeypatch)[-1] == "user"


@pytest.mark.skipif(sys.platform != "linux", reason="prctl of Linux")
def test_nothing_hides_from_the_end_of_the_session(project: Path) -> None:
    hidden = f"env -i setsid {SLEEP} & env -i setsid sh -c '{SLEEP} & exit 3' & wait $!"
    hidden += f"; until [ $(pgrep -cxf '{SLEEP}') = 2 ]; do sleep 0.05; done; echo hidden"
    with StrictServer(call("bash", command=hidden), "done") as server, program(server, "-p", "x", "--yes") as process:
        code, _, err = ended(process)
        assert code == 0, err
        assert server.requests[-1]["messages"][-1]["content"].startswith("hidden\n")
    assert not running(SLEEP)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
def test_a_command_does_not_outlive_a_program_that_was_killed(project: Path) -> None:
    command = f"trap '' TERM; {SLEEP} & setsid {SLEEP} & touch started; wait"
    with StrictServer(call("bash", command=command)) as server, program(server, "-p", "x", "--yes") as process:
        assert process.stdin is not None
        process.stdin.close()
        until((project / "started").exists, "the command")
        started = {each.pid: each.started for each in family(parents={process.pid})}
        assert len(started) == 4  # the guard, the shell, two of sleep
        process.kill()
        until(lambda: not family(known=started), "the end of all that it had started")


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    slow = sse(Pause(1), D("still here"), F("stop"))
    with StrictServer(slow) as server, program(server, "-p", "go", "--no-stdin", before=nohup) as process:
        until(lambda: server.requests, "the request")
        process.send_signal(signal.SIGHUP)
        assert ended(process)[:2] == (0, "still here\n")


def hit(number: signal.Signals) -> None:
    """Sends this process a signal, whose handler has run when this returns."""
    os.kill(os.getpid(), number)
    for _ in range(1000):
        pass


def test_a_signal_cancels_what_runs_and_otherwise_raises() -> None:
    calls: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        with signals.cancelling(lambda: calls.append("cancel")):
            hit(signal.SIGTERM)
            with signals.raising(), pytest.raises(KeyboardInterrupt):
                hit(signal.SIGINT)
        assert signals.exit_code == 143
        with signals.holding():
            hit(signal.SIGINT)
        with pytest.raises(SystemExit) as raised:
            hit(signal.SIGTERM)
        assert raised.value.code == 143
    assert calls == ["cancel"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_breaks_off_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corecoder.terminal.STUCK", 0.0)
    with Signals() as signals, signals.cancelling(lambda: None):
        hit(signal.SIGINT)
        time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt):
            hit(signal.SIGINT)
