"""What a sandbox stops and what it costs: python bench/sandbox.py

Escapes: the attempts of `tests/escapes.py` against each backend that works here. Cost: `bash -c true` through each,
guarded as the shell tool does it, in a project with a git directory, in turns with the plain one; the difference of
the fastest tenths, as a busy machine hides the medians. Exit code 1 if a bound is missed: no attempt gets through
that the backend claims to stop; 10 ms for Landlock, 25 ms for bubblewrap.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from escapes import ATTEMPTS, METADATA, run_all  # noqa: E402

from corecoder.errors import ConfigError  # noqa: E402
from corecoder.sandbox import BACKENDS, Sandbox, choose, policy_for  # noqa: E402

BOUNDS = {"landlock": 10.0, "bubblewrap": 25.0}
ROUNDS = 100


def milliseconds(start: Callable[..., Any], around: Any, cwd: Path) -> float:
    before = time.perf_counter()
    with around:
        start(["bash", "-c", "true"], cwd=cwd, stdin=subprocess.DEVNULL, start_new_session=True).wait()
    return (time.perf_counter() - before) * 1000


def fastest_tenth(times: list[float]) -> float:
    chosen = sorted(times)[: len(times) // 10]
    return sum(chosen) / len(chosen)


def main() -> int:
    missed = 0
    with tempfile.TemporaryDirectory(prefix="corecoder-bench-") as name:
        place = Path(name).resolve()
        project = place / "project"
        project.mkdir()
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        policy = policy_for(project, Path.home() / ".corecoder")
        working: dict[str, Sandbox] = {}
        for backend in BACKENDS:
            try:
                chosen, _ = choose(policy, backend)
            except ConfigError as error:
                print(f"{backend}: {error}")
                continue
            assert chosen
            working[backend] = chosen
            got = {title: achieved for title, achieved in run_all(place / "field", backend).items() if achieved}
            claimed = {title for title in got if backend != "landlock" or title.split(": ")[1] not in METADATA}
            missed += len(claimed)
            print(f"{backend}: {len(ATTEMPTS)} attempts, {len(got)} got through {sorted(got) or ''}")
        times: dict[str, list[float]] = {backend: [] for backend in ("plain", *working)}
        for _ in range(ROUNDS):
            times["plain"].append(milliseconds(subprocess.Popen, nullcontext(), project))
            for backend, sandbox in working.items():
                times[backend].append(milliseconds(sandbox.start, sandbox.git.guard(), project))
        plain = fastest_tenth(times["plain"])
        print(f"plain: {plain:.1f} ms")
        for backend in working:
            more = fastest_tenth(times[backend]) - plain
            missed += more > BOUNDS[backend]
            print(f"{backend}: {more:.1f} ms more (bound {BOUNDS[backend]:.0f})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
