"""One bash process, followed from start to end: its output, its report, its exit, and the ways to stop it.

Its output is a pipe, so that `> /dev/stdout` loses nothing; script and report are files without a name, at descriptors
that no command is likely to use. It is followed without a thread, looked at every 20 ms at the latest: that is what a
cancel may wait, and all that an idle command costs. Windows has no pipes to wait for and no process groups: all three
are files with names there, and `> /dev/stdout` in a command loses what was printed before.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from .capture import FILE_CAP, Capture
from .jobs import CancelToken
from .processes import Process, end, end_tree, family

if sys.platform != "win32":
    import fcntl

Ending = Literal["exited", "timed out", "cancelled", "running"]
Start = Callable[..., "subprocess.Popen[bytes]"]  # with the parameters of subprocess.Popen

PRELUDE = Path(__file__).with_name("prelude.bash")
GRACE = 2.0  # seconds between TERM and KILL
_LOOK_EVERY = 0.02  # seconds
_SETTLE = 0.1  # seconds for the last words of children that outlive the shell
_REPORT_LIMIT = 16_000_000  # bytes
_UNLIKELY = 235  # the lowest descriptor for what is ours in a command: scripts lock files at 9, 99, 100 and 200
_OOM_SCORE = "500"  # proc(5), oom_score_adj: when memory runs out, the command goes before we do

# Keeps the log of what outlives its call: no thread of ours, next to no memory, and a bound on the file.
_KEEP_LOG = r"""trap "" XFSZ; ulimit -S -f "$1"
cat >>"$2" 2>/dev/null || { ulimit -S -f hard; printf "\n[the log ends here: it is full]\n" >>"$2"; } 2>/dev/null
exec cat >/dev/null"""


class Child:
    """A bash that runs `script` in a session of its own. Raises OSError if it cannot be started.

    It tells its state on the way out (see `prelude.bash`), which is then in `report`. `held` is whether somebody can
    still write to its output. Without `piped` it works as on Windows.
    """

    def __init__(
        self,
        bash: str,
        script: bytes,
        *,
        cwd: Path,
        env: Mapping[str, str],
        capture: Capture,
        start: Start = subprocess.Popen,
        piped: bool = hasattr(select, "poll"),
    ) -> None:
        self.held = piped
        self._piped = piped
        self._bash = bash
        self._capture = capture
        with contextlib.ExitStack() as self._mine, contextlib.ExitStack() as theirs:
            argument, variables, options = (self._pipe if piped else self._files)(script, theirs)
            if "BASH_ENV" in env:
                variables["CORECODER_BASH_ENV"] = env["BASH_ENV"]
            self.process = start(
                [bash, argument],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**env, **variables, "BASH_ENV": PRELUDE.as_posix()},
                start_new_session=True,
                **options,
            )
            self._mine = self._mine.pop_all()
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text(_OOM_SCORE)

    def _pipe(self, script: bytes, theirs: contextlib.ExitStack) -> tuple[str, dict[str, str], dict[str, Any]]:
        """What to run, what to tell the prelude, how to start it."""
        self._out, out = os.pipe()
        self._mine.callback(os.close, self._out)
        theirs.callback(os.close, out)
        os.set_blocking(self._out, False)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._report = self._mine.enter_context(_nameless())
        source = theirs.enter_context(_nameless())
        source.write(script)
        source.seek(0)
        report, command = self._report.fileno(), source.fileno()
        # Twice, so that the prelude can tell whether the command has opened a file of its own in its place.
        witness = _unlikely(report)
        theirs.callback(os.close, witness)
        variables = {
            "CORECODER_REPORT": f"&{report}",
            "CORECODER_OURS": f"[ /dev/fd/{report} -ef /dev/fd/{witness} ]",
            "CORECODER_SCRIPT": f"{command}<&-",
        }
        return f"/dev/fd/{command}", variables, {"stdout": out, "pass_fds": (report, witness, command)}

    def _files(self, script: bytes, theirs: contextlib.ExitStack) -> tuple[str, dict[str, str], dict[str, Any]]:
        """The same where there is no way to wait for a pipe."""
        folder = Path(tempfile.mkdtemp(prefix="corecoder-"))
        self._mine.callback(self._remove, folder)
        (folder / "command").write_bytes(script)
        self._report = self._mine.enter_context((folder / "report").open("w+b", buffering=0))
        self._output = folder / "output"
        output = theirs.enter_context(self._output.open("ab"))
        self._out = self._mine.enter_context(self._output.open("rb")).fileno()
        report = shlex.quote((folder / "report").as_posix())
        variables = {"CORECODER_REPORT": report, "CORECODER_OURS": ":", "CORECODER_SCRIPT": ""}
        new_group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        return (folder / "command").as_posix(), variables, {"stdout": output, "creationflags": new_group}

    def _remove(self, folder: Path) -> None:
        if self._capture.path != folder / "output":
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def report(self) -> bytes:
        """What the prelude wrote, once the shell has exited."""
        self._report.seek(0)
        return self._report.read(_REPORT_LIMIT) or b""

    def follow(self, deadline: float, token: CancelToken) -> Ending:
        """Reads until the process has exited, the token is set, or the deadline (monotonic) is over ("timed out")."""
        while self.process.poll() is None:
            if token.cancelled:
                return "cancelled"
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed out"
            if not self._read():
                self._wait(left)
        settled = time.monotonic() + _SETTLE
        while time.monotonic() < settled and (self._read() or self.held):
            self._wait(settled - time.monotonic())
        return "exited"

    def stop(self, mark: str) -> list[Process]:
        """Ends everything with this mark or in its session, still reading; returns what could not be ended."""
        find = partial(family, mark, sessions={self.process.pid})
        if self._piped:
            left = end(find, group=self.process.pid, grace=GRACE, idle=self._idle)
        else:
            end_tree(self.process)
            left = find()
        self._idle(0)
        return left

    def keep_log(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Lets the output flow into the capture's file from here on; returns the process that sees to it."""
        if not self._piped:  # it goes to a file anyway: that one is the log, and the command sees to it
            self._capture.path = self._output
            return self.process
        path = self._capture.to_file()
        os.set_blocking(self._out, True)
        return subprocess.Popen(
            [self._bash, "-c", _KEEP_LOG, "keep-log", str(2 * FILE_CAP // 1024), str(path or os.devnull)],
            stdin=self._out,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=env,
            start_new_session=True,
        )

    def close(self) -> None:
        self._mine.close()

    def _idle(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        left = seconds
        while left >= 0:
            if not self._read():
                self._wait(left)
            left = until - time.monotonic()
        self.process.poll()

    def _wait(self, seconds: float) -> None:
        """Waits for output or, where none can come, for the exit: at most for `seconds` and until the next look."""
        seconds = max(0.0, min(seconds, _LOOK_EVERY))
        if self.held:
            self._poll.poll(seconds * 1000)
        elif self.process.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        else:
            time.sleep(seconds)
        self._capture.live.pass_on()

    def _read(self) -> bool:
        """Takes in what was printed; False if there is nothing more now."""
        try:
            data = os.read(self._out, 65_536)
        except BlockingIOError:
            return False
        self._capture.feed(data)
        self.held = self.held and bool(data)
        return bool(data)


def _nameless() -> FileIO:
    """An empty file that has no name, in memory where that can be, at a descriptor that no command is likely to use."""
    with open(os.memfd_create("corecoder"), "r+b") if sys.platform == "linux" else tempfile.TemporaryFile() as low:
        return open(_unlikely(low.fileno()), "r+b", buffering=0)


def _unlikely(descriptor: int) -> int:
    """The same file at a descriptor that no command is likely to use."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _UNLIKELY)
