"""`Child` for Windows: output, script and report are files, and there are no process groups to signal.

It costs a look at the output every 50 ms, and `> /dev/stdout` in a command loses what was printed before.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .capture import Capture
from .child import PRELUDE, Ending, LiveOutput, Wrap
from .jobs import CancelToken
from .processes import Process, end_tree

_LOOK_EVERY = 0.05  # seconds


class FileChild:
    """A bash that runs `script`; the same surface as `Child`."""

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
        self.held = False
        self._woken = threading.Event()
        self._kept = False
        self._folder = Path(tempfile.mkdtemp(prefix="corecoder-"))
        files = {name: (self._folder / name).as_posix() for name in ("command", "output", "report")}
        variables = {
            **env,
            "BASH_ENV": PRELUDE.as_posix(),
            "CORECODER_MOVE": f"200>{shlex.quote(files['report']) if reports else '/dev/null'}",
        }
        Path(files["command"]).write_bytes(script)
        with open(files["output"], "ab") as output:
            self.process = subprocess.Popen(
                wrap([bash, files["command"]]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=variables,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        self._output = open(files["output"], "rb")  # noqa: SIM115 - closed by close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wake(self) -> None:
        self._woken.set()

    def follow(self, deadline: float, token: CancelToken) -> Ending:
        while True:
            exited = self.process.poll() is not None
            while data := self._output.read(65_536):
                self.live.add(self.capture.feed(data))
                if time.monotonic() > deadline:
                    break
            if exited:
                with contextlib.suppress(OSError):
                    self.report += (self._folder / "report").read_bytes()
                return "exited"
            if token.cancelled:
                return "cancelled"
            if time.monotonic() >= deadline:
                return "timed out"
            self._woken.wait(min(_LOOK_EVERY, max(0.0, deadline - time.monotonic())))
            self.live.pass_on()

    def stop(self, find: Callable[[], list[Process]]) -> list[Process]:
        end_tree(self.process)
        return find()

    def keep_log(self, _bash: str, _env: Mapping[str, str]) -> list[subprocess.Popen[bytes]]:
        """Its output goes to a file anyway: that one is the log from here on."""
        self._kept = True
        self.capture.path = self._folder / "output"
        return []

    def close(self) -> None:
        self._output.close()
        if not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)
