"""Which files probably hold secrets: keys, passwords, tokens. A read of one needs somebody's word.

Decided by names, of the path as it is written and of its real location, whether the file exists or not; only of a
`.pem` that a search comes to is looked whether it holds a key. The price of names: a certificate that is public asks
all the same where it is named, and a password in `notes.txt` does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from pathlib import Path

from .config import corecoder_home
from .errors import ConfigError
from .homeplaces import HIDDEN, HIDDEN_ANYWHERE
from .prompt import AGENTS
from .sessiondir import project_directory
from .tool import Workspace
from .values import dataclass

_SURE = re.compile(
    r"(?:\.env[._-](?!example$|sample$|template$|dist$|defaults?$).+"
    r"|(?!\.?(?:example|sample|template|dist|defaults?)\.).*\.env"
    r"|\.envrc|\.?_?netrc|\.pgpass|\.my\.cnf|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd|\.\w+_history|id_[^.]+"
    r"|\.?credentials\.json|.*\.(?:key|p12|pfx|jks|keystore|kdbx|ppk))(?:~|\.(?:bak|backup|old|orig|save|sw[a-p]))*",
    re.IGNORECASE,
)
_MAYBE_PUBLIC = re.compile(r".*\.pem", re.IGNORECASE)
_PLACES = re.compile(
    r"/(?:\.ssh|\.aws|\.gnupg|\.kube|\.azure|\.password-store|\.docker/config\.json|\.config/(?:gcloud|gh|op)"
    r"|\.local/share/keyrings)(?:/|$)|^/etc/(?:g?shadow|sudoers|ssh/ssh_host_[^/]+_key$)|^/proc/.*/(?:environ|mem)$"
    r"|^/proc/kcore$|^/dev/(?:k?mem|port)$|^/proc/.*/(?:root|cwd|fd)/"  # the last lead anywhere
    + "".join(f"|^{re.escape(each)}(?:/|$)" for each in HIDDEN_ANYWHERE),
    re.IGNORECASE,
)
# Below the home directory everything that no confined command may see.
_AT_HOME = re.compile(rf"(?:{'|'.join(map(re.escape, HIDDEN))})(?:/|$)", re.IGNORECASE)
_NONE = frozenset[str]()
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv"})
_SPECIAL = re.compile(r"^/(?:etc|proc|dev)(?:/|$)|/\.docker$", re.IGNORECASE)  # where _PLACES names single files
_MOST_ENTRIES = 10_000
_PEM_BYTES = 1 << 16


class TooMany(Exception):
    """There are too many files to look through."""


@dataclass(frozen=True)
class SecretFiles:
    """`own` is CoreCoder's home, whose files are secret but for those that are `free` to read."""

    own: str = ""
    free: tuple[str, ...] = ()

    def named(self, path: str) -> bool:
        """Whether the absolute `path`, or what it leads to, is a file that probably holds a secret; that holds as well
        for a path of which it cannot be known where it leads."""
        try:
            real = os.path.realpath(path)
        except OSError:  # another process's root: a link that others may not read
            return True
        return any(self._named(each, real) for each in dict.fromkeys((os.path.normpath(path), real)))

    def below(
        self,
        directory: str,
        *,
        hidden: bool,
        follow: bool = False,
        names: Iterable[str] = (),
        passed_over: frozenset[str] = _NONE,
    ) -> Iterator[str]:
        """The secret files below `directory` that a search comes to.

        `hidden` says whether it reads hidden files, `follow` whether it follows links, `names` (patterns of fnmatch)
        which files alone it reads, `passed_over` which directories it does not look into. Raises TooMany.
        """
        wanted = [re.compile(translate(each), re.IGNORECASE).match for each in names]
        # What nobody looks for is passed over, but not where a link in it may lead anywhere.
        passed = _NONE if follow else _SKIPPED | passed_over
        left, waiting, seen = _MOST_ENTRIES, [directory], set[tuple[int, int]]()
        while waiting:
            top = waiting.pop()
            inside, special = self.named(top), bool(_SPECIAL.search(top))
            for entry in _entries(top):
                left -= 1
                if left < 0:
                    raise TooMany
                name = entry.name
                link = entry.is_symlink()
                if (link and not follow) or (name[0] == "." and not hidden):
                    continue
                if entry.is_dir() and not (link and _is_known(entry, seen)):
                    waiting += [entry.path] if name not in passed else []
                elif wanted and not any(match(name) for match in wanted):
                    continue
                # The real location is looked up, which takes time, only where it may say more than the name.
                elif inside or (
                    self.named(entry.path)
                    if special or link or _SURE.fullmatch(name)
                    else name[-4:].lower() == ".pem" and _holds_key(entry.path)
                ):
                    yield entry.path

    def is_found(self, path: str) -> bool:
        """Whether a search that comes to the file at `path` comes to a secret."""
        return self.named(path) and not (_MAYBE_PUBLIC.fullmatch(os.path.basename(path)) and not _holds_key(path))

    def among(self, top: str, names: Iterable[str]) -> Iterator[str]:
        """The secret files among very many `names` in the directory `top`; of few of them it is looked where they
        lead."""
        homes = _homes()
        own = (*{f"{each}/" for each in (self.own, os.path.realpath(self.own))},) if self.own else ()
        places: dict[str, bool] = {}
        for path in (f"{top}/{name}" for name in names):
            folder, _, name = path.rpartition("/")
            if folder not in places:
                places[folder] = bool(_PLACES.search(f"{folder}/") or _SPECIAL.search(folder))
            at_home = any(path.startswith(f"{home}/") and _AT_HOME.match(path, len(home) + 1) for home in homes)
            special = at_home or places[folder] or path.startswith(own)
            if (special or _SURE.fullmatch(name) or _MAYBE_PUBLIC.fullmatch(name)) and self.is_found(path):
                yield path

    @property
    def patterns(self) -> list[str]:
        """Regular expressions, without case, of the paths of secret files, for who cannot ask here; a certificate
        counts as well."""
        within = f"{_SURE.pattern}|{_MAYBE_PUBLIC.pattern}".replace(".*", "[^/]*").replace(".+", "[^/]+")
        names = f"(?:^|/)(?:{within.replace('[^.]+', '[^./]+')})$"
        found = [names, _PLACES.pattern, *(f"^{re.escape(home)}/{_AT_HOME.pattern}" for home in _homes())]
        if self.own:
            free = "|".join(re.escape(os.path.relpath(each, self.own)) for each in self.free)
            found.append(f"^{re.escape(os.path.realpath(self.own))}/(?!(?:{free})(?:/|$))")
        return found

    def _named(self, path: str, real: str) -> bool:
        parts = path.replace(os.sep, "/")
        if _PLACES.search(parts) or any(
            parts.startswith(f"{home}/") and _AT_HOME.match(parts, len(home) + 1) for home in _homes()
        ):
            return True
        if self.own and _inside(path, self.own) and not any(_inside(path, each) for each in self.free):
            return True
        name = os.path.basename(path)
        return bool(_SURE.fullmatch(name) or _MAYBE_PUBLIC.fullmatch(name)) and not os.path.isdir(real)


def told(path: str, root: Path) -> str:
    """`path` for a person or a model, relative to the project, and what it leads to where that is another file."""
    try:
        real = os.path.realpath(path)
        path, real = (
            os.path.relpath(each, top) if Path(each).is_relative_to(top) else os.path.normpath(each)
            for each, top in ((path, root), (real, os.path.realpath(root)))
        )
    except OSError:
        return path
    return path if path == real else f"{path} (a link to {real})"


def secret_files(workspace: Workspace) -> SecretFiles:
    """CoreCoder's own files count as secret, but for what the model is told to read: logs and AGENTS.md."""
    try:
        home = corecoder_home()
    except ConfigError:
        return SecretFiles()
    return SecretFiles(str(home), (str(project_directory(home, workspace.root)), str(home / AGENTS)))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as scan:
            return list(scan)
    except OSError:
        return []  # a search cannot read it either


def _is_known(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> bool:
    """Whether a linked directory was come to before, as in a circle."""
    info = entry.stat()
    place = (info.st_dev, info.st_ino)
    known = place in seen
    seen.add(place)
    return known


def _holds_key(path: str) -> bool:
    """Whether a `.pem` holds a private key: a certificate is public, and every other project has some."""
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            return b"PRIVATE KEY" in file.read(_PEM_BYTES)
    except OSError:
        return False


def _homes() -> tuple[str, str]:
    """The home directory, by either of its names."""
    home = os.path.expanduser("~")
    return home.replace(os.sep, "/"), os.path.realpath(home).replace(os.sep, "/")


def _inside(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or lies in it, by either name of the directory."""
    path = os.path.join(os.path.normcase(path), "")
    return any(
        path.startswith(os.path.join(os.path.normcase(each), "")) for each in (directory, os.path.realpath(directory))
    )
