"""`corecoder --demo`: a look at the program without a key, a server or a network.

The model is a script; everything else is what a live run uses: the loop, the tools, the session log, the output, and
the tests of a small project in a temporary directory, which fail before and pass after. The script's last words
depend on what the tests really said. The price: it is one task, and always the same.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .app import build_agent
from .config import Config
from .messages import Message, Reply, text_of
from .print_mode import run_once
from .scripted import ScriptedLLM, call
from .terminal import Screen, Signals

TASK = "make the tests pass"
PACE = 0.12  # seconds that the scripted model takes for a few words

FILES = {
    "prices.py": '''\
"""Prices in a small shop, in cents."""


def total(prices: list[int], discount: int = 0) -> int:
    """The sum of `prices` less a discount in percent, rounded to the nearest cent."""
    return sum(prices) * (100 - discount) // 100


def split(amount: int, people: int) -> list[int]:
    """`amount` in shares that differ by a cent at most and add up to it."""
    return [amount // people] * people
''',
    "test_prices.py": """\
import unittest

from prices import split, total


class PricesTest(unittest.TestCase):
    def test_total_without_discount(self):
        self.assertEqual(total([100, 250]), 350)

    def test_total_rounds_to_the_nearest_cent(self):
        self.assertEqual(total([194], discount=10), 175)

    def test_shares_add_up(self):
        self.assertEqual(split(100, 3), [34, 33, 33])


if __name__ == "__main__":
    unittest.main()
""",
}

INTRODUCTION = """\
A demonstration: the model is a script; loop, tools and tests are real.
Nothing leaves this machine.
The project is a temporary one: {project}

$ corecoder --yes -p "{task}"
"""
GOOD = "The tests pass now. A real model runs in the same loop, with the same tools."
BAD = "The tests do not pass, which should not happen here: please report it with the output above."
AFTERWARDS = """\

{verdict}
The project, as it is now:
  {project}
The session log:
  {log}
To remove both: rm -r {directory}

With a model of yours: export OPENAI_API_KEY=... (or another provider's key),
or start a model server and add --local; then corecoder, or corecoder -p "task".
"""


def play(*, out: Screen, err: Screen, signals: Signals, pace: float | None = None) -> int:
    """Plays the task and gives the exit code: 0 if the tests pass in the end."""
    directory = Path(tempfile.mkdtemp(prefix="corecoder-demo-"))
    project = directory / "shop"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text, encoding="utf-8")
    config = Config(model="demo", mode="yolo", home=directory / "home")
    llm = ScriptedLLM(script(), delay=PACE if pace is None else pace)
    agent = build_agent(config, directory=project, interactive=False, llm=llm)
    err.write(INTRODUCTION.format(project=project, task=TASK))
    err.line()
    code = run_once(agent, TASK, out=out, err=err, signals=signals)
    verdict = GOOD if code == 0 and passed(agent.session.view) else BAD
    if signals.caught is None:
        log = agent.session.path
        err.write(AFTERWARDS.format(verdict=verdict, project=project, log=log, directory=shlex.quote(str(directory))))
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return code or (0 if verdict == GOOD else 1)


def script() -> list[Any]:
    """What the model says, reply by reply."""
    tests = call("bash", command=f"{_python()} -m unittest -q")
    total = "    return sum(prices) * (100 - discount) // 100"
    rounded = "    return round(sum(prices) * (100 - discount) / 100)"
    shares = "    return [amount // people] * people"
    exact = "    share, rest = divmod(amount, people)\n    return [share + 1] * rest + [share] * (people - rest)"
    return [
        ["I'll run the tests to see what fails.", tests],
        ["Two tests fail. I'll read the code and the tests.", _read("prices.py"), _read("test_prices.py")],
        [
            "`total` rounds down, and `split` loses the remainder.",
            call("edit_file", file_path="prices.py", old_string=total, new_string=rounded),
            call("edit_file", file_path="prices.py", old_string=shares, new_string=exact),
        ],
        ["Now the tests again.", tests],
        _last_words,
    ]


def _read(name: str) -> Any:
    return call("read_file", file_path=name)


def _last_words(messages: list[Message], _tools: Any) -> str | Reply:
    if not passed(messages):
        return "The tests still fail; I could not make them pass."
    return (
        "All three tests pass now. Two mistakes in prices.py:\n\n"
        "- `total` cut fractions of a cent off; it rounds to the nearest cent now.\n"
        "- `split` dropped what did not divide evenly; the first shares take a cent more."
    )


def passed(messages: Sequence[Message]) -> bool:
    """Whether the last test run in `messages` went through."""
    runs = [text for message in messages if "Ran 3 tests" in (text := text_of(message)) and message["role"] == "tool"]
    return bool(runs) and "FAILED" not in runs[-1]


def _python() -> str:
    """The interpreter's short name where there is one, since the command is shown."""
    return "python3" if shutil.which("python3") and sys.platform != "win32" else shlex.quote(sys.executable)
