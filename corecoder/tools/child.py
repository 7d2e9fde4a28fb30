"""A helper process that a tool reads from: it ends when it is done, out of time, or when the call is cancelled."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..jobs import CancelToken

_ERRORS = 1 << 16


class Child:
    """A running process. `timed_out` is set when the limit ended it; `status` and `errors` hold once it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.timed_out = False
        self.status: int | None = None
        self.errors = ""
        self._process = process

    def lines(self) -> Iterator[bytes]:
        """Its output line by line, without the line ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.removesuffix(b"\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)


@contextmanager
def running(
    command: Sequence[str],
    *,
    token: CancelToken,
    limit: float,
    stdin: bytes = b"",
    without: frozenset[str] = frozenset(),
) -> Iterator[Child]:
    """Starts `command` in a session of its own, gives it `stdin`, and ends it when the block is left.

    `limit` is in seconds, `without` are environment variables it must not see. Raises Cancelled on the way out when
    the token was set, OSError when it cannot be started.
    """
    env = {name: value for name, value in os.environ.items() if name not in without}
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors, token.deadline(limit) as stop:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=env, start_new_session=True)
        child = Child(process)
        with process, stop.waker(process.kill):
            try:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # it ended before it read: its status says why
                    process.stdin.write(stdin)
                    process.stdin.close()
                yield child
            finally:
                process.kill()
                child.status = process.wait()
                child.timed_out = stop.cancelled and not token.cancelled
                errors.seek(0)
                child.errors = errors.read(_ERRORS).decode("utf-8", "replace")
    token.check()
