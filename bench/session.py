"""The session log: what an append costs as the log grows, and how long a session of 10,000 records takes to load.

    python bench/session.py [records]

The records are those of a real long task: prompts, replies with tool calls, results of 0 to 16 KB, usage; a compaction
every 400 records. The floor beside each figure is measured in the same run: writing the same bytes without an
index or a view, and parsing the same lines and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from corecoder.events import Usage
from corecoder.session import Session

LOAD_LIMIT = 0.5  # seconds, for 10,000 records
FLAT_LIMIT = 1.3  # the last tenth of the appends against the first

LINE = "    def total(self, items: list[int]) -> int:  # adds up what is there\n"


def step(number: int) -> list[dict[str, Any]]:
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "read_file", "arguments": '{"path": "a.py"}'},
    }
    result = LINE * ((number * 7919) % 240)
    return [
        {"role": "assistant", "content": f"Step {number}: I look at the next file.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"{number}\n{result}"},
    ]


def fill(session: Session, records: int) -> list[float]:
    """Appends until there are `records`; the seconds that each append took."""
    seconds: list[float] = []
    session.append({"role": "user", "content": "Make the tests pass."})
    number = written = 1
    while written < records:
        for message in step(number):
            start = time.perf_counter()
            session.append(message)
            seconds.append(time.perf_counter() - start)
        session.usage(Usage(1000 + number, 200, 900))
        written += 3
        number += 1
        if number % 130 == 0:
            summary = {"role": "user", "content": "Summary. " + LINE * 60}
            session.replace_view([summary, *session.view[-12:]], how="summary")
            written += 2
    return seconds


def timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write_only(lines: list[bytes], path: Path) -> float:
    """Seconds per line for json and one write, the floor of an append."""
    records = [json.loads(line) for line in lines[:2000]]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    start = time.perf_counter()
    for record in records:
        os.write(fd, json.dumps(record, ensure_ascii=False).encode() + b"\n")
    seconds = (time.perf_counter() - start) / len(records)
    os.close(fd)
    return seconds


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        session = Session.create(home, home, system="s" * 8000, model="m")
        seconds = fill(session, wanted)
        tenth = len(seconds) // 10
        first, last = (statistics.quantiles(part)[0] for part in (seconds[:tenth], seconds[-tenth:]))
        live = json.dumps(session.view)
        session.close()
        lines = session.path.read_bytes().split(b"\n")[:-1]
        floor = write_only(lines, home / "floor.jsonl")
        loads, parses = [], []
        for _ in range(5):
            parses.append(timed(lambda: [json.loads(line) and None for line in lines]))
            start = time.perf_counter()
            again = Session.load(session.path)
            loads.append(time.perf_counter() - start)
            assert json.dumps(again.view) == live
            again.close()
        tracemalloc.start()
        again = Session.load(session.path)
        kept = tracemalloc.get_traced_memory()[0]
        again.close()
        listed = min(timed(lambda: Session.listing(home, home)) for _ in range(5))
        size = session.path.stat().st_size
    load = statistics.median(loads)
    print(f"log: {len(lines):,} records, {size / 1e6:.1f} MB, view of {len(again.view)} messages")
    print(
        f"append: {first * 1e6:.0f} us at first, {last * 1e6:.0f} us at last: {last / first:.2f} (limit {FLAT_LIMIT})"
    )
    print(f"        floor {floor * 1e6:.0f} us (json.dumps and os.write)")
    print(f"load:   {load:.3f} s (limit {LOAD_LIMIT}), {load / statistics.median(parses):.2f} of parsing alone")
    print(f"        {kept / 1e6:.1f} MB stay in memory, the view included ({len(live) / 1e6:.2f} MB as JSON)")
    print(f"list:   {listed * 1e3:.1f} ms for this one session")
    return 0 if load <= LOAD_LIMIT * wanted / 10_000 and last / first <= FLAT_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
