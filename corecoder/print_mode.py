"""One-shot runs: a contract with scripts.

Standard input joins the prompt. Standard output is the final answer and nothing else, written when the turn has
ended; progress goes to standard error. Exit codes: 0 done, 1 error, 2 usage, 3 a limit was reached, 4 the last step
had something refused, 75 (EX_TEMPFAIL of sysexits.h) the same run may succeed later, 128 + n ended by signal n, and
141 (128 + SIGPIPE) where the reader of the answer went away first.

A pipe is read to its end, because nobody can know whether more is to come. The price: one that never ends must be
interrupted or left out with --no-stdin, which is said after three seconds of silence.
"""

from __future__ import annotations

import errno
import gc
import os
import queue
import sys
from typing import IO

from .agent import Agent, ChatModel
from .errors import ConfigError
from .events import TurnFinished
from .jobs import CancelToken, Job, JobEvent, Jobs
from .markdown import MarkdownStream
from .render import Renderer
from .terminal import Screen, Signals
from .text import MARKS, one_line

QUIET_INPUT = 3.0  # seconds without a byte after which a waiting run says what it waits for
MAX_INPUT = 64 * 1024 * 1024
# A wait without a time-out cannot be interrupted by Ctrl+C on Windows.
POLL = 0.2 if sys.platform == "win32" else None
CLOSING = 2.5  # seconds for processes to end
EXIT_CODES = {"end_turn": 0, "error": 1, "max_tokens": 3, "max_steps": 3, "limit": 3, "refused": 4, "cancelled": 130}
RETRYABLE, REFUSED, BROKEN_PIPE = 75, 4, 141


def one_shot(agent: Agent, prompt: str, stdin: IO[str] | None, *, out: Screen, err: Screen, signals: Signals) -> int:
    """Reads what comes through `stdin` (None to leave it out), runs one turn, closes the agent; gives the exit code.

    Raises ConfigError if there is no prompt.
    """
    try:
        whole = join_prompt(prompt, read_input(stdin, err))
    except BaseException:
        with signals.holding():
            agent.close(CLOSING)
        raise
    return run_once(agent, whole, out=out, err=err, signals=signals)


def warm_up(llm: ChatModel) -> None:
    """Loads the model client in the background, after which start-up is over and garbage is collected again."""

    def load(_job: Job) -> None:
        try:
            llm.warm_up()
        finally:
            if not gc.isenabled():
                gc.freeze()  # what was loaded stays; to search it even once would delay the first request by 50 ms
                gc.enable()

    Jobs().start("warm-up", load, CancelToken())


def run_once(agent: Agent, prompt: str, *, out: Screen, err: Screen, signals: Signals) -> int:
    """Runs one turn and closes the agent; gives the exit code."""
    renderer = Renderer(err, streaming=False, root=agent.workspace.root)
    finished: TurnFinished | None = None
    for notice in agent.session.notices:
        err.prose(f"warning: {notice}", "yellow")
    err.prose(agent.permissions.announcement(), "dim")
    events = agent.run(prompt)
    with signals.cancelling(agent.cancel):
        try:
            for event in events:
                renderer.show(event)
                if isinstance(event, TurnFinished):
                    finished = event
        finally:
            with signals.holding():
                gone = agent.close(CLOSING)
    if not gone:
        err.line("warning: something that was started did not end in time", "yellow")
    if finished is None:
        return 1
    code = _exit_code(finished) if signals.exit_code is None else signals.exit_code
    if code == REFUSED:
        err.line("the last step asked for something that was refused", "yellow")
    return _deliver(agent, finished, code, out, err)


def _exit_code(finished: TurnFinished) -> int:
    if finished.retryable and finished.stop_reason == "error":
        return RETRYABLE
    if finished.refused and finished.stop_reason == "end_turn":
        return REFUSED
    return EXIT_CODES[finished.stop_reason]


def _deliver(agent: Agent, finished: TurnFinished, code: int, out: Screen, err: Screen) -> int:
    """Writes the answer to standard output, or what there is of one to standard error."""
    if finished.stop_reason in ("error", "cancelled"):
        if finished.text.strip():
            err.line(finished.text.strip())
        if kept := where_kept(agent):
            err.prose(kept, "dim")
        return code
    if not finished.text.strip():
        return code
    if out.terminal and err.terminal:
        err.line()
    if out.terminal and out.colour:
        markdown = MarkdownStream(out)
        markdown.feed(finished.text)
        markdown.finish()
    else:
        out.line(finished.text.strip("\n"))
    if out.failed is None:
        return code
    if out.failed.errno == errno.EPIPE:
        return BROKEN_PIPE
    why = out.failed.strerror or str(out.failed)
    err.prose(f"error: the answer could not be written to standard output: {why}. {where_kept(agent)}", "red")
    return code or 1


def where_kept(agent: Agent) -> str:
    """A sentence on what is kept and how to go on, "" if nothing is."""
    if not agent.session.on_disk or not agent.session.view:
        return ""
    return f"`corecoder -c` goes on from what is kept in session {agent.session.id}."


def join_prompt(prompt: str, piped: str) -> str:
    """The prompt of the command line and what came through the pipe. Raises ConfigError if both are empty."""
    # An argument whose bytes are not in the locale's encoding holds surrogates, which JSON cannot.
    prompt = prompt.strip().encode("utf-8", "replace").decode("utf-8")
    parts = [part for part in (prompt, piped.strip("\n")) if part.strip()]
    if not parts:
        raise ConfigError('There is no prompt. Give one with -p "…" or through a pipe.')
    return "\n\n".join(parts)


def read_input(stream: IO[str] | None, err: Screen, *, quiet: float = QUIET_INPUT) -> str:
    """All of standard input, "" if it is a terminal or closed. Raises ConfigError if it cannot be used.

    It is UTF-8, or what its byte order mark says; other bytes become replacement characters, which is said on `err`.
    """
    if stream is None or stream.closed or stream.isatty():
        return ""
    data = _read_all(stream.fileno(), err, quiet)
    mark, encoding = next(((mark, name) for mark, name in MARKS if data.startswith(mark)), (b"", "utf-8"))
    data = data[len(mark) :]
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        err.line(
            f"warning: standard input is not {encoding.upper()} (first at byte {error.start:,}); "
            "what could not be read is replaced by �",
            "yellow",
        )
        return data.decode(encoding, "replace")


def _read_all(descriptor: int, err: Screen, quiet: float) -> bytes:
    """Reads as a job, so that a signal is seen and the silence can be timed on every system."""

    def work(job: Job) -> None:
        while chunk := os.read(descriptor, 1 << 16):
            job.emit(chunk)

    jobs = Jobs()
    jobs.start("stdin", work, CancelToken())
    chunks: list[bytes] = []
    size = 0
    timeout: float | None = quiet
    while True:
        try:
            item = jobs.inbox.get(timeout=timeout)
        except queue.Empty:
            if timeout == quiet:
                err.line("waiting for the end of standard input (--no-stdin leaves it out, Ctrl+C stops)", "dim")
            timeout = POLL
            continue
        if not isinstance(item, JobEvent):
            if item.error is not None:
                raise ConfigError(f"Standard input cannot be read: {one_line(str(item.error))}.")
            return b"".join(chunks)
        chunks.append(item.value)
        size += len(item.value)
        if size > MAX_INPUT:
            limit = f"{MAX_INPUT // 1024 // 1024} MB"
            raise ConfigError(f"Standard input is larger than {limit}. Put it into a file and name the file instead.")
