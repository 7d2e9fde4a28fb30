"""README.md is part of the product: its commands run, its tables are those of the code, its example works."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

import pytest

from corecoder.cli import build_parser
from corecoder.commands import COMMANDS
from corecoder.config import SETTINGS
from corecoder.providers import PRESETS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    """The fenced block that follows `<!-- mark -->`."""
    found = re.search(rf"<!-- {mark} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found, f"README.md has no block marked {mark}"
    return found[1]


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


def settings_table() -> str:
    rows = ["| setting | default | accepted | meaning |", "|---|---|---|---|"]
    return "\n".join([*rows, *map(settings_row, SETTINGS)])


def settings_row(item: Field[Any]) -> str:
    assert item.default is not MISSING
    default = "" if item.default in (None, "") else f"`{item.default:g}`" if isinstance(item.default, float) else None
    shown = default if default is not None else f"`{item.default}`"
    star = "*" if item.metadata["project"] else ""
    return f"| `{item.name}`{star} | {shown} | {item.metadata['form'].accepts} | {item.metadata['about']} |"


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert settings_table() in README, f"put this table into README.md:\n{settings_table()}"


def test_every_providers_key_is_named() -> None:
    assert all(f"`{preset.key_env}`" in README for preset in PRESETS.values() if preset.key_env)


def test_every_flag_is_in_the_table_and_every_flag_in_the_text_exists() -> None:
    known = flags_of(build_parser())
    table = set(re.findall(r"`(--?[a-z][a-z-]*)", "\n".join(re.findall(r"^\| `-.*$", README, re.MULTILINE))))
    assert table == known
    commands = re.findall(r"corecoder ((?:-[^`|>\n]*))", README)
    used = {flag for text in commands for flag in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", text)}
    assert used <= known
    assert used, "the text shows no use of a flag, so this test would not notice a wrong one"


def commands_table() -> str:
    rows = [f"| `{item.call.replace('|', chr(92) + '|')}` | {item.summary} |" for item in COMMANDS]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def test_the_table_of_commands_is_that_of_the_code_and_no_other_is_named() -> None:
    assert commands_table() in README, f"put this table into README.md:\n{commands_table()}"
    assert set(re.findall(r"`/([a-z]+)", README)) == {command.name for command in COMMANDS}


def test_the_two_commands_are_one_line_each_and_need_only_python_and_git() -> None:
    for mark in ("try", "tests"):
        command = block(mark)
        assert command.count("\n") == 1
        assert re.findall(r"(?:^|&& )(\S+)", command)[0] == "python3"
        assert all(word.startswith((".venv/bin/", "python3")) for word in re.findall(r"(?:^|&& )(\S+)", command))
    assert block("try").rstrip().endswith("corecoder --demo")
    assert "[dev]" in block("tests")


def test_the_check_for_every_change_runs_the_readmes_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "from_readme tests" in script
    assert "from_readme try" in script


def test_the_library_example_runs(project: Path) -> None:
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example[1], "README.md", "exec"), {})
    assert out.getvalue() == "All tests pass.\n[end_turn]\n"


@pytest.mark.parametrize("name", [".env.example", "LICENSE", "CHANGELOG.md", "AGENTS.md"])
def test_no_line_is_too_long_to_read(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120] == []
