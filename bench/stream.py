"""How fast and how safely a streamed reply is read.

    python bench/stream.py [--against PYTHON] [--fuzz 10000] [--megabytes 5]

- Throughput: one reply in 40-byte deltas through the SDK and a socket, against `corecoder==0.8.0` where PYTHON can
  import it, both in turn, several times; the figure is the ratio of the best times. Peak memory beside it.
- Fuzz: random streams end in a reply or one of our errors, and every history can be sent.
- Cuts: a reply with two calls, cut at 200 positions, is told from the whole one.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzz import random_stream  # noqa: E402
from server import DONE, EOF, D, Events, F, StrictServer, T, broken_rules, fn, usage  # noqa: E402

from corecoder.errors import ProviderError, StreamBroken  # noqa: E402
from corecoder.llm import LLM, LLMSettings  # noqa: E402
from corecoder.messages import repair, unpaired  # noqa: E402

HI = [{"role": "user", "content": "hi"}]
ONCE = LLMSettings(retries=0, unreachable_retries=0, empty_retries=0, retry_wait_limit=0)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("bash", "read_file", "write_file")
]

# Runs in either interpreter: prints seconds from the request to the whole reply, and by how many KB the peak memory
# grew (Linux).
CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
def peak():  # not ru_maxrss, which a child inherits from its parent
    try:
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    except OSError:
        return 0
from corecoder.llm import LLM
llm = LLM("m", "key", sys.argv[1])
llm.chat([{"role": "user", "content": "hi"}])
before = peak()
seen = 0
def count(text):
    global seen
    seen += 1
begun = time.perf_counter()
reply = llm.chat([{"role": "user", "content": "hi"}], on_token=count)
took = time.perf_counter() - begun
print(took, peak() - before, len(reply.content), seen)
"""


def consume(python: str, url: str, path: str) -> tuple[float, int]:
    answer = subprocess.run([python, "-c", CHILD, url, path], capture_output=True, text=True, check=True, cwd="/")
    took, memory, size, _ = answer.stdout.split()
    assert int(size) > 1_000_000, answer.stdout
    return float(took), int(memory)


def throughput(megabytes: int, against: str | None, rounds: int) -> None:
    delta = "x" * 40
    lines = [f"data: {json.dumps(event)}\n\n".encode() for event in [D(delta)] * (megabytes * 1_000_000 // 40)]
    lines += [f"data: {json.dumps(F('stop'))}\n\ndata: [DONE]\n\n".encode()]
    sendings: dict[str, list[Any]] = {
        "each event on its own": list(lines),
        "16 KB at a time": [b"".join(lines[at : at + 80]) for at in range(0, len(lines), 80)],
    }
    for name, pieces in sendings.items():
        big = Events(pieces)
        steps: list[Any] = ["hi", big] * (2 * rounds)
        with StrictServer(*steps, forever="hi") as server:
            ours: list[tuple[float, int]] = []
            theirs: list[tuple[float, int]] = []
            for _ in range(rounds):
                ours.append(consume(sys.executable, server.base_url, str(ROOT)))
                if against:
                    theirs.append(consume(against, server.base_url, ""))
        best = min(ours)
        print(f"{megabytes} MB in 40-byte deltas, {name}: {best[0]:.2f} s, {best[1] / 1024:.0f} MB more memory")
        if theirs:
            other = min(theirs)
            print(f"  corecoder 0.8.0: {other[0]:.2f} s, {other[1] / 1024:.0f} MB; ratio {other[0] / best[0]:.2f}")


def fuzz(count: int) -> None:
    chance = random.Random(count)
    kinds: dict[str, int] = {}
    begun = time.monotonic()
    with StrictServer(forever=lambda _body: random_stream(chance), strict=False) as server:
        llm = LLM("m", "key", server.base_url, settings=ONCE)
        for _ in range(count):
            try:
                reply = llm.chat(HI, TOOLS)
            except ProviderError as error:
                kinds[type(error).__name__] = kinds.get(type(error).__name__, 0) + 1
                continue
            kinds["Reply"] = kinds.get("Reply", 0) + 1
            results = [{"role": "tool", "tool_call_id": made.id, "content": "ok"} for made in reply.tool_calls]
            history = repair([*HI, reply.message, *results])
            assert unpaired(history) == []
            assert list(broken_rules({"messages": history})) == []
            server.requests.clear()
            server.raw.clear()
        llm.close()
    print(f"{count} random streams in {time.monotonic() - begun:.1f} s: {dict(sorted(kinds.items()))}")


def cuts(count: int) -> None:
    events = [D("Let me look."), T(fn("bash", '{"comm', id="a")), T(fn(None, 'and":"ls"}'))]
    events += [T(fn("read_file", '{"file_path":', index=1, id="b")), T(fn(None, '"a"}', index=1))]
    lines = [f"data: {json.dumps(event)}" for event in [*events, F("tool_calls"), usage(9, 9)]]
    data = ("\n\n".join([*lines, DONE]) + "\n\n").encode()
    whole_from = data.index(b"\n", data.index(b'"finish_reason": "tool_calls"'))
    positions = [round(n * len(data) / (count - 1)) for n in range(count)]
    with StrictServer(*[Events([data[:cut], EOF]) for cut in positions]) as server:
        llm = LLM("m", "key", server.base_url, settings=ONCE)
        for cut in positions:
            try:
                reply = llm.chat(HI, TOOLS)
            except StreamBroken:
                assert cut < whole_from, cut
            else:
                assert cut >= whole_from - 1, cut
                assert [made.arguments for made in reply.tool_calls] == [{"command": "ls"}, {"file_path": "a"}]
        llm.close()
    print(f"{count} cut positions: {sum(cut < whole_from for cut in positions)} broken, the rest whole")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--against", help="an interpreter that has corecoder==0.8.0")
    options.add_argument("--fuzz", type=int, default=10_000)
    options.add_argument("--megabytes", type=int, default=5)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    cuts(200)
    fuzz(chosen.fuzz)
    throughput(chosen.megabytes, chosen.against, chosen.rounds)


if __name__ == "__main__":
    main()
