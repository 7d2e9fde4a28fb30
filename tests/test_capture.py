"""What a command printed is readable, bounded, and never silently cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from corecoder.capture import FILE_CAP, Capture, Cleaner, readable


def fed(data: bytes, size: int = 65_536) -> str:
    cleaner = Cleaner()
    return "".join(cleaner.feed(data[at : at + size]) for at in range(0, len(data), size)) + cleaner.finish()


def spill(directory: Path) -> Path:
    path = directory / "spilled.txt"
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("10%\r20%\r100%\ndone\n", "100%\ndone\n"),
        ("10%\r\x1b[K\nnext\n", "10%\nnext\n"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("|\b/\b-\bok\n", "ok\n"),
        ("N\bNA\bAME\n", "NAME\n"),
        ("a\0b", "a\u2400b"),
        ("\x1b[31mred\x1b[0m \x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[2J\x1b[6nplain", "red plain"),
    ],
)
def test_output_reads_as_a_terminal_would_have_left_it(printed: str, seen: str) -> None:
    assert readable(printed) == seen


def test_where_the_output_is_torn_makes_no_difference() -> None:
    data = "plain\n50%\r100%\n\x1b[1mfett\x1b[0m über 漢字 \U0001f600\nNUL\0\r\nend".encode() + b"\xff\xf0"
    whole = fed(data)
    assert whole == "plain\n100%\nfett über 漢字 \U0001f600\nNUL\u2400\nend\ufffd\ufffd"
    for size in range(1, 12):
        assert fed(data, size) == whole


def test_random_bytes_never_leave_a_control_character() -> None:
    data = random.Random(7).randbytes(50_000)
    assert not {char for char in fed(data, 999) if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160}


def test_a_progress_bar_without_newlines_keeps_only_its_last_state() -> None:
    assert fed(b"".join(b"%d%%\r" % step for step in range(100_000))) == "99999%"


def test_short_output_stays_whole_and_makes_no_file(tmp_path: Path) -> None:
    capture = Capture(lambda _: spill(tmp_path), head=50, tail=50)
    capture.feed(b"a" * 99 + b"\n")
    capture.finish()
    assert capture.text() == "a" * 99 + "\n"
    assert capture.path is None


def test_long_output_keeps_head_and_tail_and_says_where_the_rest_is(tmp_path: Path) -> None:
    printed = "".join(f"{number}\n" for number in range(5_000))
    capture = Capture(lambda _: spill(tmp_path), head=100, tail=200)
    for at in range(0, len(printed), 77):
        capture.feed(printed[at : at + 77].encode())
    capture.finish()
    head, gap, tail = capture.text().partition("[")
    assert printed.startswith(head)
    assert head.endswith("\n")
    gap, _, tail = tail.partition("]\n")
    assert printed.endswith("\n" + tail)
    assert gap == f"{len(printed) - len(head) - len(tail):,} characters left out here; all of it is in {capture.path}"
    assert (tmp_path / "spilled.txt").read_text() == printed


def test_one_endless_line_is_cut_too(tmp_path: Path) -> None:
    capture = Capture(lambda _: spill(tmp_path), head=100, tail=200)
    capture.feed(b"x" * 200_000)
    capture.finish()
    assert len(capture.text()) < 500
    assert (tmp_path / "spilled.txt").stat().st_size == 200_000


def test_the_file_is_capped_and_says_so(tmp_path: Path) -> None:
    capture = Capture(lambda _: spill(tmp_path))
    line = b"y" * 999 + b"\n"
    for _ in range(FILE_CAP // 1000 + 500):
        capture.feed(line)
    capture.feed(b"the end\n")
    capture.finish()
    kept = (tmp_path / "spilled.txt").read_bytes()
    assert FILE_CAP < len(kept) < FILE_CAP + 50_000
    assert kept.endswith(b"the end\n")
    assert f"the first {FILE_CAP:,} bytes are in" in capture.text()


def test_a_file_that_cannot_be_written_costs_nothing_but_the_file(tmp_path: Path) -> None:
    def full(_: str) -> Path:
        raise OSError(28, "No space left on device")

    capture = Capture(full, head=10, tail=10)
    capture.feed(b"line\n" * 100)
    capture.finish()
    assert "not kept: No space left on device" in capture.text()


def test_binary_output_is_shown_briefly(tmp_path: Path) -> None:
    capture = Capture(lambda _: spill(tmp_path))
    for _ in range(40):
        capture.feed(random.Random(1).randbytes(65_536))
    capture.finish()
    assert capture.binary
    assert capture.byte_count == 40 * 65_536
    assert len(capture.text()) < 1_200


def test_text_in_another_alphabet_is_not_binary(tmp_path: Path) -> None:
    capture = Capture(lambda _: spill(tmp_path))
    capture.feed("漢字かな русский ελληνικά".encode() * 50)
    capture.finish()
    assert not capture.binary
