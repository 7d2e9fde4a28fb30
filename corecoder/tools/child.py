"""A helper process that a tool reads from: it ends when it is done, out of time, or when the call is cancelled."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..jobs import CancelToken

_CHUNK = 1 << 16
_ERRORS = 1 << 16


class Child:
    """A running process. `timed_out` is set when the limit ended it; `status` and `errors` hold once it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], limit: float) -> None:
        self.timed_out = False
        self.errors = ""
        self._process = process
        self._deadline = time.monotonic() + limit

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.returncode

    def lines(self) -> Iterator[bytes]:
        """Its output line by line, without the line ends."""
        rest = b""
        while data := self._read():
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
        if rest:
            yield rest
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def kill(self) -> None:
        """Ends it at once; harmless when it has ended."""
        self._process.kill()

    def within(self, seconds: float) -> None:
        """From now on it has at most `seconds` left."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if sys.platform == "win32":  # no waiting on pipes there: our own worker ends itself in time
            return os.read(fd, _CHUNK)
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            if not selector.select(max(0.0, self._deadline - time.monotonic())):
                self.timed_out = True
                self.kill()
        return os.read(fd, _CHUNK)


@contextmanager
def running(
    command: Sequence[str],
    *,
    token: CancelToken,
    limit: float,
    stdin: bytes = b"",
    without: frozenset[str] = frozenset(),
    env: Mapping[str, str] = os.environ,
) -> Iterator[Child]:
    """Starts `command` in a session of its own, gives it `stdin`, and ends it when the block is left.

    `limit` is in seconds, `without` are environment variables it must not see. Raises Cancelled on the way out when
    the token was set, OSError when it cannot be started.
    """
    clean = {name: value for name, value in env.items() if name not in without}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean,
            start_new_session=True,
        )
        child = Child(process, limit)
        with process, token.waker(process.kill):
            try:
                _feed(process, stdin)
                yield child
            finally:
                process.kill()
                process.wait()
                errors.seek(0)
                child.errors = errors.read(_ERRORS).decode("utf-8", "replace")
    token.check()


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it ended before it read: its status says why
        process.stdin.write(data)
        process.stdin.close()
