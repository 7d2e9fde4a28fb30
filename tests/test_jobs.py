"""Jobs report once and last; a cancel wakes whatever they are blocked in, at once and exactly once."""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import Any

import pytest

from corecoder.errors import Cancelled
from corecoder.jobs import CancelToken, Job, JobDone, JobEvent, Jobs, alarm

HANGS = 20.0  # seconds; only for a test that would otherwise never end


def reports(jobs: Jobs) -> list[Any]:
    """Everything in the inbox up to the first JobDone."""
    found = []
    while not found or not isinstance(found[-1], JobDone):
        found.append(jobs.inbox.get(timeout=HANGS))
    return found


def test_a_job_reports_what_it_emits_and_then_its_value_last() -> None:
    jobs = Jobs()

    def work(job: Job) -> int:
        job.emit("one")
        job.emit("two")
        return 3

    job = jobs.start("count", work, CancelToken())
    first, second, done = reports(jobs)
    assert [(first.job, first.value), (second.job, second.value)] == [(job, "one"), (job, "two")]
    assert isinstance(first, JobEvent)
    assert (done.job, done.value, done.error) == (job, 3, None)
    assert done.ended >= job.started
    assert jobs.close(HANGS)
    assert jobs.inbox.empty()


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_whatever_a_job_raises_is_reported_and_not_printed(
    error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = Jobs()

    def work(_job: Job) -> None:
        raise error

    jobs.start("fails", work, CancelToken())
    (done,) = reports(jobs)
    assert done.error is error
    assert jobs.close(HANGS)
    assert capfd.readouterr() == ("", "")


def test_closing_waits_for_running_jobs_and_tells_when_one_stays() -> None:
    jobs = Jobs()
    release = threading.Event()
    jobs.start("slow", lambda _job: release.wait(HANGS), CancelToken())
    assert jobs.close(0.01) is False
    release.set()
    assert jobs.close(HANGS) is True
    assert Jobs().close(0) is True


def test_a_stuck_job_does_not_keep_the_process_alive(tmp_path: Any) -> None:
    program = "import time; from corecoder.jobs import *; Jobs().start('x', lambda _: time.sleep(600), CancelToken())"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program]) == 0


def test_a_cancel_ends_a_sleep_at_once() -> None:
    jobs, token = Jobs(), CancelToken()
    jobs.start("sleep", lambda job: job.token.sleep(600), token)
    token.cancel()
    (done,) = reports(jobs)
    assert isinstance(done.error, Cancelled)


def test_a_sleep_that_nobody_cancels_just_ends() -> None:
    CancelToken().sleep(0.001)
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        token.sleep(600)
    with pytest.raises(Cancelled):
        token.check()
    assert token.cancelled
    CancelToken().check()


def test_a_waker_ends_a_blocking_read() -> None:
    here, there = socket.socketpair()
    jobs, token = Jobs(), CancelToken()
    waiting = threading.Event()

    def work(job: Job) -> bytes:
        with job.token.waker(lambda: here.shutdown(socket.SHUT_RDWR)):
            waiting.set()
            return here.recv(1)

    with here, there:
        jobs.start("read", work, token)
        assert waiting.wait(HANGS)
        token.cancel()
        (done,) = reports(jobs)
    assert done.value == b""


def test_wakers_are_called_once_and_only_inside_their_block() -> None:
    token, calls = CancelToken(), []
    with token.waker(lambda: calls.append("ended")):
        pass
    with token.waker(lambda: calls.append("outer")), token.waker(lambda: calls.append("inner")):
        token.cancel()
        token.cancel()
    assert sorted(calls) == ["inner", "outer"]
    with token.waker(lambda: calls.append("late")):
        assert calls[-1] == "late"
    assert len(calls) == 3


def test_a_waker_that_fails_does_not_keep_the_others_asleep() -> None:
    token, calls = CancelToken(), []

    def fail() -> None:
        raise OSError("already closed")

    first, last = token.waker(lambda: calls.append(1)), token.waker(lambda: calls.append(2))
    with first, token.waker(fail), last, pytest.raises(OSError, match="already closed"):
        token.cancel()
    assert sorted(calls) == [1, 2]
    assert token.cancelled


def test_wakers_and_cancels_from_many_threads_never_miss_each_other() -> None:
    for _ in range(50):
        jobs, token = Jobs(), CancelToken()
        for number in range(4):
            jobs.start(f"sleeper {number}", lambda job: job.token.sleep(600), token)
        jobs.start("canceller", lambda job: job.token.cancel(), token)
        assert jobs.close(HANGS)


def test_a_deadline_cancels_its_own_work_and_not_the_rest() -> None:
    token = CancelToken()
    with token.deadline(0.01) as child, pytest.raises(Cancelled):
        child.sleep(600)
    assert not token.cancelled
    with token.deadline(600) as child:
        token.cancel()
        assert child.cancelled
    with CancelToken().deadline(600) as child:
        child.sleep(0.001)
    assert not child.cancelled


def test_an_alarm_rings_once_when_it_is_due_and_never_after_its_block() -> None:
    rung: queue.SimpleQueue[int] = queue.SimpleQueue()
    due = time.monotonic()
    with alarm(lambda: due, lambda: rung.put(1)):
        assert rung.get(timeout=HANGS) == 1
    with alarm(lambda: time.monotonic() + 600, lambda: rung.put(2)):
        pass
    assert rung.empty()
    assert threading.active_count() < 20


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_handler_may_put_into_the_inbox_while_the_driver_waits_in_it() -> None:
    jobs = Jobs()
    before = signal.signal(signal.SIGUSR1, lambda *_: jobs.inbox.put("signal"))
    try:
        jobs.start("kill", lambda _job: os.kill(os.getpid(), signal.SIGUSR1), CancelToken())
        found = {type(jobs.inbox.get(timeout=HANGS)) for _ in range(2)}
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == {str, JobDone}
