"""Which files probably hold secrets: keys, passwords, tokens. A read of one needs somebody's word.

Decided by names, of the path as it is written and of its real location, whether the file exists or not; contents are
never looked at. The price of names: a certificate that is public asks all the same, and a password in `notes.txt`
does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from .sandbox import HIDDEN
from .values import dataclass

_SURE = re.compile(
    r"\.env\.(?!example$|sample$|template$|dist$|defaults?$).+|(?!\.?(?:example|sample|template|dist|defaults?)\.).*\.env"
    r"|\.envrc|\.?_?netrc|\.pgpass|\.my\.cnf|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd|\.\w+_history|id_[^.]+"
    r"|\.?credentials\.json|.*\.(?:key|p12|pfx|jks|keystore|kdbx|ppk)",
    re.IGNORECASE,
)
_MAYBE_PUBLIC = re.compile(r".*\.pem", re.IGNORECASE)
_PLACES = re.compile(
    r"/(?:\.ssh|\.aws|\.gnupg|\.kube|\.azure|\.password-store|\.docker/config\.json|\.config/(?:gcloud|gh|op)"
    r"|\.local/share/keyrings)(?:/|$)|^/etc/(?:g?shadow|sudoers|ssh/ssh_host_[^/]+_key$)|^/proc/.*/(?:environ|mem)$"
    r"|^/proc/kcore$|^/dev/(?:k?mem|port)$|^/proc/.*/(?:root|cwd|fd)/",  # the last lead anywhere
    re.IGNORECASE,
)
# Below the home directory everything that no confined command may see, and more that is only a file.
_AT_HOME = re.compile(
    rf"(?:{'|'.join(map(re.escape, (*HIDDEN, '.config/git/credentials', '.vault-token')))})(?:/|$)", re.IGNORECASE
)
_NONE = frozenset[str]()
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv"})
_MOST_ENTRIES = 5_000


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

    def below(self, directory: str, *, hidden: bool, follow: bool = False, names: Iterable[str] = ()) -> str:
        """A secret file below `directory` that a search comes to, "" if there is none.

        `hidden` says whether it reads hidden files, `follow` whether it follows links to directories, `names` (patterns
        of fnmatch) which files alone it reads. A `.pem` may as well be public, so one that lies about in a tree does
        not count here. Raises TooMany.
        """
        wanted = tuple(names)
        left = _MOST_ENTRIES
        for top, directories, files in os.walk(directory, followlinks=follow):
            # What nobody looks for is passed over, but not where a link in it may lead anywhere.
            passed = _NONE if follow else _SKIPPED
            directories[:] = [each for each in directories if each not in passed and (hidden or each[0] != ".")]
            left -= len(directories) + len(files)
            if left < 0:
                raise TooMany
            inside = self.named(top)
            for name in files:
                path = os.path.join(top, name)
                if name[0] == "." and not hidden:
                    continue
                if wanted and not any(fnmatchcase(name.casefold(), each.casefold()) for each in wanted):
                    continue
                # The real location is looked up, which takes time, only where it may say more than the name.
                suspect = _SURE.fullmatch(name) or _PLACES.search(path) or os.path.islink(path)
                if inside or (suspect and self.named(path)):
                    return path
        return ""

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


def _homes() -> tuple[str, str]:
    """The home directory, by either of its names."""
    home = os.path.expanduser("~")
    return home.replace(os.sep, "/"), os.path.realpath(home).replace(os.sep, "/")


def _inside(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or lies in it, by either name of the directory."""
    return any(Path(path).is_relative_to(each) for each in (directory, os.path.realpath(directory)))
