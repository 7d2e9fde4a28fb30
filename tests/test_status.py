"""What the live part says: what is going on, and the status line."""

from __future__ import annotations

from pathlib import Path

import pytest

from corecoder.events import (
    Compacting,
    Event,
    ReasoningDelta,
    Retrying,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from corecoder.liveview import clipped, last_rows
from corecoder.status import Activity, Status, branch_of


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_going_on_is_said_with_its_seconds(tmp_path: Path) -> None:
    clock = Clock()
    activity = Activity(tmp_path, clock)

    def after(event: Event, seconds: float) -> str:
        activity.note(event)
        clock.now += seconds
        return activity.words()

    assert after(StepStarted(1), 3) == "waiting for the model · 3 s"
    assert after(ReasoningDelta("hm"), 2) == "thinking · 2 s"
    assert after(ReasoningDelta("hm"), 2) == "thinking · 4 s"
    assert after(TextDelta("a"), 65) == "writing · 1 min 5 s"
    assert after(Compacting(), 1) == "compacting · 1 s"
    assert after(ToolStarted("1", "bash", {"command": "pytest -q"}), 4) == "running bash pytest -q · 4 s"
    assert after(ToolStarted("2", "grep", {"pattern": "x"}), 0) == "running grep x · 0 s"
    assert after(ToolFinished("2", "grep", "", True), 1) == "running bash pytest -q · 1 s"
    assert after(ToolFinished("1", "bash", "", True), 1) == "waiting for the model · 1 s"
    assert after(Retrying("overloaded", 12.0, 1), 2) == "retrying in 10 s"
    clock.now += 11
    assert activity.words().startswith("waiting for the model")


def line(status: Status, width: int) -> str:
    return "".join(text for _, text in status.parts(width))


def test_the_status_line_holds_what_fits_the_most_important_first() -> None:
    status = Status("gpt", "auto", 33_000, 110_000, (0.5, 0.7, 0.9), 0.76, 0.12, "main")
    assert line(status, 120) == " gpt · auto · ▬▬▬▬▬▬────┼───┼───┼─ 30% of 110k · $0.12 · 76% cached · main"
    assert line(status, 62) == " gpt · auto · ▬▬▬▬▬▬────┼───┼───┼─ 30% of 110k · $0.12 · main"
    assert line(status, 40) == " gpt · auto · 30% · $0.12 · 76% cached"
    assert line(status, 10) == " gpt"
    assert line(Status(), 40) == " starting …"


@pytest.mark.parametrize(("used", "style"), [(10, ""), (55, "class:status.warm"), (75, "class:status.hot")])
def test_a_watermark_that_is_passed_shows(used: int, style: str) -> None:
    parts = Status("m", "ask", used, 100, (0.5, 0.7, 0.9)).parts(100)
    assert (style, f" {used}%") in parts


def test_the_branch_is_read_without_git(tmp_path: Path) -> None:
    assert branch_of(tmp_path / "deep") in ("", branch_of(tmp_path.parent))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/fix/it\n")
    (tmp_path / "deep").mkdir()
    assert branch_of(tmp_path / "deep") == "fix/it"
    (tmp_path / ".git" / "HEAD").write_text("0123456789abcdef\n")
    assert branch_of(tmp_path) == "01234567"


def test_the_end_of_a_long_text_is_broken_between_words_and_by_columns() -> None:
    assert last_rows("one two three four", 9, 5) == ["one two", "three", "four"]
    assert last_rows("中文中文中", 4, 5) == ["中文", "中文", "中"]
    assert last_rows("a\nb\nc\nd\n", 9, 2) == ["c", "d"]
    assert last_rows("x" * 1_000_000, 10, 2) == ["x" * 10, "x" * 10]
    assert clipped("中文中文", 5) == "中文…"
    assert clipped("a\nb", 5) == "a b"
