"""The shell under torture, and what it costs: python bench/shell.py

Latency is `true` through the whole tool against `subprocess.run(["bash", "-c", "true"])`, taken in turns in the same
run, the fastest tenth of each: Linux gives every session a scheduling group of its own, so on a busy machine the
median shows how long a new session waits for a processor, whoever starts it (the second line has it as the floor).

Torture: every case has to be over within 3 s of its limit, at once where nothing resists, with no process, no
descriptor and hardly any memory left. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from corecoder.tool import ToolContext, Workspace
from corecoder.tools.bash import BashTool

STUBBORN = "trap '' TERM; while :; do sleep 300; done"
BOMB = "b() { [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & }; sleep 300; }; b 7; wait"

# name, command, limit in seconds, how long it may take beyond that limit (0.5 = nothing resists)
CASES = [
    ("endless output", "yes", 2.0, 0.5),
    ("2 GB of output", "yes | head -c 2000000000", 20.0, 0.5),
    ("300 MB in one line", "head -c 300000000 /dev/zero | tr '\\0' x", 20.0, 0.5),
    ("50 MB of zeros", "head -c 50000000 /dev/zero", 20.0, 0.5),
    ("background child", "sleep 999 & echo hi", 5.0, 0.5),
    ("setsid, silent", "setsid sleep 999 >/dev/null 2>&1 & echo hi", 5.0, 0.5),
    ("double fork", "(setsid sh -c 'sleep 999 & exec sleep 999' &) ; sleep 300", 0.5, 0.5),
    ("ignores TERM", STUBBORN, 0.5, 3.0),
    ("ignores TERM elsewhere", f'setsid bash -c "{STUBBORN}" & sleep 300', 0.5, 3.0),
    ("stopped itself", "kill -STOP $$", 0.5, 0.5),
    ("reads stdin", "cat; read x; python3 -c 'input()'", 5.0, 0.5),
    ("reads the terminal", "cat < /dev/tty", 5.0, 0.5),
    ("bounded fork bomb", BOMB, 0.5, 3.0),
]


def memory() -> float:
    """Peak memory of this process in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1_000_000 if sys.platform == "darwin" else 1_000)


def seconds(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


class Bench:
    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace.at(folder)
        self.folder = folder
        self.missed = 0

    def spill(self, text: str) -> Path:
        path = self.folder / f"{time.monotonic_ns()}.txt"
        path.write_text(text)
        return path

    def run(self, command: str, timeout: float = 60.0) -> str:
        ctx = ToolContext(self.workspace, spill=self.spill)
        return BashTool().run({"command": command, "timeout": timeout}, ctx).content

    def report(self, name: str, value: str, good: bool) -> None:
        self.missed += not good
        print(f"{name:<30}{value:<44}{'ok' if good else 'MISSED'}", flush=True)

    def latency(self, rounds: int = 150) -> None:
        def plain(new_session: bool) -> float:
            options = {"capture_output": True, "check": False, "start_new_session": new_session}
            return seconds(lambda: subprocess.run(["bash", "-c", "true"], **options))  # type: ignore[call-overload]

        rows = [(plain(False), plain(True), seconds(lambda: self.run("true"))) for _ in range(rounds)]
        same, new, ours = (statistics.quantiles(column, n=10)[0] for column in zip(*rows, strict=True))
        self.report("true / subprocess.run", f"x {ours / same:.2f} (at most 3)", ours / same <= 3)
        self.report("the same with a new session", f"x {ours / new:.2f}", True)

    def torture(self) -> None:
        for name, command, limit, extra in CASES:
            before = memory()
            took = seconds(lambda command=command, limit=limit: self.run(command, limit))  # type: ignore[misc]
            grown = memory() - before
            left = self.workspace.processes.end()
            good = took <= limit + extra and grown < 20 and not left and not self.workspace.processes.running()
            self.report(name, f"limit {limit:4.1f} s, took {took:5.2f} s, +{grown:.1f} MB", good)

    def many(self, calls: int = 300) -> None:
        self.run("true")
        before = len(os.listdir("/dev/fd"))
        took = seconds(lambda: [self.run("cd / && cd - >/dev/null; export A=$RANDOM; ls") for _ in range(calls)])
        leaked = len(os.listdir("/dev/fd")) - before
        self.report(f"{calls} calls", f"{took:.1f} s, {leaked} descriptors leaked", leaked == 0)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.latency()
        bench.many()
        bench.torture()
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
