"""What of a person's home directory matters to a sandbox: keys, which no confined command sees, and the caches of
package managers and compilers, which it may write.

The price of lists: a key that lies elsewhere can be read, and a tool whose cache is not here has to be asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Keys, passwords, what was typed, browsers' and other agents' files.
HIDDEN = (
    ".ssh .gnupg .aws .azure .config/gcloud .config/gh .config/glab-cli .config/hub .config/op .config/doctl .kube "
    ".docker/config.json .netrc .git-credentials .config/git/credentials .npmrc .pypirc .pgpass .my.cnf .vault-token "
    ".m2/settings.xml .m2/settings-security.xml .s3cfg .boto .config/rclone .cargo/credentials .cargo/credentials.toml "
    ".password-store .local/share/keyrings .terraform.d Library/Keychains Library/Cookies "
    ".bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history .sqlite_history "
    ".local/share/fish/fish_history .mozilla .config/google-chrome .config/chromium .config/BraveSoftware "
    ".config/microsoft-edge .config/vivaldi .config/opera snap/firefox snap/chromium .claude .claude.json .codex "
    ".gemini .qwen .pi .aider .cursor .config/github-copilot .local/share/opencode"
).split()
HIDDEN_ANYWHERE = ("/run/secrets",)  # where containers are given theirs

# Only what is fetched or built again: pnpm, yarn and poetry keep programs beside their caches, and git's hooks run what
# pre-commit keeps in its own.
_CACHES = (
    ".cache/pip .cache/uv .cache/pypoetry/cache .cache/pypoetry/artifacts .cache/go-build .cache/yarn .npm "
    ".yarn/berry .yarn/cache .pnpm-store .cache/pnpm .local/share/pnpm/store .cargo/registry .cargo/git go/pkg/mod "
    ".gradle/caches .m2/repository"
).split()


def caches(home: Path, path: str) -> Iterator[Path]:
    """The caches below `home`, but none from which programs are run by their names, `path` being $PATH."""
    programs = [Path(os.path.realpath(each)) for each in path.split(os.pathsep) if each]
    for name in _CACHES:
        cache = Path(os.path.realpath(home / name))
        if not any(each.is_relative_to(cache) for each in programs):
            yield cache
