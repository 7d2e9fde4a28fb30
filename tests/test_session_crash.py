"""kill -9 of a real process while it writes its session: all that it had reported is there, and nothing is mixed up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corecoder.messages import repair, unpaired
from corecoder.session import Session

# Says "<number of messages> <view as JSON>" after every step, so that the parent knows what must have survived.
WRITER = """
import json, sys
from pathlib import Path
from corecoder.session import Session

session = Session.latest(Path(sys.argv[1]), Path.cwd())
session = Session.load(session) if session else Session.create(Path(sys.argv[1]), Path.cwd(), system="s")
number = sum(1 for _ in session.messages())
while True:
    number += 1
    size = (number * 7919) % 60_000
    call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    session.append({"role": "user", "content": f"{number}"})
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " + "\u2028" * size})
    if number % 5 == 0:
        session.replace_view([{"role": "user", "content": f"S{number}"}, *session.view[-3:]], how="summary")
    if number % 15 == 0:
        session.undo()
    print(json.dumps([number, [str(message["content"])[:9] for message in session.view]]), flush=True)
"""


def killed_after(home: Path, steps: int, extra_bytes: int) -> list[Any]:
    """Runs the writer, kills it `extra_bytes` after its report of step `steps`, returns the last whole report."""
    command = [sys.executable, "-c", WRITER, str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        report: list[Any] = []
        for _ in range(steps):
            report = json.loads(process.stdout.readline())
        more = process.stdout.read(extra_bytes)
        process.kill()
        rest = more + process.stdout.read()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    for line in rest.split(b"\n")[:-1]:
        report = json.loads(line.decode()) if line.startswith(b"[") else report
    return report


@pytest.mark.parametrize("extra_bytes", range(0, 300, 50))
def test_what_was_logged_before_kill_9_is_there_and_the_next_request_is_valid(
    home: Path, project: Path, extra_bytes: int
) -> None:
    number, view = killed_after(home, 12, extra_bytes)
    path = Session.latest(home, project)
    assert path is not None
    session = Session.load(path)
    every = [message for _, message in session.messages()]
    assert len(every) >= 3 * number
    for at, message in enumerate(every):
        step, kind = at // 3 + 1, at % 3
        assert message["role"] == ("user", "assistant", "tool")[kind]
        if kind == 2:
            assert message["content"] == f"{step} " + "\u2028" * ((step * 7919) % 60_000)
    shown = [str(message["content"])[:9] for message in session.view]
    if len(every) == 3 * number:
        assert shown == view
    assert unpaired(repair(session.view)) == []
    session.close()


def test_a_session_killed_again_and_again_goes_on_each_time(home: Path, project: Path) -> None:
    reached = 0
    for extra_bytes in (0, 40, 150, 7):
        number, _ = killed_after(home, 3, extra_bytes)
        assert number >= reached + 3
        reached = number
    path = Session.latest(home, project)
    assert path is not None
    assert [each.path for each in Session.listing(home, project)] == [path]
    session = Session.load(path)
    users = [message["content"] for _, message in session.messages() if message["role"] == "user"]
    assert users[:3] == ["1", "2", "3"]
    assert int(users[-1]) >= reached
    session.close()
