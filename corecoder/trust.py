"""Which projects the user has trusted to bring settings of their own, and what those may not change.

A project's file is somebody else's text, which a clone or a pull brings along, so it does nothing until the user has
said so for that directory. The real paths of those stand in a list in CoreCoder's home, which is read tolerantly (what
makes no sense trusts nobody) and replaced as a whole, readable by its owner alone. The price: trust is in the place,
not in the content, so what is pulled later is trusted as well, which is why such a file can make nothing less safe;
and two processes that write in the same moment may lose one answer, which is then asked for again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from .errors import ConfigError
from .forms import Form
from .journal import private_directory, words, write_private
from .sources import Found, Place, find

FILE = "trusted.json"
PROJECT_FILE = Path(".corecoder", "config.toml")
# What a project may not loosen: the values that it may set, the strictest first. A sandbox by its name is the user's
# choice alone.
_STRICTER: dict[str, tuple[object, ...]] = {
    "mode": ("plan", "ask", "auto", "yolo"),
    "sandbox": ("required", "auto", "off"),
    "offline": (True, False),
}


def project_file(home: Path, project: Path) -> Path | None:
    """The settings that `project` brings along, None if there are none."""
    path = project / PROJECT_FILE
    ours = os.path.realpath(path.parent) == os.path.realpath(home)
    return path if os.path.lexists(path) and not ours else None


def is_trusted(home: Path, project: Path) -> bool:
    """Whether the user has trusted the project at `project`."""
    return os.path.realpath(project) in _read(home)


def set_trust(home: Path, project: Path, trusted: bool) -> None:
    """Trusts the project from now on, or no longer. Raises ConfigError if that cannot be kept."""
    path, wanted = home / FILE, set(_read(home)) - {os.path.realpath(project)}
    if trusted:
        wanted.add(os.path.realpath(project))
    new = path.with_name(f".{FILE}.{token_hex(6)}")
    try:
        private_directory(home)
        write_private(new, json.dumps({"projects": sorted(wanted)}, indent=1).encode())
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise ConfigError(f"{path} cannot be written ({words(error)}), so nothing has changed.") from None


def no_less_safe(
    theirs: Place, own: Sequence[Place], guarded: Mapping[str, tuple[Form, object]], warnings: list[str]
) -> Place:
    """The project's settings without a key, and without what would loosen the user's own or the default.

    `guarded` maps settings to their form and default. Raises ConfigError for a value that is none.
    """
    kept: dict[str, tuple[str, object]] = {}
    for name, (spelled, raw) in theirs.values.items():
        found, why = Found(name, spelled, raw, theirs, 0), ""
        if name == "api_key":
            why = "a project's file cannot set it"
        elif name in (*_STRICTER, "max_steps"):
            form, default = guarded[name]
            mine = find(own, name)
            value = mine.read(form) if mine else default
            if _looser(name, found.read(form), value):
                shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
                why = f"a project's file can only be stricter than what holds for you ({shown})"
        if why:
            warnings.append(f"{found.words} is ignored: {why}.")
        else:
            kept[name] = (spelled, raw)
    return replace(theirs, values=kept)


def _looser(name: str, theirs: Any, mine: Any) -> bool:
    """Whether a project's value allows more than the user's, or is none that it may set."""
    if name == "max_steps":
        return bool(theirs > mine)
    order = _STRICTER[name]
    if theirs == mine:
        return False
    return theirs not in order or mine not in order or order.index(theirs) > order.index(mine)


def _read(home: Path) -> list[str]:
    try:
        found = json.loads((home / FILE).read_text(encoding="utf-8"))["projects"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return [path for path in found if isinstance(path, str)] if isinstance(found, list) else []
