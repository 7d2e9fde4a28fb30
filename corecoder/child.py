"""One bash process, followed from start to end: its output, its report, its exit, and the ways to stop it.

One `poll` waits for output, exit and cancel, so it needs no thread. It is for systems that have `poll`, pipes that can
be inherited, and process groups; `file_child.py` does the same for Windows.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from .capture import FILE_CAP, Capture
from .jobs import CancelToken
from .processes import Process, end

Ending = Literal["exited", "timed out", "cancelled", "running"]
Wrap = Callable[[list[str]], list[str]]

PRELUDE = Path(__file__).with_name("prelude.bash")
GRACE = 2.0  # seconds between TERM and KILL
_SETTLE = 0.1  # seconds for the last words of children that outlive the shell
_LIVE_EVERY = 0.1  # seconds between two pieces of live output
_LIVE_LIMIT = 4_000  # characters of one piece
_REPORT_EVERY = 0.01  # seconds between two looks at a report that has begun
_REPORT_LIMIT = 4_000_000  # bytes
_REPORT, _SCRIPT = 200, 201  # descriptors in bash, as in the prelude
_PIPED_SCRIPT = 4_096  # bytes that fit into any pipe without a reader
_OOM_SCORE = "500"  # proc(5), oom_score_adj: when memory runs out, the command goes before we do

# Keeps the log of what outlives its call: no thread of ours, next to no memory, and a bound on the file.
_KEEP_LOG = 'trap "" XFSZ; ulimit -f "$1"; cat >>"$2" 2>/dev/null; exec cat >/dev/null'


class LiveOutput:
    """Passes text on in pieces that a front end can take, however fast it comes."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._text = ""
        self._sent_at = 0.0

    def add(self, text: str) -> None:
        self._text += text
        if len(self._text) > 4 * _LIVE_LIMIT:
            self._text = self._text[-_LIVE_LIMIT:]
        self.pass_on()

    def pass_on(self, last: bool = False) -> None:
        """Sends what there is, if it is time (or the `last` time)."""
        now = time.monotonic()
        if not self._text or (now - self._sent_at < _LIVE_EVERY and not last):
            return
        text, self._text, self._sent_at = self._text, "", now
        if len(text) > _LIVE_LIMIT:
            text = "[…]\n" + text[-_LIVE_LIMIT:]
        self._send(text)

    @property
    def waiting(self) -> bool:
        return bool(self._text)


class Child:
    """A bash that runs `script` in a session of its own. Raises OSError if it cannot be started.

    With `reports` it tells its state on the way out (see `prelude.bash`), which is then in `report`.
    """

    def __init__(
        self,
        bash: str,
        script: bytes,
        *,
        cwd: Path,
        env: Mapping[str, str],
        capture: Capture,
        live: LiveOutput,
        wrap: Wrap,
        reports: bool,
    ) -> None:
        self.capture = capture
        self.live = live
        self.report = bytearray()
        self._lock = threading.Lock()  # a late waker must not write to a descriptor that is closed
        self._over = False
        with contextlib.ExitStack() as mine, contextlib.ExitStack() as theirs:
            self._out, out = _pipe(mine, theirs)
            self._state, state = _pipe(mine, theirs)
            state = _beyond_reserved(state, theirs)
            self._woken, self._waker = _pipe(mine, mine)
            source = _beyond_reserved(_readable(script, theirs), theirs)
            variables = {
                **env,
                "BASH_ENV": str(PRELUDE),
                "CORECODER_MOVE": f"{_REPORT}>{f'&{state}' if reports else '/dev/null'} {state}>&- "
                f"{_SCRIPT}<&{source} {source}<&-",
            }
            if "BASH_ENV" in env:
                variables["CORECODER_BASH_ENV"] = env["BASH_ENV"]
            self.process = subprocess.Popen(
                wrap([bash, f"/dev/fd/{_SCRIPT}"]),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env=variables,
                start_new_session=True,
                pass_fds=(source, state),
            )
            self._exit = _exit_descriptor(self.process.pid, mine)
            self._mine = mine.pop_all()
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text(_OOM_SCORE)
        self._poll = select.poll()
        self._open = {self._out, self._state, self._woken}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
        if self._exit >= 0:
            self._open.add(self._exit)
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wake(self) -> None:
        """Makes `follow` look at its token; from any thread, never blocks."""
        with self._lock:
            if not self._over:
                os.write(self._waker, b"!")

    def follow(self, deadline: float, token: CancelToken) -> Ending:
        """Reads until the process has exited, the token is set, or the deadline (monotonic) is over ("timed out")."""
        while self.process.poll() is None:
            if token.cancelled:
                return "cancelled"
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed out"
            self._wait(left)
        settled = time.monotonic() + _SETTLE
        while self._out in self._open and (left := settled - time.monotonic()) > 0:
            self._wait(left)
        while self._state in self._open and self._read(self._state):
            pass
        return "exited"

    def stop(self, find: Callable[[], list[Process]]) -> list[Process]:
        """Ends everything that `find` finds, still reading; returns what could not be ended."""
        left = end(find, group=self.pid, grace=GRACE, idle=self._idle)
        self.process.poll()
        self._idle(0)
        return left

    @property
    def held(self) -> bool:
        """Whether somebody can still write to the output."""
        return self._out in self._open

    def keep_log(self, bash: str, env: Mapping[str, str], /) -> list[subprocess.Popen[bytes]]:
        """Lets the output flow into the capture's file from here on; returns the process that sees to it."""
        path = self.capture.to_file()
        os.set_blocking(self._out, True)
        keeper = subprocess.Popen(
            [bash, "-c", _KEEP_LOG, "keep-log", str(2 * FILE_CAP // 1024), str(path or os.devnull)],
            stdin=self._out,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=env,
            start_new_session=True,
        )
        return [keeper]

    def close(self) -> None:
        with self._lock:
            self._over = True
            self._mine.close()

    def _idle(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._wait(seconds)
        while (left := until - time.monotonic()) > 0:
            self._wait(left)
        self.process.poll()

    def _wait(self, seconds: float) -> None:
        """Waits for the next thing to happen, at most `seconds`, and takes it in."""
        if self.live.waiting:
            seconds = min(seconds, _LIVE_EVERY)
        if self._exit < 0:
            seconds = min(seconds, 0.02 if self.held else 0.002)
        if self.report:
            seconds = min(seconds, _REPORT_EVERY)
        for descriptor, _ in self._poll.poll(seconds * 1000):
            self._read(descriptor)
        if self.report and self._state in self._open:
            self._read(self._state)
        self.live.pass_on()

    def _read(self, descriptor: int) -> bool:
        """Takes in what `descriptor` has; False if it has nothing more now."""
        if descriptor == self._exit:
            self._forget(descriptor)
            return False
        try:
            data = os.read(descriptor, 65_536)
        except BlockingIOError:
            return False
        if not data:
            self._forget(descriptor)
        elif descriptor == self._out:
            self.live.add(self.capture.feed(data))
        elif descriptor == self._state:
            self._take_report(data)
        return bool(data)

    def _take_report(self, data: bytes) -> None:
        """A report comes in a write for each line, just before the exit: no need to wake up for every one."""
        if not self.report:
            self._poll.unregister(self._state)
        if len(self.report) < _REPORT_LIMIT:
            self.report += data

    def _forget(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        with contextlib.suppress(KeyError):  # the report is not polled once it has begun
            self._poll.unregister(descriptor)


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


def _readable(script: bytes, stack: contextlib.ExitStack) -> int:
    """A descriptor to read `script` from: a filled pipe, or a nameless file where that is too small."""
    if len(script) <= _PIPED_SCRIPT:
        with contextlib.ExitStack() as writer:
            reader, end_to_fill = _pipe(stack, writer)
            os.write(end_to_fill, script)
        return reader
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    file.write(script)
    file.seek(0)
    return file.fileno()


def _beyond_reserved(descriptor: int, stack: contextlib.ExitStack) -> int:
    """`descriptor`, or a copy of it that is not one of the two that the prelude takes for itself."""
    while descriptor in (_REPORT, _SCRIPT):
        descriptor = os.dup(descriptor)
        stack.callback(os.close, descriptor)
    return descriptor


def _exit_descriptor(pid: int, stack: contextlib.ExitStack) -> int:
    """A descriptor that becomes readable when the process exits, -1 where there is no such thing."""
    pidfd_open: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if pidfd_open is None:
        return -1
    try:
        descriptor = pidfd_open(pid)
    except OSError:
        return -1
    stack.callback(os.close, descriptor)
    return descriptor
