"""The demonstration needs nothing, changes nothing of the user's, and does what it says."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from corecoder.cli import main
from corecoder.demo import play
from corecoder.terminal import Screen, Signals


def test_it_makes_failing_tests_pass_with_the_real_loop_and_tools(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out, err = io.StringIO(), io.StringIO()
    with Signals() as signals:
        code = play(out=Screen(out, {}), err=Screen(err, {}), signals=signals, pace=0.0)
    said = err.getvalue()
    assert code == 0, said
    assert "All three tests pass now" in out.getvalue()
    assert "FAILED (failures=2)" in said
    assert re.search(r"● edit prices.py \+\d+ -\d+\n", said)
    assert "The tests pass now." in said
    [shop] = tmp_path.glob("corecoder-demo-*/shop")
    tests = [sys.executable, "-m", "unittest", "-q"]
    assert subprocess.run(tests, cwd=shop, capture_output=True, check=False, timeout=60).returncode == 0
    [log] = tmp_path.glob("corecoder-demo-*/home/sessions/*/*.jsonl")
    assert str(log) in said
    assert f"rm -r {shop.parent}\n" in said
    assert not home.exists()
    assert list(project.iterdir()) == []


def test_it_is_one_flag_and_its_answer_goes_to_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("corecoder.demo.PACE", 0.0)
    assert main(["--demo"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("All three tests pass now")
    assert "the model is a script" in err
    assert max(len(line) for line in (out + err).splitlines() if str(tmp_path) not in line) <= 100
