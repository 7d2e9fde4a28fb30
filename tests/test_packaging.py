"""What is installed is complete, small and says who it is."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import corecoder
from corecoder.config import SETTINGS
from corecoder.providers import PRESETS

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_version_is_the_same_everywhere() -> None:
    done = run("-m", "corecoder", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"corecoder {corecoder.__version__}\n", "")
    assert metadata.version("corecoder") == corecoder.__version__
    assert f"## {corecoder.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_loads_nothing_heavy() -> None:
    done = run("-X", "importtime", "-m", "corecoder", "--version")
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "corecoder.cli" in loaded or "corecoder" in loaded
    assert not loaded & {"openai", "rich", "prompt_toolkit", "tiktoken", "argparse", "dataclasses", "json", "inspect"}


@pytest.mark.parametrize("name", corecoder.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(corecoder, name)


def test_importing_the_package_loads_none_of_it() -> None:
    done = run("-c", "import sys, corecoder; print(sorted(m for m in sys.modules if m.startswith('corecoder.')))")
    assert done.stdout == "[]\n"


def test_the_package_is_typed_and_licensed() -> None:
    assert (Path(corecoder.__file__).parent / "py.typed").is_file()
    assert "MIT License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_example_of_a_dotenv_names_only_what_is_read() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?([A-Z][A-Z_]+)=", text, re.MULTILINE))
    settings = {f"CORECODER_{item.name.upper()}" for item in SETTINGS}
    keys = {preset.key_env for preset in PRESETS.values() if preset.key_env}
    assert named <= settings | keys | {"OPENAI_BASE_URL", "CORECODER_HOME"}
    project = {f"CORECODER_{item.name.upper()}" for item in SETTINGS if item.metadata["project"]}
    assert project <= named


def test_the_map_of_the_code_is_short_and_names_every_module() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    modules = {path.stem for path in (ROOT / "corecoder").glob("*.py")} - {"__init__", "__main__"}
    assert {name for name in modules if not re.search(rf"\b{name}\b", text)} == set()


def test_checks_can_be_run_from_a_clone() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(script)], timeout=60).returncode == 0
