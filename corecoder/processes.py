"""What commands have started: finding the processes of a call or of a whole session, and ending them.

A process is known by a mark in its environment, which survives `setsid`, `nohup` and double forks, by the session it is
in, or by a parent that is known; Linux tells all of it in /proc, other systems through `ps`. The price is one look at
every process of the machine, under a millisecond for a hundred. What clears its environment, leaves its session and
outlives its parent is found at the end of a session that has its process to itself (`Processes.sole`), on Linux.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path

from .values import dataclass

MARK = "CORECODER_MARK"  # in the environment of every process that we start: the marks of its calls, each with a colon
_PROC = "/proc"
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2), linux/prctl.h
_GUARD = """read -r _; for signal in TERM KILL; do
    for file in $(grep -lsF "$1" /proc/[0-9]*/environ); do file=${file#/proc/}; kill -$signal "${file%/*}"; done
    sleep 2
done"""
_NO_WRAP = 0.5  # seconds in which nobody starts the 30,000 processes that would bring the old pids back
_DYING = 0.05  # seconds for children that have closed their output and are about to end


@dataclass(frozen=True)
class Process:
    """One living process. `started` tells it from a later one with the same pid, `name` changes when it runs another
    program."""

    pid: int
    parent: int
    group: int
    session: int
    started: str
    name: str
    marked: bool = False

    def command(self) -> str:
        """Its command line, "" where that cannot be read."""
        try:
            words = Path(_PROC, str(self.pid), "cmdline").read_bytes()
        except OSError:
            listing = _ps("-p", str(self.pid), "-o", "command=")
            return listing[0].strip() if listing else ""
        return words.replace(b"\0", b" ").decode(errors="replace").strip()


def family(
    mark: str = "",
    *,
    sessions: Collection[int] = (),
    known: Mapping[int, str] | None = None,
    parents: Collection[int] = (),
    since: int = 0,
) -> list[Process]:
    """The living processes that carry `mark` (a prefix will do), are in one of `sessions`, are `known` (pid to
    `started`) or children of `parents`, and what those have started.

    With `since`, only pids from there on are looked at; right as long as pids have not wrapped around.
    """
    known = known or {}
    everyone = _from_proc(mark, since) if _has_proc() else _from_ps(mark)
    found = {
        each.pid: each
        for each in everyone
        if each.marked or each.session in sessions or known.get(each.pid) == each.started or each.parent in parents
    }
    grown = True
    while grown:
        more = [each for each in everyone if each.parent in found and each.pid not in found]
        found.update((each.pid, each) for each in more)
        grown = bool(more)
    found.pop(os.getpid(), None)
    return [found[pid] for pid in sorted(found)]


def _take_orphans() -> bool:
    """Makes this process the parent of whatever loses its own below it, so that nothing can leave its tree. Not where
    something was started before, by the shell whose place we took for one: that tree would not be ours alone."""
    if sys.platform != "linux" or family(parents={os.getpid()}):
        return False
    import ctypes  # 4 ms, only once a command runs

    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def _guard(identity: str) -> subprocess.Popen[bytes]:
    """A shell that ends what carries `identity` should this process die before it can: the pipe it reads ends then."""
    ours, _never_closed = os.pipe()
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "corecoder-guard", f"{identity}."],
            stdin=ours,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
    finally:
        os.close(ours)


def leftovers(mark: str, shell: int, seconds: float, held: bool) -> list[Process]:
    """What outlives a shell that ran for `seconds`; `held` says that its output certainly is still open somewhere.

    Looking at all processes is dear, so a short command gets the short look, and `ps` is asked only with a reason.
    """
    if not held and not _has_proc():
        return []
    patience = time.monotonic() + _DYING
    while True:
        left = family(mark, sessions={shell}, since=shell if seconds < _NO_WRAP else 0)
        if not left or held or time.monotonic() > patience:
            return left
        time.sleep(0.005)


def _has_proc() -> bool:
    return os.path.exists(f"{_PROC}/self/stat")


def _from_proc(mark: str, since: int) -> list[Process]:
    processes = [_read(name, mark.encode()) for name in os.listdir(_PROC) if name.isdecimal() and int(name) >= since]
    return [each for each in processes if each is not None]


def _read(pid: str, mark: bytes) -> Process | None:
    # proc(5), /proc/pid/stat: "pid (comm) state ppid pgrp session ... starttime", where comm may hold anything
    try:
        with open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:
            head, _, tail = file.read(4096).rpartition(b")")
    except OSError:
        return None
    facts = tail.split()
    if len(facts) < 20 or facts[0] in b"ZXx":
        return None
    marked = bool(mark) and mark in _environment(pid)
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(int(pid), int(facts[1]), int(facts[2]), int(facts[3]), facts[19].decode(), name, marked)


def _environment(pid: str) -> bytes:
    try:
        with open(f"{_PROC}/{pid}/environ", "rb", buffering=0) as file:
            return file.read(4_000_000)
    except OSError:  # somebody else's, or gone
        return b""


def _from_ps(mark: str) -> list[Process]:
    processes = []
    everybody = "-axwwE" if sys.platform == "darwin" else "axwwe"  # with the environment behind the command
    for line in _ps(everybody, "-o", "pid=,ppid=,pgid=,stat=,lstart=,command="):
        pid, parent, group, state, *rest = line.split(None, 9)
        if len(rest) == 6 and not state.startswith("Z"):
            started, marked = " ".join(rest[:5]), bool(mark) and mark in rest[5]
            name = rest[5].split()[0]
            processes.append(Process(int(pid), int(parent), int(group), _session(int(pid)), started, name, marked))
    return processes


def _session(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0


def _ps(*arguments: str) -> list[str]:
    try:
        listing = subprocess.run(["ps", *arguments], capture_output=True, check=False, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return []
    return listing.stdout.decode(errors="replace").splitlines()


def end(
    find: Callable[[], list[Process]],
    *,
    group: int | None = None,
    grace: float = 2.0,
    patience: float = 1.0,
    idle: Callable[[float], None] = time.sleep,
) -> list[Process]:
    """Ends what `find` finds: TERM once for each, `grace` seconds to comply, KILL; returns what is left.

    `group` is a process group to be signalled as a whole, which no fork of its members escapes. `patience` is for how
    many seconds what is left or new is killed again and again; `idle(seconds)` is how to wait.
    """
    told: set[tuple[int, str]] = set()  # with the name: a shell forgets a TERM when it becomes the next program
    left = find()
    if group is not None:
        told.update((each.pid, each.name) for each in left if each.group == group)
        _signal(-group, signal.SIGTERM)
    started, pause = time.monotonic(), 0.005
    while left and (passed := time.monotonic() - started) < grace + patience:
        number, rest = (signal.SIGTERM, grace - passed) if passed < grace else (signal.SIGKILL, 0.01)
        if group is not None and number == signal.SIGKILL:
            _signal(-group, number)
        for each in left:
            if number == signal.SIGKILL or (each.pid, each.name) not in told:
                _signal(each.pid, number)
        told.update((each.pid, each.name) for each in left)
        idle(min(pause, rest))
        pause = min(pause * 2, 0.1)
        left = find()
    return left


def _signal(target: int, number: int) -> None:
    """Sends a signal to a process, or to a group if negative, and the one that makes stopped ones take it."""
    with contextlib.suppress(OSError):
        os.kill(target, number)
        os.kill(target, signal.SIGCONT)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and, on Windows, its descendants."""
    if os.name == "nt":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            taskkill = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
            subprocess.run(taskkill, capture_output=True, check=False, timeout=5)
    process.kill()
    process.wait(5)


@dataclass
class Job:
    """A command that was started to run beside the conversation, `started` being a time of `time.monotonic`."""

    number: int
    process: subprocess.Popen[bytes]
    command: str
    log: Path | None
    mark: str = ""
    reported: bool = False
    started: float = field(default_factory=time.monotonic)


@dataclass
class Processes:
    """What the commands of one session have left running; ends with it.

    `identity` is the first part of every mark of this session. `sole` says that nothing else starts processes here:
    then all children of this process are the session's, those that lost their parents included.
    """

    identity: str = field(default_factory=lambda: os.urandom(6).hex())
    jobs: list[Job] = field(default_factory=list)
    calls: int = 0
    sole: bool = False
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _known: dict[int, str] = field(default_factory=dict)  # pid -> started
    _takes_orphans: bool = False

    def next_mark(self) -> str:
        """The mark of the next call."""
        if not self.calls:
            self._takes_orphans = self.sole and _take_orphans()
            if self._takes_orphans:
                self.adopt(_guard(self.identity))
        self.calls += 1
        return f"{self.identity}.{self.calls}:"

    def remember(self, left: Iterable[Process]) -> None:
        """These are to end with the session even if they lose their mark."""
        self._known.update((each.pid, each.started) for each in left)

    def adopt(self, child: subprocess.Popen[bytes]) -> None:
        """A child of ours that nobody else waits for."""
        self._children.append(child)

    def add_job(self, process: subprocess.Popen[bytes], command: str, log: Path | None) -> Job:
        """Takes note of a process that was adopted, that of the last call."""
        job = Job(len(self.jobs) + 1, process, command, log, f"{self.identity}.{self.calls}:")
        self.jobs.append(job)
        return job

    def _reap(self) -> None:
        """Takes note of children that have ended, so that none stays a zombie."""
        self._children = [child for child in self._children if child.poll() is None]
        ours = {child.pid for child in self._children}
        with contextlib.suppress(ChildProcessError):  # there is no child at all
            while self._takes_orphans and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                if ended.si_pid in ours:
                    break
                os.waitpid(ended.si_pid, 0)

    def ended_jobs(self) -> list[Job]:
        """The jobs that have ended, each told once."""
        self._reap()
        ended = [job for job in self.jobs if job.process.returncode is not None and not job.reported]
        for job in ended:
            job.reported = True
        return ended

    def end_job(self, job: Job) -> list[Process]:
        """Ends a job and all that it started; returns what could not be ended."""
        if os.name == "nt":
            end_tree(job.process)
            return []
        left = end(partial(family, job.mark, sessions={job.process.pid}), group=job.process.pid)
        job.process.poll()  # this one alone: beside a running turn, the next may be the child that a call waits for
        return left

    def running(self) -> list[Process]:
        """Everything of this session that is alive."""
        self._reap()
        return family(f"{self.identity}.", known=self._known, parents={os.getpid()} if self._takes_orphans else ())

    def others(self) -> list[Process]:
        """What is alive beside the jobs and their own, without a look at what has ended; [] on Windows."""
        ours = {child.pid for child in self._children}
        found = family(f"{self.identity}.", known=self._known) if self.calls and os.name != "nt" else []
        return [each for each in found if each.pid not in ours and each.session not in ours]

    def end(self, timeout: float = 2.0) -> list[Process]:
        """Ends everything of this session; returns what could not be ended. Takes `timeout` seconds at most."""
        if not self.calls:
            return []
        if os.name == "nt":
            for job in self.jobs:
                end_tree(job.process)
        return end(self.running, grace=max(0.0, timeout - 0.5), patience=0.5)
