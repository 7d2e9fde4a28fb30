"""Threads, in one place: a job runs blocking work and reports to one queue; a token stops it.

Everything that can take time (a model request, a tool, a back-off) is a job. The driver blocks on the queue only, so
that a cancel is seen in every phase. Work that can block registers a *waker* with its token: a function that makes
the blocking call return (close the socket, signal the process, set the event). A job that does not come back in time
is abandoned: it goes on as a daemon thread and what it reports is dropped.

The queue is a `queue.SimpleQueue` because a signal handler may put into it: the documentation promises that `put` is
reentrant, which is not so for `queue.Queue` and `threading.Event`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from typing import Any, TypeVar, cast

from .errors import Cancelled
from .values import dataclass

T = TypeVar("T")


class CancelToken:
    """Tells a job that its result is no longer wanted, and wakes whatever it is blocked in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: dict[object, Callable[[], None]] = {}
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Sets the token and calls every waker once, also where one of them raises. Wakers must not block. Not for
        signal handlers."""
        with self._lock:
            self._cancelled = True
            wakers, self._wakers = self._wakers, {}
        with ExitStack() as stack:
            for wake in wakers.values():
                stack.callback(wake)

    def check(self) -> None:
        """Raises Cancelled if the token is set."""
        if self._cancelled:
            raise Cancelled("cancelled")

    @contextmanager
    def waker(self, wake: Callable[[], None]) -> Iterator[None]:
        """Registers `wake` for the length of the block; calls it at once if the token is already set."""
        key = object()
        with self._lock:
            already = self._cancelled
            if not already:
                self._wakers[key] = wake
        if already:
            wake()
        try:
            yield
        finally:
            with self._lock:
                self._wakers.pop(key, None)

    def sleep(self, seconds: float) -> None:
        """Sleeps for `seconds`, or raises Cancelled as soon as the token is set."""
        woken = threading.Event()
        with self.waker(woken.set):
            woken.wait(seconds)
        self.check()

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[CancelToken]:
        """A token for one piece of work: cancelled with this one, or by itself after `seconds`."""
        child = CancelToken()
        timer = threading.Timer(seconds, child.cancel)
        timer.daemon = True
        timer.start()
        try:
            with self.waker(child.cancel):
                yield child
        finally:
            timer.cancel()


@dataclass(frozen=True)
class JobEvent:
    """Something a job reports while it works."""

    job: Job
    value: Any


@dataclass(frozen=True)
class JobDone:
    """The last thing a job reports: its value or what it raised, and when it ended on the monotonic clock."""

    job: Job
    value: Any = None
    error: BaseException | None = None
    ended: float = field(default_factory=time.monotonic)


class Job:
    """One piece of work on a thread of its own."""

    def __init__(self, name: str, token: CancelToken, inbox: queue.SimpleQueue[Any]) -> None:
        self.name = name
        self.token = token
        self.started = time.monotonic()
        self._inbox = inbox

    def emit(self, value: Any) -> None:
        """Reports `value` to the driver; to be called from the job's own thread."""
        self._inbox.put(JobEvent(self, value))


class Jobs:
    """Starts jobs and knows which of their threads are still alive."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[Job], Any], token: CancelToken) -> Job:
        """Runs `work(job)` on a daemon thread; its value or exception arrives in the inbox as a JobDone."""
        job = Job(name, token, self.inbox)

        def run() -> None:
            try:
                done = JobDone(job, value=work(job))
            except BaseException as error:  # noqa: BLE001 - the driver decides what an exception means
                done = JobDone(job, error=error)
            self.inbox.put(done)

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return job

    def close(self, timeout: float) -> bool:
        """Waits until no job is running, at most `timeout` seconds; False if one still is."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def aside(work: Callable[[], T]) -> T:
    """Runs `work` on a thread of its own, for what is done to a thread for good; its value, or what it raised."""
    outcome: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            outcome.put((None, error))

    thread = threading.Thread(target=run, name="aside", daemon=True)
    thread.start()
    value, error = outcome.get()
    thread.join()
    if error is not None:
        raise error
    return cast(T, value)


@contextmanager
def alarm(due: Callable[[], float], ring: Callable[[], None]) -> Iterator[None]:
    """Calls `ring` once, from another thread, as soon as the monotonic clock has passed `due()` within the block.

    `due` may move in either direction; a due time that moved nearer is noticed within half a second.
    """
    over = threading.Event()

    def watch() -> None:
        while (left := due() - time.monotonic()) > 0:
            if over.wait(min(left, 0.5)):
                return
        if not over.is_set():
            ring()

    threading.Thread(target=watch, name="alarm", daemon=True).start()
    try:
        yield
    finally:
        over.set()
