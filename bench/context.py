"""The context over a long task: what it costs, what it keeps, whether everything fits; corecoder 0.8.0 beside it.

    python bench/context.py [--original PYTHON] [--windows 16,32,128] [--packages] [--show FILE]

A scripted model reads 120 files of the standard library in four turns, edits some, runs commands that fail, decides
things and meets dead ends. Facts are planted on the way; after every summary or collapse it is counted how many of
those planted so far are still in view. The server refuses what does not fit. It counts with the o200k_base
vocabulary where that is at hand, else by estimate.

    whole     files of up to 400 lines that the next request held in full
    told      of those that were not whole: how many said so and how to read on
    cost      tokens paid, a cached one at a tenth, against the floor: every new token once, the frozen prefix at a
              tenth in each request. Also for 0.8.0, which hides part of it, the floor is that of the work done here.
    breaks    requests that were no continuation of the one before although no tier had run
    recalled  messages and facts that recall gives back word for word

`--original` is a Python in whose environment corecoder==0.8.0 is installed. `--packages` takes the files from the
whole library, packages included, instead of its top level: they are smaller, so that a step brings less that is new
and the conversation that goes with it weighs more. `--show` writes the view before and after each tier of one run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corecoder.agent import Agent
from corecoder.context import ContextManager
from corecoder.errors import ContextOverflow, ServerFailed
from corecoder.events import Compacted, TurnFinished, Usage
from corecoder.memory import OURS
from corecoder.messages import Message, Reply, ToolCall, text_of
from corecoder.models import ModelInfo
from corecoder.permissions import Permissions
from corecoder.prompt import system_prompt
from corecoder.session import Session
from corecoder.tokens import Count, estimate_text, load_ranks, message_tokens, schema_tokens
from corecoder.tool import Workspace
from corecoder.tools import ALL_TOOLS

STEPS = 120
TURNS = 4
EXTRA_TURNS = 10  # after the task, with a forced compaction each, until there were five
COMPACTIONS = (1, 3, 5)
CACHED = 0.1
LONGEST = 400  # lines of a file that must be shown whole
CODE_KINDS = ("path", "command", "failure", "test", "user")


# -- the task


@dataclass(frozen=True)
class Fact:
    """Something planted at `step`; it is in view if all of `keys` are."""

    step: int
    kind: str
    sentence: str
    keys: tuple[str, ...]


WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet"),
    *("joker", "karst", "lotus", "maple", "north", "ocean", "pearl", "quart", "ridge"),
)


def facts() -> list[Fact]:
    """All that the task plants, spread over its steps."""
    planted: list[Fact] = []
    for at, word in enumerate(WORDS):
        step = 3 + at * (STEPS - 6) // len(WORDS)
        reason = f"Decision: the {word} table stays in memory, because its file changes under the reader ({word}-{at})."
        planted.append(Fact(step, "decision", reason, (f"{word}-{at}",)))
        dead = f"Dead end: locking the {word} file did not help, the writer ignores locks (dead-{word}-{at})."
        if at % 2:
            planted.append(Fact(step, "decision", dead, (f"dead-{word}-{at}",)))
        if at % 3 == 0:
            planted.append(Fact(step, "path", f"src/{word}_store.py", (f"{word}_store.py",)))
        if at % 3 == 1:
            command = f"python3 tools/check.py --table {word}"
            planted.append(Fact(step, "command", command, (command, "exit 3", f"E{at:03}: {word} table is missing")))
        if at % 6 == 2:
            test = f"tests/test_{word}.py::test_{word}_survives"
            planted.append(Fact(step, "test", test, (test,)))
    said = (
        "Never touch anything under vendor/, it is generated (user-vendor).",
        "Keep Python 3.8 working: no match statements (user-38).",
        "Ask before adding a dependency (user-dep).",
        "Log lines must stay in English (user-log).",
    )
    starts = [turn * STEPS // TURNS for turn in range(TURNS)]
    planted += [Fact(start, "user", text, (text,)) for start, text in zip(starts, said, strict=True)]
    return planted


FACTS = facts()


def sources(into: Path, *, packages: bool = False) -> list[str]:
    """Copies STEPS source files of all sizes into `into` and gives their paths in it."""
    library = Path(sysconfig.get_paths()["stdlib"])
    names = []
    for path in sorted(library.rglob("*.py") if packages else library.glob("*.py")):
        relative = path.relative_to(library)
        if {"test", "tests", "site-packages", "__pycache__"} & set(relative.parts):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if text.count("\n") >= 40:
            names.append((relative, text))
    step = len(names) / STEPS
    chosen = [names[int(at * step)] for at in range(STEPS)]
    for relative, text in chosen:
        target = into / "lib" / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (into / "src").mkdir()
    (into / "tools").mkdir()
    (into / "tests").mkdir()
    for fact in FACTS:
        if fact.kind == "path":
            (into / fact.sentence).write_text("size = 1\n", encoding="utf-8")
    table = {fact.keys[0].split()[-1]: fact.keys[2] for fact in FACTS if fact.kind == "command"}
    check = f"import sys\nprint('checking')\nprint({table!r}[sys.argv[2]])\nsys.exit(3)\n"
    (into / "tools" / "check.py").write_text(check, encoding="utf-8")
    return [str(Path("lib") / relative) for relative, _ in chosen]


def prompts() -> list[str]:
    return [f"Part {fact.step}: go through the next files. {fact.sentence}" for fact in FACTS if fact.kind == "user"]


# -- the server: the scripted model, its window, and what it sees


@dataclass
class Seen:
    """One request as the server got it; `tiers` had run before it."""

    ids: list[int]
    tokens: int
    summary: bool
    tiers: int


@dataclass
class Server:
    """Answers the requests of one run and keeps count."""

    window: int
    summarizer: str
    paths: list[str]
    project: Path
    count: Count
    show: list[str] | None = None
    step: int = 0
    turn_end: int = 0
    task_end: int = 0
    refused: int = 0
    summaries: list[int] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    told: list[bool] = field(default_factory=list)
    kept: list[dict[str, float]] = field(default_factory=list)
    hows: list[str] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    prefix: int = 0
    just_read: str = ""
    recalled: float = 0.0

    def answer(self, messages: list[Message], tools: list[dict[str, Any]]) -> dict[str, Any]:
        """The reply, as content, calls and prompt tokens, or `refused` with the reason."""
        ids = [self._intern(message) for message in messages]
        frozen = schema_tokens(tools, self.count)
        tokens = frozen + sum(self.sizes[each] for each in ids)
        summary = _asks_for_summary(messages)
        if not summary:
            self.prefix = frozen + self.sizes[ids[0]]
        if tokens > self.window:
            self.refused += 1
            return {"refused": f"maximum context length is {self.window} tokens, you sent {tokens}"}
        self.seen.append(Seen([-frozen, *ids], tokens, summary, len(self.hows)))
        if summary:
            self.summaries.append(self.step)
            return self._summary(messages, tokens)
        if self.just_read:
            self._check_read(messages)
        return {"refused": "", "prompt": tokens, **self._next_step()}

    def compacted(self, how: str, view: list[Message]) -> None:
        """Counts what of the facts planted so far is in view after a compaction."""
        self.hows.append(how)
        if how == "snip":
            return
        text = "\n".join(json.dumps(message, ensure_ascii=False) for message in view)
        text = text.replace("\\n", "\n").replace('\\"', '"')
        kept: dict[str, list[bool]] = {}
        for fact in FACTS:
            if fact.step < self.step:
                found = all(key in text for key in fact.keys)
                kept.setdefault("all", []).append(found)
                kept.setdefault("code" if fact.kind in CODE_KINDS else "prose", []).append(found)
        self.kept.append({kind: statistics.mean(found) for kind, found in kept.items()})

    def _next_step(self) -> dict[str, Any]:
        if self.step >= self.turn_end:
            self.just_read = ""
            return {"content": f"Read up to step {self.step}.", "calls": []}
        path = self.paths[self.step % len(self.paths)]
        self.just_read = path
        calls = [("read_file", {"file_path": path})]
        said = [f"Step {self.step}: I look at {path} next."]
        for fact in FACTS if self.step < STEPS else ():
            if fact.step != self.step:
                continue
            if fact.kind == "decision":
                said.append(fact.sentence)
            elif fact.kind == "path":
                edit = {"file_path": fact.sentence, "old_string": "size = 1", "new_string": "size = 2"}
                calls += [("read_file", {"file_path": fact.sentence}), ("edit_file", edit)]
            elif fact.kind == "command":
                calls.append(("bash", {"command": fact.sentence}))
            elif fact.kind == "test":
                failing = f"echo '{fact.sentence}' | sed 's/^/FAILED /'; echo '1 failed, 3 passed in 0.1s'; exit 1"
                calls.append(("bash", {"command": f"({failing})"}))
        self.step += 1
        made = [
            {"id": f"call_{self.step}_{at}", "name": name, "arguments": json.dumps(arguments)}
            for at, (name, arguments) in enumerate(calls)
        ]
        return {"content": "\n".join(said), "calls": made}

    def _check_read(self, messages: list[Message]) -> None:
        """Whether the file that was read in the last step is whole in this request, or else says how to read on."""
        lines = (self.project / self.just_read).read_text(encoding="utf-8").split("\n")
        if len(lines) > LONGEST:
            return
        wanted = f"call_{self.step}_0"
        shown = next((text_of(message) for message in messages if message.get("tool_call_id") == wanted), "")
        whole = all(line in shown for line in lines)
        self.whole.append(whole)
        if not whole:
            self.told.append("recall(" in shown)

    def _summary(self, messages: list[Message], tokens: int) -> dict[str, Any]:
        if self.summarizer == "fails":
            return {"refused": "fails"}
        text = "\n".join(map(text_of, messages))
        if self.summarizer == "garbage":
            content = "The assistant and the user had a productive conversation about a number of topics. " * 6
        else:
            ours = OURS in text
            found = [fact for fact in FACTS if fact.keys[0] in text and (not ours or fact.kind == "decision")]
            decided = [fact.sentence for fact in found if fact.sentence.startswith("Decision")]
            dead = [fact.sentence for fact in found if fact.sentence.startswith("Dead")]
            rest = [fact.sentence for fact in found if fact.kind != "decision"]
            content = "## Goal\nGo through all files.\n## Decisions\n" + "\n".join(decided)
            content += "\n## Dead ends\n" + "\n".join(dead + rest) + "\n## Next step\nRead the next file."
        return {"refused": "", "content": content, "calls": [], "prompt": tokens}

    def _intern(self, message: Message) -> int:
        key = json.dumps(message, ensure_ascii=False, sort_keys=True)
        each = self.ids.setdefault(key, len(self.ids))
        if each not in self.sizes:
            self.sizes[each] = message_tokens(message, self.count)
        return each


def _asks_for_summary(messages: list[Message]) -> bool:
    return "is about to be compacted" in text_of(messages[-1])[:200] or "Compress this conversation" in text_of(
        messages[0]
    )


# -- what is run


class Scripted:
    """The surface of `LLM` before the server above."""

    model = "bench"
    base_url = None

    def __init__(self, server: Server) -> None:
        self.server = server
        self.info = ModelInfo(window=server.window)
        self.total = Usage()

    def chat(self, messages: list[Message], tools: Any = None, *_: Any, **__: Any) -> Reply:
        reply = self.server.answer(list(messages), list(tools or []))
        if reply["refused"]:
            raise (ServerFailed if reply["refused"] == "fails" else ContextOverflow)(reply["refused"])
        calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in reply["calls"])
        message: Message = {"role": "assistant", "content": reply["content"]}
        if calls:
            message["tool_calls"] = [
                {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.raw}}
                for each in calls
            ]
        usage = Usage(prompt=reply["prompt"], completion=50)
        self.total += usage
        return Reply(message, finish_reason="stop", usage=usage, tool_calls=calls)

    def close(self) -> None:
        pass


def turns(server: Server) -> Iterator[tuple[str, bool]]:
    """(prompt, whether to compact by force first) for the whole run."""
    for number, prompt in enumerate(prompts(), 1):
        server.turn_end = number * STEPS // TURNS
        yield prompt, False
    server.task_end = len(server.seen)
    for number in range(EXTRA_TURNS):
        if len(server.kept) >= max(COMPACTIONS):
            return
        server.turn_end = server.step + 3
        yield f"Once more, round {number}.", True


def run_ours(server: Server, home: Path) -> bool:
    """The whole run on this version; whether the task was finished."""
    workspace = Workspace.at(server.project)
    system = system_prompt(workspace, ALL_TOOLS)
    session = Session.create(home, server.project, system=system)
    llm: Any = Scripted(server)
    schemas = [tool.schema() for tool in ALL_TOOLS]
    context = ContextManager(server.window, system={"role": "system", "content": system}, tools=schemas)
    agent = Agent(
        llm, session=session, workspace=workspace, context=context, permissions=Permissions("yolo", workspace)
    )
    logged: dict[int, Message] = {}
    observe = context.observe

    def observed(message: Message, record: int | None) -> None:
        assert record is not None
        logged[record] = json.loads(json.dumps(message))
        observe(message, record)

    context.observe = observed  # type: ignore[method-assign]
    replace_view = session.replace_view

    def replaced(view: list[Message], *, how: str, **facts: Any) -> None:
        before = session.view
        replace_view(view, how=how, **facts)
        if server.show is not None:
            server.show += [f"##### {how}: {facts['before']} -> {facts['after']} tokens\n", "=== before\n"]
            server.show += [_written(before), "=== after\n", _written(session.view)]

    session.replace_view = replaced  # type: ignore[method-assign]
    finished = True
    for prompt, compact in turns(server):
        events: list[Any] = [agent.compact()] if compact else []
        for event in itertools.chain(*events):
            if isinstance(event, Compacted):
                server.compacted(event.how, session.view)
        for event in agent.run(prompt):
            if isinstance(event, Compacted):
                server.compacted(event.how, session.view)
            elif isinstance(event, TurnFinished) and event.stop_reason != "end_turn":
                print(f"  turn ended: {event.stop_reason}: {event.error}", file=sys.stderr)
                finished = False
    texts = {record: context.recall(record) for record in logged}
    same = [session.message(record) == message for record, message in logged.items()]
    found = [any(fact.keys[0] in text for text in texts.values()) for fact in FACTS]
    server.recalled = statistics.mean(same + found)
    agent.close()
    return finished


def _written(view: list[Message]) -> str:
    parts = []
    for message in view:
        text = text_of(message)
        text = text if len(text) < 6000 and message["role"] != "tool" else f"{text[:300]}\n  ({len(text):,} characters)"
        calls = "".join(
            f"\n  -> {call['function']['name']}({call['function']['arguments'][:200]})"
            for call in message.get("tool_calls") or []
        )
        parts.append(f"[{message['role']}] {text}{calls}\n")
    return "".join(parts)


def run_original(server: Server, python: str) -> bool:
    """The same run on corecoder 0.8.0."""
    script = Path(__file__).with_name("context_original.py")
    command = [python, str(script), str(server.window)]
    finished = True
    plan = turns(server)
    with subprocess.Popen(
        command, cwd=server.project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin
        assert child.stdout
        for line in child.stdout:
            said = json.loads(line)
            reply: dict[str, Any] = {}
            if said["kind"] == "request":
                reply = server.answer(said["messages"], said["tools"])
            elif said["kind"] == "compacted":
                server.compacted(said["how"], said["messages"])
            elif said["kind"] == "failed":
                finished = False
            elif said["kind"] == "next":
                prompt, compact = next(plan, (None, False))
                reply = {"prompt": prompt, "compact": compact}
            child.stdin.write(json.dumps(reply) + "\n")
            child.stdin.flush()
    return finished and server.step >= STEPS


# -- the figures


def cost(server: Server, requests: list[Seen]) -> tuple[float, float]:
    """Tokens paid, a cached one at a tenth, and the floor: every new token once, the frozen prefix at a tenth each
    time. A prefix is cached if one of the last three requests began with it."""
    paid = floor = 0.0
    known = _of_tiers(server)
    for at, request in enumerate(requests):
        cached = max(
            (_common(server, request.ids, earlier.ids) for earlier in requests[max(0, at - 3) : at]), default=0
        )
        paid += request.tokens - cached + CACHED * cached
        if request.summary:
            continue
        floor += CACHED * server.prefix if at else server.prefix
        floor += sum(server.sizes[each] for each in set(request.ids[2:]) - known)
        known |= set(request.ids[2:])
    return paid, floor


def _of_tiers(server: Server) -> set[int]:
    """The messages that are a tier's and not of the task, found by their words, for both versions."""
    marks = (OURS, ", snipped; ", "[Context compressed", "[Hard context reset]", "Context restored.", "Got it, I have")
    marks += ("lines, snipped to save context", "I have the notes and go on")
    return {
        each for key, each in server.ids.items() if any(mark in key[:1200] or mark in key[-1200:] for mark in marks)
    }


def breaks(server: Server) -> int:
    """Requests of the task that do not begin with the one before, although no tier ran in between."""
    task = [request for request in server.seen[: server.task_end] if not request.summary]
    pairs = itertools.pairwise(task)
    return sum(one.tiers == two.tiers and two.ids[: len(one.ids)] != one.ids for one, two in pairs)


def _common(server: Server, one: list[int], other: list[int]) -> int:
    total = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        total += server.sizes[mine] if mine >= 0 else -mine
    return total


COLUMNS = "           window summary  finished refused largest whole told summaries breaks recalled  cost   "


def report(name: str, server: Server, finished: bool, floor: float) -> float:
    """Prints one line; `floor` is that of the same work, 0 for its own. Returns the floor."""
    paid, own = cost(server, server.seen[: server.task_end or len(server.seen)])
    floor, ours = floor or own, name == "corecoder"
    largest = max(request.tokens for request in server.seen) / server.window
    kept = "  ".join(
        f"{number}: {server.kept[number - 1]['all']:4.0%}/{server.kept[number - 1].get('code', 0):4.0%}"
        for number in COMPACTIONS
        if len(server.kept) >= number
    )
    print(
        f"{name:<10} {server.window // 1000:>5}k {server.summarizer:<8} {'yes' if finished else 'NO':<8} "
        f"{server.refused:>7} {largest:>7.2f} {statistics.mean(server.whole):>5.0%} "
        f"{statistics.mean(server.told) if server.told else 1:>4.0%} "
        f"{sum(step < STEPS for step in server.summaries):>9} {breaks(server) if ours else '-':>6} "
        f"{f'{server.recalled:.0%}' if ours else '-':>8} {paid / floor:>5.2f}   {kept}",
        flush=True,
    )
    return floor


def timings() -> None:
    """The tiers' own time."""
    context = ContextManager(1_000_000)
    view: list[Message] = [{"role": "user", "content": "begin"}]
    for at in range(500):
        function = {"name": "read_file", "arguments": json.dumps({"file_path": f"lib/m{at}.py"})}
        call = {"id": f"c{at}", "type": "function", "function": function}
        view += [{"role": "assistant", "content": "next", "tool_calls": [call]}]
        view += [{"role": "tool", "tool_call_id": f"c{at}", "content": f"line {at}\n" * 100}]
    context.fill(view)
    start = time.perf_counter()
    for _ in range(100):
        context.due(view)
    print(f"a step with nothing to do, {len(view):,} messages: {(time.perf_counter() - start) * 10:.2f} ms (limit 5)")
    context = ContextManager(1_600_000)
    view = view[:1]
    text = "".join(f"{at:>6}\tdef function_{at}(value): return value + {at}\n" for at in range(150))
    at = 0
    while context.fill(view) < 1_000_000:
        at += 1
        function = {"name": "read_file", "arguments": json.dumps({"file_path": f"lib/m{at}.py"})}
        view += [
            {
                "role": "assistant",
                "content": "next",
                "tool_calls": [{"id": f"c{at}", "type": "function", "function": function}],
            }
        ]
        view += [{"role": "tool", "tool_call_id": f"c{at}", "content": f"{at}\n{text}"}]
    context.meter.fill(view)
    start = time.perf_counter()
    context.maybe_compress(view)
    took = (time.perf_counter() - start) * 1000
    assert context.last
    print(
        f"a history of {context.last.before:,} tokens, {len(view):,} messages, counts cached: {context.last.how} to "
        f"{context.last.after:,} tokens in {took:.0f} ms (limit 200)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--original", metavar="PYTHON", help="a Python that has corecoder==0.8.0")
    parser.add_argument("--windows", default="16,32,128", help="in thousands of tokens")
    parser.add_argument("--summarizers", default="honest,garbage,fails")
    parser.add_argument("--packages", action="store_true", help="take files from packages too, not the top level only")
    parser.add_argument("--show", type=Path, metavar="FILE", help="write views before and after each tier")
    options = parser.parse_args()
    count = load_ranks()
    print(f"tokens counted {'by o200k_base' if count else 'by estimate'}; {STEPS} steps\n")
    print(f"{COLUMNS} facts in view after n compactions: all/those code can know")
    shown: list[str] = []
    for window in (int(each) * 1000 for each in options.windows.split(",")):
        for summarizer in options.summarizers.split(","):
            runs: list[tuple[str, Callable[[Server, Path], bool]]] = [("corecoder", run_ours)]
            if options.original:
                runs.append(("0.8.0", lambda server, _home: run_original(server, options.original)))
            floor = 0.0
            for name, run in runs:
                with tempfile.TemporaryDirectory() as folder:
                    project = Path(folder, "project")
                    project.mkdir()
                    paths = sources(project, packages=options.packages)
                    server = Server(window, summarizer, paths, project, count or estimate_text)
                    server.show = shown if name == "corecoder" and summarizer == "honest" else None
                    floor = report(name, server, run(server, Path(folder, "home")), floor)
    print()
    timings()
    if options.show:
        options.show.write_text("\n".join(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
