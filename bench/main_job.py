"""The main job against the original, in one run: start-up, first request, memory, time per step.

    python bench/main_job.py --original /path/to/venv/bin/python     (a virtual environment with corecoder==0.8.0)

Every figure is a ratio against something measured in the same run, pair by pair, and the median is printed, because
absolute times differ from machine to machine and from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Measure = Callable[[], float]

CHUNK = {"object": "chat.completion.chunk", "id": "c", "model": "m", "created": 1}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


class QuickServer:
    """Answers `calls` requests with a call of `true`, then with text; notes when a request came and was answered.

    It looks at nothing and parses nothing, so that a longer request costs it only the reading.
    """

    def __init__(self, calls: int = 0) -> None:
        self.left = calls
        self.came: list[float] = []
        self.answered: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> QuickServer:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while self._one(connection, stream):
                    pass

    def _one(self, connection: socket.socket, stream: Any) -> bool:
        length = 0
        first = stream.readline()
        came = time.perf_counter()
        while (line := stream.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        stream.read(length)
        if not first.startswith(b"POST"):
            if first:
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return bool(first)
        self.came.append(came)
        body = self._body().encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        self.answered.append(time.perf_counter())
        return True

    def _body(self) -> str:
        self.left -= 1
        if self.left >= 0:
            function = {"name": "bash", "arguments": '{"command": "true"}'}
            call = {"index": 0, "id": f"call_{self.left}", "type": "function", "function": function}
            delta, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        else:
            delta, reason = {"role": "assistant", "content": "done"}, "stop"
        chunks = [
            CHUNK | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            CHUNK | {"choices": [], "usage": USAGE},
        ]
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def run(command: list[str], **environment: str) -> tuple[float, int]:
    """Seconds and peak memory in KiB of one process (POSIX)."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": ""},
        cwd=environment.get("PWD"),
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return time.perf_counter() - started, usage.ru_maxrss


def ratio(ours: Measure, other: Measure, rounds: int) -> tuple[float, float, float]:
    """The medians of both, and of their ratio pair by pair; one warm-up each."""
    ours(), other()
    pairs = [(ours(), other()) for _ in range(rounds)]
    mine, theirs = zip(*pairs, strict=True)
    return statistics.median(mine), statistics.median(theirs), statistics.median(a / b for a, b in pairs)


def show(what: str, figures: tuple[float, float, float], limit: float, unit: str = "ms") -> None:
    mine, theirs, quotient = figures
    print(f"{what:<58} {mine:>9.1f} {theirs:>9.1f} {unit:<4} {quotient:>6.2f}  (at most {limit})")


class OneShot:
    """`corecoder -p` of one interpreter in a scratch project and home, against a scripted server."""

    def __init__(self, python: str, scratch: Path) -> None:
        self.python = python
        self.environment = {"HOME": str(scratch), "PWD": str(scratch), "OPENAI_API_KEY": "key", "CORECODER_MODEL": "m"}

    def run(self, server: QuickServer) -> tuple[float, int]:
        command = [self.python, "-m", "corecoder", "-p", "go", "--yes"]
        return run(command, OPENAI_BASE_URL=server.base_url, **self.environment)

    def first_request(self) -> float:
        """Milliseconds from the start of the process to the arrival of its first request."""
        with QuickServer() as server:
            started = time.perf_counter()
            self.run(server)
        return (server.came[0] - started) * 1000

    def memory(self) -> float:
        with QuickServer() as server:
            return self.run(server)[1] / 1024


def steps(python: str, count: int, scratch: Path) -> list[float]:
    """Seconds of each of `count` steps of `true`, without the time that the server took to answer."""
    program = (
        "import sys; from corecoder import Agent, LLM\n"
        "options = {'max_steps': 100000} if hasattr(Agent, 'run') else {'max_rounds': 100000}\n"
        "if hasattr(Agent, 'run'):\n"
        "    from pathlib import Path\n"
        "    from corecoder.permissions import Permissions\n"
        "    from corecoder.session import Session\n"
        "    from corecoder.tool import Workspace\n"
        "    workspace = Workspace.at(Path.cwd())\n"
        "    options |= {'workspace': workspace, 'permissions': Permissions('yolo', workspace)}\n"
        "    options |= {'session': Session.create(Path(sys.argv[2]), Path.cwd(), system='You are an agent.')}\n"
        "Agent(LLM('m', 'key', sys.argv[1]), **options).chat('go')\n"
    )
    with QuickServer(count) as server:
        environment = {"HOME": str(scratch), "PWD": str(scratch)}
        run([python, "-c", program, server.base_url, str(scratch / ".corecoder")], **environment)
    return [came - sent for sent, came in zip(server.answered, server.came[1:], strict=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--original", required=True, help="an interpreter whose environment has corecoder==0.8.0")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    rounds = options.rounds
    print(f"{'':<58} {'ours':>9} {'other':>9}      ratio")
    with tempfile.TemporaryDirectory() as scratch:
        ours, other = OneShot(sys.executable, Path(scratch)), OneShot(options.original, Path(scratch))

        def timed(*command: str) -> Measure:
            return lambda: run([sys.executable, *command])[0] * 1000

        version = timed("-m", "corecoder", "--version")
        show("corecoder --version : python -c 'import re'", ratio(version, timed("-c", "import re"), rounds), 1.3)
        first = ratio(ours.first_request, other.first_request, rounds)
        show("start to first request : original", first, 0.8)
        floor = ratio(ours.first_request, timed("-c", "import openai"), rounds)
        show("start to first request : python -c 'import openai'", floor, 1.25)
        show("peak memory of a one-shot : original", ratio(ours.memory, other.memory, 3), 1.05, "MiB")
        mine, theirs = (steps(python, options.steps, Path(scratch)) for python in (sys.executable, options.original))
        median_mine, median_theirs = statistics.median(mine) * 1000, statistics.median(theirs) * 1000
        show("own time per step : original", (median_mine, median_theirs, sum(mine) / sum(theirs)), 0.5)
        start, end = statistics.median(mine[:100]) * 1000, statistics.median(mine[-100:]) * 1000
        show("last 100 steps : first 100 steps", (end, start, end / start), 1.3)


if __name__ == "__main__":
    main()
