"""How soon the prompt takes keys, and how soon a key shows while output streams.

    python bench/prompt.py [--original PROGRAM] [--runs 15]

- Start: from starting `corecoder` in a pseudo-terminal until its prompt is drawn, against `python -c "import
  prompt_toolkit"` and, if its program is given, against the original's prompt; medians of runs in turn. What was typed
  before that counts as well and is not measured.
- Echo: a letter is pressed every tenth of a second while a scripted server sends Markdown as fast as it can; the time
  until the letter comes back. A run beside it does the same with nothing running.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from server import StrictServer, Text  # noqa: E402 - found by the path above

BLOCK = (
    "A paragraph with **bold** words, `code` and a list:\n\n- one\n- two\n\n```python\ndef f(x):\n    return x\n```\n\n"
)


class Terminal:
    """A program in a pseudo-terminal of its own, and what it wrote."""

    def __init__(self, command: list[str], environ: dict[str, str], directory: str) -> None:
        self.begun = time.perf_counter()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe(command[0], command, environ)

    def until(self, mark: bytes, seconds: float = 30.0) -> float:
        """The seconds until `mark` was written, since the start or the last call."""
        begun, seen = self.begun, b""
        while mark not in seen:
            left = begun + seconds - time.perf_counter()
            if left <= 0 or not select.select([self.descriptor], [], [], left)[0]:
                raise TimeoutError(f"{mark!r} never came: {seen[-500:]!r}")
            seen += os.read(self.descriptor, 1 << 16)
        self.begun = time.perf_counter()
        return self.begun - begun

    def press(self, key: bytes) -> None:
        """Presses a key, from which `until` counts."""
        self.begun = time.perf_counter()
        os.write(self.descriptor, key)

    def drain(self, seconds: float) -> None:
        """Reads what comes for a while."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.descriptor], [], [], left)[0]:
                os.read(self.descriptor, 1 << 16)

    def end(self) -> None:
        """Kills it."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.descriptor)


def environment(home: str, url: str) -> dict[str, str]:
    """Settings for a server at `url`."""
    names = {"CORECODER_HOME": home, "CORECODER_BASE_URL": url, "CORECODER_API_KEY": "k", "CORECODER_MODEL": "scripted"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **names, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url, "TERM": "xterm-256color"}


def start(original: str | None, runs: int, directory: str) -> None:
    """Prints the figures for the start."""
    environ = environment(f"{directory}/home", "http://127.0.0.1:9/v1")
    took: dict[str, list[float]] = {"corecoder": [], "import prompt_toolkit": [], "original": []}
    for run in range(runs + 1):  # the first one writes the byte code
        terminal = Terminal([sys.executable, "-m", "corecoder"], environ, directory)
        rows = {"corecoder": terminal.until("›".encode())}
        terminal.end()
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import prompt_toolkit"], env=environ, check=True)
        rows["import prompt_toolkit"] = time.perf_counter() - begun
        if original:
            terminal = Terminal([original], environ, directory)
            rows["original"] = terminal.until(b"You >")
            terminal.end()
        for name, seconds in rows.items():
            took[name] += [seconds] if run else []
    middle = {name: statistics.median(rows) for name, rows in took.items() if rows}
    for name, seconds in middle.items():
        print(f"  {name:<22} {seconds * 1000:7.0f} ms")
    print(f"  ratio to the import: {middle['corecoder'] / middle['import prompt_toolkit']:.2f} (at most 1.4)")
    if original:
        print(f"  ratio to the original: {middle['corecoder'] / middle['original']:.2f} (at most 0.33)")


def echo(directory: str, keys: int) -> None:
    """Prints the figures for a pressed key."""
    with StrictServer(Text(BLOCK * 20_000, size=40)) as server:
        terminal = Terminal(
            [sys.executable, "-m", "corecoder"], environment(f"{directory}/home", server.base_url), directory
        )
        terminal.until(b"scripted \xc2\xb7")
        terminal.drain(2.0)
        for name in ("idle", "streaming"):
            if name == "streaming":
                terminal.press(b"\r")
                terminal.until(b"Esc stops")
                terminal.drain(1.0)
            rows = []
            for number in range(keys):
                letter = b"%c" % (0x41 + number % 26)
                terminal.press(letter)
                rows.append(terminal.until(letter))
                terminal.drain(0.1)
            rows.sort()
            print(
                f"  {name:<10} median {rows[len(rows) // 2] * 1000:5.1f} ms, "
                f"95 %: {rows[int(len(rows) * 0.95)] * 1000:5.1f} ms, most {rows[-1] * 1000:5.1f} ms"
            )
        terminal.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--original", help="the program of corecoder 0.8.0, in its own virtual environment")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--keys", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print("From the start to the prompt:")
        start(options.original, options.runs, directory)
        print("From a key to its letter (at most 50 ms):")
        echo(directory, options.keys)
