"""How fast text reaches the terminal, and in how much memory.

    python bench/terminal.py [--megabytes 1] [--runs 3]

- Markdown: streamed in 40-byte deltas through the renderer, with a place for what is under way, against the same text
  through `rich` at once, plain (`Console.print(text, markup=False, highlight=False)`) and as `rich.markdown.Markdown`.
  All draw in colour at 80 columns. The figures are the best times of several runs in turn, each in a process of its
  own, by how many MB its peak memory grew (Linux), and how much was redrawn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BLOCK = """\
## Section {n}: what changed

The function `parse_{n}` now returns **early** when the input is *empty*, which saves a pass over the list. See
[the documentation](https://example.com/docs/{n}) for the details; nothing else in the module had to change, and the
tests that cover it still pass. 中文文字也要正确换行，因为每个字占两列，而且没有空格可以断开。 An emoji 🎉 too.

- first point with `code` in it
- second point, which is a good deal longer than one line of the terminal so that it has to be wrapped once
  - nested point
  - another nested point
- third point

```python
def parse_{n}(text: str, limit: int = {n}) -> list[str]:
    \"\"\"Splits text.\"\"\"
    out = []
    for at, line in enumerate(text.splitlines()):
        if at >= limit:  # enough
            break
        out.append(line.strip())
    return out
```

1. Run the tests
2. Look at the output

> A quote that says something of weight.

| name | lines | share |
|---|---:|---|
| alpha | {n} | 12 % |
| beta | 7 | a longer cell |

"""

# Prints seconds, by how many KB the peak memory grew, and, for ours, the characters redrawn in all and at most at once.
CHILD = """
import io, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/bench"]
from terminal import BLOCK

class Terminal(io.StringIO):
    size = 0
    def isatty(self):
        return True
    def write(self, text):
        self.size += len(text)
        return len(text)

class Below:
    drawn, most = 0, 0
    def show(self, text):
        self.drawn += len(text)
        self.most = max(self.most, len(text))

def peak():
    try:
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    except OSError:
        return 0

how, size = sys.argv[2], int(float(sys.argv[3]) * 1_000_000)
count = size // len(BLOCK) + 1
text = "".join(BLOCK.replace("{n}", str(n)) for n in range(count))[:size]
out, below = Terminal(), Below()
if how == "ours":
    from corecoder.events import MessageCompleted, TextDelta
    from corecoder.render import Renderer
    from corecoder.terminal import Screen
    renderer = Renderer(Screen(out, {"TERM": "xterm"}), streaming=True, live=below)
    def run(text):
        for at in range(0, len(text), 40):
            renderer.show(TextDelta(text[at : at + 40]))
        renderer.show(MessageCompleted(text, 0))
else:
    from rich.console import Console
    from rich.markdown import Markdown
    console = Console(file=out, force_terminal=True, width=80, color_system="standard", legacy_windows=False)
    def run(text):
        if how == "plain":
            console.print(text, markup=False, highlight=False)
        else:
            console.print(Markdown(text))
run(BLOCK)
before = peak()
begun = time.perf_counter()
run(text)
took = time.perf_counter() - begun
assert out.size > len(text) * 0.8
print(took, peak() - before, below.drawn, below.most)
"""


def child(how: str, megabytes: float) -> list[float]:
    """The figures of one run in a process of its own."""
    command = [sys.executable, "-c", CHILD, str(ROOT), how, str(megabytes)]
    environ = {**os.environ, "COLUMNS": "80", "LINES": "24"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    return [float(word) for word in done.stdout.split()]


def markdown(megabytes: float, runs: int) -> None:
    """Prints the figures for Markdown."""
    took: dict[str, list[list[float]]] = {"ours": [], "plain": [], "markdown": []}
    for _ in range(runs):
        for how, rows in took.items():
            rows.append(child(how, megabytes))
    best = {how: min(row[0] for row in rows) for how, rows in took.items()}
    memory = {how: max(row[1] for row in rows) / 1024 for how, rows in took.items()}
    names = {"ours": "streamed by us", "plain": "rich, plain", "markdown": "rich, Markdown"}
    print(f"{megabytes:g} MB of Markdown, best of {runs}:")
    for how, name in names.items():
        print(f"  {name:<16} {best[how]:6.2f} s   peak +{memory[how]:.1f} MB")
    print(f"  ratio to rich, plain: {best['ours'] / best['plain']:.2f} (at most 1.5)")
    print(f"  ratio to rich, Markdown: {best['ours'] / best['markdown']:.2f}")
    _, _, drawn, most = took["ours"][-1]
    print(f"  redrawn below: {drawn / 1e6:.1f} MB in all, at most {most:.0f} characters at once")
    four = child("ours", 4 * megabytes)
    print(f"  four times as much: {four[0]:.2f} s, peak +{four[1] / 1024:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    markdown(options.megabytes, options.runs)
