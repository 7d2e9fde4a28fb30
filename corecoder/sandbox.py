"""The sandbox: what a command may change, read and reach when nobody has looked at it.

A `Policy` says it in paths, a backend holds a command to it, and a probe that must be denied says whether the backend
works on this machine: bubblewrap, else Landlock with seccomp (Linux), seatbelt (macOS). `start` has the signature of
`subprocess.Popen`, so the shell does not know whether it is confined.

No backend can deny what lies inside a directory that may be written, so what makes git run a program is watched
(`gitwatch.py`): a command that changed it has it put back, and the model is told. The price: such a file cannot be
changed by a confined command at all, be it with the best of intentions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from . import landlock
from .child import Start
from .denials import Denials
from .errors import ConfigError
from .gitdir import RUNS, directories_in, git_directories, led_to
from .gitwatch import GitWatch
from .homeplaces import HIDDEN, HIDDEN_ANYWHERE, caches
from .jobs import aside
from .values import dataclass

# What root needs to work on files of other users, as in a container; nothing that reaches other processes
# (capabilities(7)).
KEPT_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
)


@dataclass(frozen=True)
class Policy:
    """What a command may do, in real paths. What is `writable` exists; `guarded` lies inside it and is not to be
    changed; what is `hidden` may come to exist; below `root`, the project, repositories are looked for."""

    writable: tuple[Path, ...]
    guarded: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    offline: bool = False
    root: Path | None = None


def policy_for(root: Path, home: Path, *, offline: bool = False) -> Policy:
    """The policy for the project at `root`, `home` being CoreCoder's own directory.

    Raises ConfigError where the project is so wide that it would hold what is to be hidden.
    """
    root, user = Path(os.path.realpath(root)), Path(os.path.realpath(os.path.expanduser("~")))
    if user.is_relative_to(root):
        raise ConfigError(f"{root} holds the home directory, so nothing in it could be kept from a command.")
    # Those of linked worktrees are only watched: where something is mounted, git could not remove one.
    found = dict.fromkeys(each for git in git_directories(root) for each in directories_in(git, ("modules",)))
    git = [each for each in found if not each.is_symlink()]
    places = [root, *git, *map(Path, ("/tmp", "/var/tmp", tempfile.gettempdir()))]
    places += caches(user, os.environ.get("PATH", ""))
    hidden = _real([home, *(user / name for name in HIDDEN), *map(Path, HIDDEN_ANYWHERE)])
    guarded = [place / name for place in git for name in RUNS]
    guarded += [root / ".git"] if (root / ".git").is_file() else []
    writable = [place for place in _real(places) if place.exists() and not user.is_relative_to(place)]
    led = [path for place in git for path in led_to(place, root)]
    guarded += [path for path in led if path != root and any(path.is_relative_to(each) for each in writable)]
    return Policy(
        writable=tuple(writable),
        guarded=tuple(dict.fromkeys(guarded)),
        hidden=tuple(place for place in hidden if not root.is_relative_to(place)),
        offline=offline,
        root=root,
    )


def _real(paths: Iterable[Path]) -> list[Path]:
    """The real places of `paths`, each once."""
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in paths))


class Sandbox:
    """A backend that was tried and works here, with the policy it holds commands to."""

    def __init__(self, name: str, start: Start, leaves_open: str, policy: Policy) -> None:
        self.name, self.start, self.leaves_open, self.policy = name, start, leaves_open, policy
        self.git = GitWatch(policy.guarded, policy.root, policy.writable)

    def describe(self) -> str:
        """One sentence for a person."""
        return f"{self.name.capitalize()} confines commands: they {self._bounds()}. Left open: {self.leaves_open}."

    def denial(self, code: int | None, output: str, cwd: Path) -> str:
        """What to tell the model where a command that began in `cwd` and ended with `code` was probably denied
        something, else ""."""
        policy = self.policy
        denials = Denials(policy.writable, policy.guarded, policy.hidden, policy.offline)
        if not denials.are_told(output, cwd, failed=bool(code)):
            return ""
        return (
            f"confined: commands {self._bounds()}; if that is what failed here and the task needs it, call again with "
            "unconfined set"
        )

    def _bounds(self) -> str:
        network = ", and have no network" if self.policy.offline else ""
        return (
            "write only in the project, temporary directories and package caches, change nothing there that makes git "
            f"run programs, and see no keys{network}"
        )


def choose(policy: Policy, wanted: str = "auto") -> tuple[Sandbox | None, str]:
    """The first backend that passes its probe, else None, and in words why the others did not.

    Raises ConfigError where `wanted` demands one ("required", or a name) and it does not work.
    """
    if wanted == "off":
        return None, ""
    reasons = []
    for name, make in BACKENDS.items():
        if wanted not in ("auto", "required", name):
            continue
        try:
            if not (reason := _probe(make)):
                start, leaves_open = make(policy)
                return Sandbox(name, start, leaves_open, policy), ""
        except OSError as error:
            reason = str(error)
        reasons.append(f"{name}: {reason}")
    why = "; ".join(reasons)
    if wanted != "auto":
        raise ConfigError(f"No sandbox works here ({why}). Install one, or say --sandbox off.")
    return None, why


def _probe(make: Callable[[Policy], tuple[Start, str]]) -> str:
    """Why a backend does not work here, "" if it does: one write must succeed, one must be denied. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="corecoder-probe-") as name:
        place = Path(os.path.realpath(name))
        inside, outside = place / "inside", place / "outside"
        inside.mkdir()
        outside.mkdir()
        script = f"echo > {inside}/yes; echo > {outside}/no"
        try:
            start, _ = make(Policy((inside,)))
            with start(
                ["/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as process:
                said = process.communicate(timeout=10)[1].decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired as error:
            return str(error)
        if (outside / "no").exists():
            return "it did not stop a write"
        return "" if (inside / "yes").exists() else said.splitlines()[-1][:200] if said else "nothing can be run in it"


# -- bubblewrap


def bubblewrap(policy: Policy) -> tuple[Start, str]:
    """Bubblewrap, which builds a view of the file system for the command (bwrap(1)).

    A process namespace of its own keeps it from other processes' environment; what it leaves running ends with it.
    """
    program = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")  # never one from the project's PATH
    if program is None:
        raise FileNotFoundError("bwrap is not installed")

    def start(args: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([program, *bubblewrap_arguments(policy), "--", *args], **options)

    return start, "unix sockets and, unless offline, the network"


def bubblewrap_arguments(policy: Policy) -> list[str]:
    """The options for `policy`. Later ones lie on top of earlier ones."""
    options = ["--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in policy.writable:
        options += ["--bind", str(path), str(path)]
    for path in filter(os.path.isdir, sorted({place.parent for place in policy.guarded})):
        if any(path.is_relative_to(each) for each in policy.writable):
            options += ["--bind", str(path), str(path)]  # else it could be moved away from under what follows
    for path in policy.guarded:
        if path.exists() and not path.is_symlink():  # on a link nothing can be mounted, and where it leads is guarded
            options += ["--ro-bind", str(path), str(path)]
    for path in filter(os.path.exists, policy.hidden):
        options += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    options += ["--unshare-net"] if policy.offline else []
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        for name in KEPT_CAPABILITIES:
            options += ["--cap-add", name]
    return options


# -- Landlock


def landlocked(policy: Policy) -> tuple[Start, str]:
    """Landlock and seccomp: each command is started from a thread of its own that was confined for good.

    So a command can signal what it started, and nothing else, also nothing that an earlier one left running. A rule is
    about what is at a path now: what comes to lie beside something hidden can be read by the next command.
    """
    if landlock.abi() < landlock.LEAST_ABI:
        raise OSError("this kernel has no Landlock, or one that is too old (before 6.2)")
    for place in policy.hidden:
        if os.path.exists(place) and any(place.is_relative_to(writable) for writable in policy.writable):
            raise OSError(
                f"it cannot hide {place}, which lies where commands may write; a home directory elsewhere, or "
                "CORECODER_HOME for CoreCoder's own files, would do"
            )

    # With a person at the terminal, what is shown there and typed there is nothing for a command: it could paint over a
    # question. The price: it cannot open terminals of its own either.
    watched = any(map(os.isatty, range(3)))
    devices = [device for device in _DEVICES if not (watched and device in ("/dev/pts", "/dev/tty"))]
    scoped = "" if landlock.abi() >= landlock.SCOPING_ABI else "signals to other processes, "

    def start(args: list[str], **options: Any) -> subprocess.Popen[bytes]:
        def confined() -> subprocess.Popen[bytes]:
            landlock.restrict(
                readable=_siblings("/", policy.hidden),
                writable=[*map(str, policy.writable), *devices],
                offline=policy.offline,
                capabilities=KEPT_CAPABILITIES.values(),
            )
            return subprocess.Popen(args, **options)

        landlock.hide_this_process()
        return aside(confined)

    return start, (
        f"the modes, times and owners of files outside, the names of hidden ones, {scoped}unix sockets and, unless "
        "offline, the network"
    )


def _siblings(place: str, hidden: Iterable[Path]) -> Iterator[str]:
    """Everything beneath `place` without what is hidden, as few paths as will do. No links: what they point to is there
    by itself, unless it holds something hidden."""
    covered = set(map(str, hidden))
    above = {str(parent) for path in hidden for parent in path.parents} - covered
    places = [place]
    while places:
        place = places.pop()
        if place in covered:
            continue
        if place not in above:
            yield place
            continue
        try:
            with os.scandir(place) as entries:
                places += [entry.path for entry in entries if not entry.is_symlink()]
        except OSError:
            continue


# -- seatbelt


def seatbelt(policy: Policy) -> tuple[Start, str]:
    """macOS's own sandbox. Nobody with a Mac has tried it yet."""
    program = "/usr/bin/sandbox-exec"
    if sys.platform != "darwin" or not os.path.exists(program):
        raise FileNotFoundError("it is part of macOS")

    def start(args: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([program, *seatbelt_arguments(policy), *args], **options)

    return start, "signals to other processes and, unless offline, the network; untried so far"


def seatbelt_arguments(policy: Policy) -> list[str]:
    """Profile and parameters for sandbox-exec(1). Paths are parameters only, so none can be read as a rule; the last
    rule that fits counts."""
    places = {
        "W": (*policy.writable, Path("/dev")),
        "G": policy.guarded,
        "H": policy.hidden,
    }
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    actions = {"W": "(allow file-write*", "G": "(deny file-write*", "H": "(deny file-read* file-write*"}
    parameters: list[str] = []
    for letter, paths in places.items():
        for number, path in enumerate(paths):
            parameters += ["-D", f"{letter}{number}={path}"]
            rules.append(f'{actions[letter]} (subpath (param "{letter}{number}")))')
    if policy.offline:
        rules.append("(deny network*)")
    return ["-p", "\n".join(rules), *parameters]


BACKENDS: dict[str, Callable[[Policy], tuple[Start, str]]] = {
    "bubblewrap": bubblewrap,
    "landlock": landlocked,
    "seatbelt": seatbelt,
}
