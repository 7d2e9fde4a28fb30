"""Commands that only look: the window and what fills it, tokens and cost, jobs, tools, settings."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby

from ..census import Census, take_census
from ..config import SETTINGS, Config
from ..processes import Job
from ..terminal import Screen
from ..text import listed, plural
from ..tokens import schema_tokens
from ..words import money
from ..words import tokens as short
from .registry import Console, command, fitted, indented, two_columns

# What is counted, in words, and its colour.
_KINDS = {
    "system": ("system prompt", "dim"),
    "tools": ("tool schemas", "cyan"),
    "compacted": ("compacted before", "bold"),
    "user": ("your prompts", "green"),
    "assistant": ("the model's words", "red"),
    "results": ("tool results", "yellow"),
}
_MARKS = ("old output is snipped", "old conversation summarised", "all but the essentials left out")
_WIDEST = 96
_TOOLS = 8  # with most tokens that are listed


@command("context", anytime=True)
def context(console: Console, _argument: str) -> None:
    """Shows what fills the context window.

    The bar is the usable window, with the three marks at which room is made: old output is snipped, old conversation
    summarised, all but the essentials left out. The number of an item is what the model would recall it by.
    """
    agent, screen = console.agent, console.screen
    found = take_census(agent.session, agent.context)
    share = 100 * found.total // max(1, found.usable)
    screen.line(
        f"{short(found.total)} of {short(found.usable)} usable tokens, {share}%, "
        f"in a window of {short(agent.context.window)}",
        "bold",
    )
    config = console.config
    _draw(screen, found, (config.snip_at, config.summarize_at, config.collapse_at))
    _list_kinds(screen, found)
    if found.biggest:
        screen.line()
        screen.line("The biggest items:", "bold")
    for item in found.biggest:
        number = f"#{item.record}" if item.record is not None else ""
        screen.line(f"  {short(item.tokens):>6}  {number:>5}  {fitted(item.what, max(20, screen.width - 18))}")


def _draw(screen: Screen, found: Census, marks: Sequence[float]) -> None:
    """The bar and, below it, the marks; each kind in its colour, and without colour the fill as a whole."""
    width = min(_WIDEST, screen.width - 4)
    cells = [""] * width  # the style of each
    edge, done = 0, 0
    for kind, (_, style) in _KINDS.items():
        done += found.kinds[kind]
        end = min(width, round(width * done / max(1, found.usable)))
        cells[edge:end] = [style] * (end - edge)
        edge = max(edge, end)
    places = [min(width - 1, int(width * mark)) for mark in marks]
    screen.fresh_line()
    screen.write("  ")
    for place in places:
        cells[place] = "|"
    for kind, run in groupby(cells):
        length = len(list(run))
        sign, style = ("|", "bold") if kind == "|" else ("#", kind) if kind else ("·", "dim")
        screen.write(sign * length, style)
    screen.fresh_line()
    below = ""
    words: list[str] = []
    for place, mark, what in zip(places, marks, _MARKS, strict=True):
        label = f"{mark:.0%}"
        below = below.ljust(place + 3 - len(label)) + label
        words.append(f"{'At' if not words else 'at'} {label} {what}")
    screen.line(below, "dim")
    screen.prose(f"{', '.join(words)}.", "dim")


def _list_kinds(screen: Screen, found: Census) -> None:
    widest = max(10, min(30, screen.width - 46))
    most = max(1, *found.kinds.values())
    for kind, (words, style) in _KINDS.items():
        count = found.kinds[kind]
        if not count:
            continue
        screen.write(f"  {words:<20} {short(count):>6}  {100 * count / max(1, found.usable):>3.0f}%  ")
        screen.write("#" * max(1, round(widest * count / most)), style)
        screen.fresh_line()
    results = list(found.results.items())
    for name, (times, count) in results[:_TOOLS]:
        screen.line(f"    {fitted(name, 18):<18} {short(count):>6}        {plural(times, 'result')}")
    if rest := results[_TOOLS:]:
        screen.line(f"    {'others':<18} {short(sum(count for _, (_, count) in rest)):>6}")


@command("tokens", anytime=True)
def tokens(console: Console, _argument: str) -> None:
    """Shows the tokens used and their cost."""
    usage, screen = console.agent.usage, console.screen
    share = f" ({100 * usage.cached // usage.prompt}% from the provider's cache)" if usage.prompt else ""
    screen.line(f"  sent      {usage.prompt:>12,}{share}")
    thought = f" ({usage.reasoning:,} of it reasoning)" if usage.reasoning else ""
    screen.line(f"  received  {usage.completion:>12,}{thought}")
    cost = money(usage.cost) if usage.cost is not None else "unknown, no price is known for this model"
    screen.line(f"  cost      {cost:>12}")


def _jobs(console: Console) -> Iterable[tuple[str, str]]:
    return [(f"stop {job.number}", job.command) for job in console.agent.workspace.processes.jobs if _runs(job)]


def _runs(job: Job) -> bool:
    return job.process.poll() is None


@command("jobs", "[stop N]", anytime=True, choices=_jobs)
def jobs(console: Console, argument: str) -> None:
    """Lists what commands left running in the background.

    Each with its process, age and the file that its output goes to; `/jobs stop N` ends one and all that it started.
    """
    screen, processes = console.screen, console.agent.workspace.processes
    word, _, number = argument.partition(" ")
    if word:
        found = next((job for job in processes.jobs if str(job.number) == number.strip()), None)
        if word != "stop" or found is None:
            return screen.line("Say /jobs stop N, with the number of a job; /jobs lists them.", "yellow")
        if not _runs(found):
            return screen.line(f"Job {found.number} has ended already.")
        left = processes.end_job(found)
        words = f"could not be ended, pid {found.process.pid}" if left else "is ended"
        return screen.line(f"Job {found.number} {words}: {found.command}", "red" if left else "")
    others = listed([f"{each.pid} {each.name}" for each in processes.others()], 8)
    if not processes.jobs and not others:
        return screen.line("  Nothing runs in the background.")
    if others:
        screen.prose(f"  Left running by commands, and ended with the session: {others}")
    for job in processes.jobs:
        state = f"pid {job.process.pid}, for {_age(time.monotonic() - job.started)}" if _runs(job) else "has ended"
        screen.line(f"  {job.number:>2}  {fitted(job.command, max(20, screen.width - 8))}")
        screen.line(f"      {state}; output: {job.log or 'not kept'}", "dim")
    return None


def _age(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


@command("tools", anytime=True)
def tools(console: Console, _argument: str) -> None:
    """Lists the model's tools and what they take of the window."""
    agent = console.agent
    sizes = [schema_tokens([tool.schema()], agent.context.meter.count) for tool in agent.tools]
    rows = []
    for tool, count in zip(agent.tools, sizes, strict=True):
        first = " ".join(tool.description.split()).partition(". ")[0].removesuffix(".")
        rows.append((f"{tool.name:<12} {short(count):>5}", first))
    two_columns(console.screen, rows)
    console.screen.line(f"  {len(rows)} tools, about {short(sum(sizes))} tokens of every request", "dim")


def _settings(_console: Console) -> Iterable[tuple[str, str]]:
    return [(item.name, str(item.metadata["about"])) for item in SETTINGS]


@command("config", "[setting]", anytime=True, choices=_settings)
def config(console: Console, argument: str) -> None:
    """Shows each setting, its value and where it comes from.

    Keys are never shown. README.md says what each setting means, and `/config NAME` does too.
    """
    screen, settings = console.screen, console.config
    chosen = [item for item in SETTINGS if not argument or item.name == argument]
    if not chosen:
        return screen.line(f"There is no setting {argument}.", "yellow")
    rows = []
    for item in chosen:
        value, source = _value(settings, item.name), settings.sources.get(item.name, "default")
        if item.name == "mode" and console.agent.mode != value:
            value, source = console.agent.mode, f"by /mode; at the start {value}, {source}"
        rows.append((item.name, f"{value}  ({source})"))
    two_columns(screen, rows)
    if argument:
        meta = chosen[0].metadata
        return indented(screen, f"{meta['about']}; accepted: {meta['form'].accepts}", "dim")
    return screen.line(f"  home: {settings.home}", "dim")


def _value(settings: Config, name: str) -> str:
    value = getattr(settings, name)
    if name == "api_key":
        return "set, not shown" if value else "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else f"{value:g}" if isinstance(value, float) else str(value)
