"""Every test runs in a home and a project of its own; nothing of the person who runs them is read or written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty CORECODER_HOME, with no key, no proxy and no setting in the environment."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_proxy", "_PROXY")) or name.startswith("CORECODER_"):
            monkeypatch.delenv(name)
    directory = tmp_path / "home" / ".corecoder"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORECODER_HOME", str(directory))
    (tmp_path / "home").mkdir()
    return directory


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project directory, the current one during the test."""
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory
