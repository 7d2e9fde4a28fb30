"""Events as terminal text: what is shown, what is never written."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import pytest

from corecoder.diffview import diff_counts
from corecoder.events import (
    Compacted,
    Event,
    MessageCompleted,
    ModeChanged,
    Notice,
    Question,
    ReasoningDelta,
    Retrying,
    Steered,
    StepStarted,
    TextDelta,
    TodoChanged,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
    UsageUpdated,
)
from corecoder.layout import cells
from corecoder.render import Renderer
from corecoder.terminal import Screen
from corecoder.words import headline, money, tokens, usage_words

NASTY = "\x1b]52;c;ZXZpbA==\x07\x1b]0;t\x07\x1b[2J\x1b[6n\x9b31m\x1b]x\x9d0;y\x9c\u202e\x00\x08"
MARKUP = "arr[/] [bold]x[/bold] [/INST] - [x] done [/Users/x/App.csproj]"


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(events: Iterable[Event], *, streaming: bool = True, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    renderer = Renderer(Screen(stream, {}), streaming=streaming, root=PurePosixPath("/work/p"))
    for event in [TurnStarted("go"), *events]:
        renderer.show(event)
    return stream.getvalue()


class Below:
    """The place for what is under way: everything that it was given."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)


class Living:
    """A renderer with such a place, on an 80-column terminal without colour."""

    def __init__(self, *events: Event) -> None:
        self.below = Below()
        self.stream = Terminal()
        screen = Screen(self.stream, {"NO_COLOR": "1"})
        self.renderer = Renderer(screen, streaming=True, root=PurePosixPath("/work/p"), live=self.below)
        self.show(TurnStarted("go"), *events)

    def show(self, *events: Event) -> str:
        """What was printed for these events."""
        before = len(self.stream.getvalue())
        for event in events:
            self.renderer.show(event)
        return self.stream.getvalue()[before:]

    def unfold(self) -> str:
        before = len(self.stream.getvalue())
        self.renderer.unfold()
        return self.stream.getvalue()[before:]


def call(name: str, content: str, *, ok: bool = True, refused: bool = False, **arguments: object) -> list[Event]:
    started = ToolStarted("1", name, dict(arguments))
    return [started, ToolFinished("1", name, content, ok, refused=refused)]


def done(**facts: object) -> TurnFinished:
    return TurnFinished("end_turn", "", Usage(), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
@pytest.mark.parametrize("streaming", [True, False])
def test_no_control_character_of_a_model_a_tool_or_a_file_is_written(
    streaming: bool, stream: type[io.StringIO]
) -> None:
    # sent whole and one character at a time, as a stream may cut a sequence anywhere
    texts = [TextDelta(NASTY), *map(TextDelta, NASTY), ReasoningDelta(NASTY), *map(ReasoningDelta, NASTY)]
    events: list[Event] = [
        *texts,
        MessageCompleted(NASTY, 1),
        *call("bash", NASTY, command=NASTY),
        *call("edit_file", f"@@ -1 +1 @@\n-{NASTY}\n+{NASTY}", file_path=NASTY),
        *call("read_file", NASTY, ok=False, file_path=NASTY),
        *call(NASTY, NASTY, refused=True, ok=False, **{NASTY: NASTY}),
        Retrying(NASTY, 2, 1),
        Notice(NASTY),
        Notice(NASTY, "warning"),
        Compacted(10, 5, 2, NASTY),
        TodoChanged(((NASTY, NASTY),)),
        TurnFinished("error", NASTY, Usage(), error=NASTY),
    ]
    text = shown(events, streaming=streaming, stream=stream())
    for style in ("1", "2", "31", "32", "33", "36", "0"):  # ours, on a terminal only
        text = text.replace(f"\x1b[{style}m", "")
    assert [char for char in text if char != "\n" and (char < " " or "\x7f" <= char <= "\x9f")] == []
    assert "\u202e" not in text


def test_colour_goes_to_a_terminal_only_and_not_against_the_wish_of_the_user() -> None:
    def write(stream: io.StringIO, environ: dict[str, str]) -> str:
        Screen(stream, environ).line("x", "red bold")
        return stream.getvalue()

    assert write(Terminal(), {"TERM": "xterm"}) == "\x1b[31;1mx\x1b[0m\n"
    assert write(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}) == "x\n"
    assert write(Terminal(), {"TERM": "dumb"}) == "x\n"
    assert write(io.StringIO(), {"TERM": "xterm"}) == "x\n"


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    text = shown(
        [
            TextDelta(MARKUP),
            MessageCompleted(MARKUP, 1),
            *call("bash", MARKUP, command=MARKUP),
            TurnFinished("error", "", Usage(), error=MARKUP),
        ]
    )
    assert text.count(MARKUP) == 4


def test_streamed_text_is_appended_as_it_comes_and_ends_its_line() -> None:
    assert shown([TextDelta("Hel"), TextDelta("lo"), MessageCompleted("Hello", 0), done()]) == "Hello\n"


def test_without_streaming_only_the_words_beside_calls_are_shown() -> None:
    events = [
        ReasoningDelta("hm"),
        TextDelta("I look."),
        MessageCompleted("I look.", 1),
        *call("read_file", "1\ta", file_path="a.py"),
        TextDelta("The answer."),
        MessageCompleted("The answer.", 0),
        done(),
    ]
    assert shown(events, streaming=False) == "I look.\n● read a.py (1 line)\n"


def test_reasoning_is_dimmed_and_stands_on_lines_of_its_own() -> None:
    text = shown([ReasoningDelta("hm"), TextDelta("yes"), MessageCompleted("yes", 0)], stream=Terminal())
    assert text == "\x1b[2mhm\x1b[0m\nyes\n"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("bash", {"command": "pytest -q"}, ("bash", "pytest -q")),
        ("read_file", {"file_path": "/work/p/src/a.py"}, ("read", "src/a.py")),
        ("read_file", {"file_path": "a.py", "offset": 10, "limit": 5}, ("read", "a.py:10-14")),
        ("read_file", {"file_path": "a.py", "offset": 10}, ("read", "a.py:10-")),
        ("edit_file", {"file_path": "/else/a.py"}, ("edit", "/else/a.py")),
        ("write_file", {"file_path": "a.py", "content": "x"}, ("write", "a.py")),
        ("glob", {"pattern": "*.py", "path": "src"}, ("glob", "*.py in src")),
        ("grep", {"pattern": "TODO", "include": "*.py"}, ("grep", "TODO (*.py)")),
        ("recall", {"id": 17}, ("recall", "17")),
        ("read_file", {"file_path": ["wrong"], "offset": "x"}, ("read", "['wrong']")),
        ("bash", {}, ("bash", "")),
    ],
)
def test_a_call_is_one_line_with_its_essentials(
    name: str, arguments: dict[str, object], words: tuple[str, str]
) -> None:
    assert headline(name, arguments, PurePosixPath("/work/p")) == words


def test_an_edit_says_how_much_it_changed_and_shows_the_diff() -> None:
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n ctx\n-old\n+new\n+more"
    text = shown(call("edit_file", f"Edited a.py\n{diff}", file_path="a.py"))
    assert text == "● edit a.py +2 -1\n  1  ctx\n  2 -old\n  2 +new\n  3 +more\n"
    coloured = shown(call("edit_file", diff, file_path="a.py"), stream=Terminal())
    assert "\x1b[32m+new\x1b[0m" in coloured
    assert "\x1b[31m-old\x1b[0m" in coloured


def test_a_long_result_is_folded_and_says_how_much_is_hidden() -> None:
    text = shown(call("bash", "\n".join(map(str, range(100))), command="seq"))
    assert text.splitlines() == [
        "● bash seq",
        "  0",
        "  1",
        "  2",
        "  … 90 lines hidden …",
        *(f"  {number}" for number in range(93, 100)),
    ]


def test_a_result_of_one_endless_line_takes_one_line() -> None:
    text = shown(call("bash", "x" * 1_000_000, command="y" * 1_000_000))
    assert len(text) < 1000


def test_the_result_of_a_command_follows_its_line_and_parallel_results_name_their_call() -> None:
    a, b = ToolStarted("a", "agent", {"task": "one"}), ToolStarted("b", "agent", {"task": "two"})
    events = [a, b, ToolFinished("a", "agent", "first", True), ToolFinished("b", "agent", "second", True)]
    assert shown(events).splitlines() == [
        "● agent one",
        "● agent two",
        "● agent one",
        "  first",
        "● agent two",
        "  second",
    ]


def test_failed_and_refused_calls_say_so() -> None:
    assert shown(call("read_file", "no such file", ok=False, file_path="x")) == "● read x failed\n  no such file\n"
    refused = shown(call("bash", "Not run: no. Do not try again.", ok=False, refused=True, command="rm x"))
    assert refused == "● bash rm x\n  Not run: no\n"
    refused = shown(call("edit_file", "Not run: no. Do not try again.", ok=False, refused=True, file_path="a"))
    assert refused == "● edit a refused\n  Not run: no\n"


def test_a_call_that_was_interrupted_while_it_waited_for_its_line_still_gets_one() -> None:
    events = [ToolStarted("1", "grep", {"pattern": "x"}), TurnFinished("cancelled", "", Usage())]
    assert shown(events) == "● grep x interrupted\nstopped\n"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (TurnFinished("error", "", Usage(), error="no answer"), "error: no answer"),
        (TurnFinished("cancelled", "", Usage()), "stopped"),
        (TurnFinished("max_steps", "", Usage(), error="stopped after 3 steps"), "stopped after 3 steps"),
        (TurnFinished("limit", "", Usage()), "a limit was reached (limit)"),
        (TurnFinished("refused", "", Usage()), "the provider's content filter withheld the answer"),
    ],
)
def test_a_turn_that_did_not_simply_end_says_why(event: TurnFinished, line: str) -> None:
    assert shown([event]) == f"{line}\n"


def test_the_end_of_a_turn_sums_up_its_own_usage() -> None:
    first = UsageUpdated(Usage(1000, 20, 0, 0, 0.01), Usage(9000, 90, 0, 0, 0.9), 1000, 8000)
    second = UsageUpdated(Usage(3000, 30, 2000, 0, 0.02), Usage(12000, 120, 0, 0, 0.9), 3000, 8000)
    text = shown([StepStarted(1), first, StepStarted(2), second, done(steps=2)])
    assert text == "2 steps, 4.0k tokens in (50% cached), 50 out, $0.030\n"


def test_retries_and_compactions_are_one_line_each() -> None:
    assert shown([Retrying("HTTP 503", 12.2, 2)]) == "HTTP 503; trying again in 12 s (attempt 2)\n"
    line = "compacted 96k -> 31k (summary, $0.030, 4.1 s)\n"
    assert shown([Compacted(96_000, 31_000, 40, "summary", 0.03, 4.1)], streaming=False) == line


def test_many_compactions_of_a_turn_are_a_line_at_the_first_and_a_line_at_the_end() -> None:
    small = [Compacted(9000 + at, 4000, 9, "snip", None, 0.01) for at in range(58)]
    events = [Compacted(8000, 3000, 9, "snip"), *small, Compacted(9900, 1000, 4, "summary", 0.02, 1.0), done()]
    assert shown([*events, Compacted(5000, 2000, 3, "summary")], streaming=False).splitlines() == [
        "compacted 8.0k -> 3.0k (snip)",
        "compacted 59 more times, at last 9.9k -> 1.0k (snip, summary, $0.020, 1.6 s)",
        "compacted 5.0k -> 2.0k (summary)",
    ]


def test_a_result_that_says_how_it_ended_is_not_followed_by_the_same_in_other_words() -> None:
    events = call("bash", "half\n[cancelled after 3.2 s]", ok=False, command="make")
    events[1] = dataclasses.replace(events[1], seconds=3.2)
    assert shown(events) == "● bash make\n  half\n  [cancelled after 3.2 s]\n"
    assert "\x1b[33m[cancelled" in shown(events, stream=Terminal())


def test_with_a_place_below_words_are_markdown_and_what_is_under_way_stands_there() -> None:
    living = Living()
    assert living.show(TextDelta("Some **bo")) == ""
    assert living.below.shown[-1] == "Some **bo"
    assert living.show(TextDelta("ld** words.\n\nMore")) == "Some bold words.\n"
    assert living.below.shown[-1] == "More"
    assert living.show(MessageCompleted("", 1)) == "\nMore\n"
    assert living.below.shown[-1] == ""
    assert living.show(*call("grep", "a", pattern="x")) == "\n● grep x (1 line)\n"
    assert living.show(TextDelta("  \nSo"), MessageCompleted("", 0), done()) == "\nSo\n"


def test_reasoning_leaves_one_line_and_can_be_unfolded() -> None:
    living = Living(ReasoningDelta("first\nsec"))
    assert living.show(ReasoningDelta("ond [/]\n")) == ""
    assert living.below.shown[-1] == "first\nsecond [/]"
    assert living.show(TextDelta("Yes")) == "thought briefly (2 lines, Ctrl+O shows them)\n\n"
    assert living.show(MessageCompleted("Yes", 0), done()) == "Yes\n"
    assert living.unfold() == "● thought briefly\n  first\n  second [/]\n"


def test_the_reasoning_of_a_reply_that_only_calls_is_folded_before_the_call() -> None:
    text = Living().show(ReasoningDelta("hm"), MessageCompleted("", 1), *call("bash", "out", command="x"))
    assert text == "thought briefly (1 line, Ctrl+O shows it)\n\n● bash x\n  out\n"


def test_what_a_running_command_prints_stands_below_bounded_until_its_result() -> None:
    living = Living()
    started, finished = call("bash", "the result", command="make")
    living.show(started)
    assert living.below.shown == []
    living.show(ToolOutput("1", "".join(f"line {number}\n" for number in range(10_000))))
    assert living.below.shown[-1].splitlines() == [f"  line {number}" for number in range(9_994, 10_000)]
    living.show(ToolOutput("1", "10%\r50%\r\x1b[31m99%"))
    assert living.below.shown[-1].splitlines()[-1] == "  99%"
    living.show(ToolOutput("1", "x" * 1_000_000))
    assert len(living.below.shown[-1]) < 5_000
    assert living.show(finished) == "  the result\n"
    assert living.below.shown[-1] == ""


def test_a_call_without_a_line_yet_and_calls_side_by_side_are_named_below() -> None:
    living = Living(ToolStarted("1", "grep", {"pattern": "TODO"}))
    assert living.below.shown[-1] == "● grep TODO"
    living.show(ToolStarted("2", "agent", {"task": "look"}), ToolOutput("2", "a\nb\nc\nd\ne\n"))
    assert living.below.shown[-1] == "● grep TODO\n● agent look\n  c\n  d\n  e"


def test_what_was_folded_is_shown_whole_the_newest_first() -> None:
    diff = (
        "@@ -1,60 +1,60 @@\n" + "".join(f"-old {at}\n" for at in range(60)) + "".join(f"+x{at}\n" for at in range(60))
    )
    living = Living()
    assert living.unfold() == "nothing is hidden\n"
    output = "\n".join(map(str, range(30)))
    assert "  … 20 lines hidden, Ctrl+O shows them …\n" in living.show(*call("bash", output, command="seq 30"))
    text = living.show(*call("edit_file", diff, file_path="a"))
    assert "  … 80 lines of the diff hidden, Ctrl+O shows them …\n" in text
    living.show(*call("bash", "short", command="true"))
    diff_lines = living.unfold().splitlines()
    assert diff_lines[0] == "● edit a"
    assert len(diff_lines) == 121
    assert living.unfold() == "● bash seq 30\n" + "".join(f"  {number}\n" for number in range(30))
    assert living.unfold().startswith("● edit a\n")
    for number in range(50):
        living.show(*call("bash", output, command=f"seq {number}"))
    heads = [living.unfold().splitlines()[0] for _ in range(21)]
    assert heads == [*(f"● bash seq {number}" for number in range(49, 29, -1)), "● bash seq 49"]


def test_a_question_shows_the_whole_of_what_is_asked() -> None:
    def asked(kind: str, detail: str) -> str:
        living = Living(TextDelta("I will"))
        before = len(living.stream.getvalue())
        living.renderer.question(Question("1", kind, "Do it?", detail, why="it is outside"))
        assert living.below.shown[-1] == ""
        return living.stream.getvalue()[before:].removeprefix("I will\nDo it?\n").removeprefix("it is outside\n")

    command = "\n".join(f"echo {number} {'x' * 200}" for number in range(100))
    assert asked("consent", command) == "".join(f"  {line}\n" for line in command.splitlines())
    assert asked("consent", NASTY + "rm [bold]x[/bold]").endswith("rm [bold]x[/bold]\n")
    hidden = "echo hi \x1b]; touch x;\x07\u202e"
    assert asked("consent", hidden) == r"  echo hi \x1b]; touch x;\x07\u202e" + "\n"
    assert r"+echo hi \x1b]; touch x;\x07\u202e" in asked("consent", f"--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+{hidden}\n")
    diff = f"--- a/f\n+++ b/f\n@@ -1 +1,100 @@\n-{'long ' * 100}\n" + "+new\n" * 100
    shown = asked("consent", diff)
    assert shown.count("+new") == 100
    assert "".join(shown.split()).count("long") == 100
    assert asked("plan", "# Plan\n1. **do**") == "Plan\n1. do\n"
    assert asked("ask", "") == ""


@pytest.mark.parametrize(
    "trick", ["--- x; rm -rf y\n+++ b\n@@ -1 +1 @@\n-a\n+b", "--- a\n+++ b\n@@ -1 +1 @@ ; rm -rf y\n-a\n+b"]
)
def test_a_command_that_looks_like_a_diff_hides_nothing(trick: str) -> None:
    living = Living()
    living.renderer.question(Question("1", "consent", "Run?", trick))
    assert "rm -rf y" in living.stream.getvalue()


def test_what_differs_between_two_lines_stands_out_and_wide_characters_keep_their_place() -> None:
    diff = (
        "@@ -9,2 +9,2 @@\n-\tx = f(a, b)\n-中文 = 1\n+\tx = f(a, c)\n+中文 = 2\n@@ -99 +99 @@\n-gone\n+something else"
    )
    text = shown(call("edit_file", diff, file_path="a"), stream=Terminal())
    for part in (
        "-    x = f(a, \x1b[0m\x1b[31;7mb\x1b[0m\x1b[31m)",
        "+    x = f(a, \x1b[0m\x1b[32;7mc\x1b[0m\x1b[32m)",
    ):
        assert part in text
    assert "\x1b[31m-gone\x1b[0m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain.splitlines()[1:4] == ["   9 -    x = f(a, b)", "  10 -中文 = 1", "   9 +    x = f(a, c)"]
    assert plain.splitlines()[5:7] == ["   ⋮", "  99 -gone"]


def test_a_diff_of_several_files_names_them_and_its_long_lines_are_cut_to_the_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    diff = "".join(f"--- a/{name}\n+++ b/{name}\n@@ -0,0 +1 @@\n+{'中' * 50}\n" for name in "xy")
    lines = shown(call("write_file", diff, file_path="x"), stream=Terminal()).splitlines()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert [line for line in plain if line.startswith("  +++")] == ["  +++ b/x", "  +++ b/y"]
    assert max(map(cells, plain)) < 40


def test_words_given_while_it_works_and_a_new_mode_are_said() -> None:
    assert shown([Steered("also [b] this"), ModeChanged("auto")]) == "› also [b] this\nthe mode is auto now\n"


def test_text_after_a_retry_starts_on_a_new_line() -> None:
    text = shown([TextDelta("half an ans"), Retrying("cut", 0, 1), TextDelta("whole"), MessageCompleted("whole", 0)])
    assert text == "half an ans\ncut; trying again now (attempt 1)\nwhole\n"


def test_the_todo_list_is_a_checklist() -> None:
    event = TodoChanged((("completed", "a"), ("in_progress", "b"), ("pending", "c")))
    assert shown([event]) == "  [✓] a\n  [→] b\n  [ ] c\n"


def test_live_output_needs_no_line_of_its_own() -> None:
    started, finished = call("bash", "out", command="x")
    assert shown([started, ToolOutput("1", "out"), finished]) == "● bash x\n  out\n"


def test_an_encoding_without_our_signs_gets_plain_ones() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    Screen(stream, {}).line("● é → 中…")
    assert raw.getvalue().decode("latin-1") == "* é -> ?...\n"
    stream.close()


def test_figures_are_short_and_still_worth_reading() -> None:
    assert [tokens(n) for n in (0, 999, 1000, 9949, 9950, 31_400, 999_499, 1_200_000)] == [
        "0", "999", "1.0k", "9.9k", "10k", "31k", "999k", "1.2M",
    ]  # fmt: skip
    assert [money(n) for n in (0.0012, 0.034, 1.5)] == ["$0.0012", "$0.034", "$1.50"]
    assert usage_words(Usage(500, 20)) == "500 tokens in, 20 out"
    assert diff_counts("no diff") == (0, 0)


def test_words_of_ours_are_broken_between_words_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "21")
    words = "one two three four five six\n/a/path/that/is/longer/than/the/line"
    on, off = Terminal(), io.StringIO()
    for stream in (on, off):
        Screen(stream, {}).prose(words)
    assert on.getvalue() == "one two three four\nfive six\n/a/path/that/is/longer/than/the/line\n"
    assert off.getvalue() == f"{words}\n"


def test_a_changed_line_that_begins_like_a_header_of_a_diff_is_shown_and_counted() -> None:
    diff = "Edited q.sql at line 1 (+1 -1).\n--- a/q.sql\n+++ b/q.sql\n@@ -1 +1 @@\n--- a comment\n+++ b"
    done = ToolFinished("1", "edit_file", True, "Edited", display=diff)
    text = shown([ToolStarted("1", "edit_file", {"file_path": "q.sql"}), done])
    assert "edit q.sql +1 -1" in text
    assert "  1 --- a comment\n  1 +++ b\n" in text
