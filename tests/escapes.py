"""Attempts to get out of the sandbox: the table for the test and the figure, and the place where they are made.

A command knows $O, a directory outside; $S, a hidden file with the secret; $VICTIM, a process outside that has the
secret in its environment; $PORT, a server outside; it starts in the project. Whatever it does, afterwards nothing
outside is different, the secret was not printed, the victim lives, and what makes git run programs is as it was.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corecoder.sandbox import Policy, Sandbox, choose, policy_for

SECRET = "sk-escaped-0123456789"
PYTHON = sys.executable

WRITES = {
    "redirection": "echo x > $O/f",
    "append": "echo x >> $O/keep",
    "descriptor": "exec 3<>$O/keep; echo x >&3",
    "tee": "echo x | tee $O/f",
    "cp": "cp a $O/f",
    "mv in": "mv a $O/f",
    "mv out": "mv $O/keep .",
    "rm": "rm -f $O/keep",
    "rm -r": "rm -rf $O",
    "find": "find $O -type f -delete",
    "rmdir": "rmdir $O/empty",
    "truncate": "truncate -s 0 $O/keep",
    "dd": "dd if=/dev/zero of=$O/keep bs=1 count=1 conv=notrunc",
    "fallocate": "fallocate -l 1M $O/keep",
    "sed -i": "sed -i s/kept/lost/ $O/keep",
    "install": "install -m 755 a $O/f",
    "tar": "tar c a | tar x -C $O",
    "git clone": "git clone -q . $O/clone",
    "mkdir": "mkdir $O/d",
    "mkfifo": "mkfifo $O/p",
    "mknod": "mknod $O/n c 1 3",
    "symlink": "ln -s a $O/l",
    "hard link": "ln $O/keep h && echo x > h",
    "hard link out": "ln a $O/h",
    "through a symlink": "ln -s $O l; echo x > l/f",
    "cd": "cd $O && echo x > f",
    "dots": "echo x > ../outside/f",
    "proc self root": "echo x > /proc/self/root$O/f",
    "proc parent root": "echo x > /proc/$PPID/root$O/f",
    "proc victim root": "echo x > /proc/$VICTIM/root$O/f",
    "victim's directory": "echo x > /proc/$VICTIM/cwd/f",
    "rename exchange": f'{PYTHON} -c \'import os; os.rename("a", os.environ["O"] + "/keep")\'',
    "openat": f'{PYTHON} -c \'import os; d = os.open(os.environ["O"], 0); os.open("f", 65, dir_fd=d)\'',
    "truncate call": f'{PYTHON} -c \'import os; os.truncate(os.environ["O"] + "/keep", 0)\'',
    "unix socket": f'{PYTHON} -c \'import os, socket; socket.socket(1).bind(os.environ["O"] + "/s")\'',
    "perl": "perl -e 'open F, \">$ENV{O}/f\"; print F 1'",
    "later": "(setsid sh -c 'sleep 0.2; echo x > $O/f' >/dev/null 2>&1 &); sleep 0.4",
    "remount": "mount -o remount,rw / ; echo x > $O/f",
    "bind mount": "mount --bind . $O && echo x > $O/f",
    "new namespace": "unshare -rm sh -c 'mount -o remount,rw,bind /; mount --bind . $O; echo x > $O/keep'",
    "chroot": "chroot / sh -c 'echo x > $O/f'",
    "nsenter": "nsenter -t $VICTIM -m sh -c 'echo x > $O/f'",
    "a kernel setting": "cat /proc/sys/kernel/domainname > /proc/sys/kernel/domainname && touch $O/f",
}
READS = {
    "cat": "cat $S",
    "source": "cat < $S",
    "copy": "cp $S . ; cat secret",
    "symlink": "ln -s $S s; cat s",
    "hard link": "ln $S s; cat s",
    "move": "mv $(dirname $S) x; cat x/secret",
    "grep -r": "grep -r sk- $(dirname $(dirname $S))",
    "tar": "tar cO $S",
    "proc root": "cat /proc/self/root$S",
    "victim's root": "cat /proc/$VICTIM/root$S",
    "mmap": f"{PYTHON} -c 'import mmap, os; f = open(os.environ[\"S\"]); print(mmap.mmap(f.fileno(), 0, prot=1)[:])'",
    "environment": "cat /proc/$VICTIM/environ",
    "all environments": "cat /proc/[0-9]*/environ",
    "our threads' environment": "cat /proc/$OUTER/task/*/environ | sed s/^/LEAK:/",
    "our memory": "head -c 1 /proc/$OUTER/task/*/mem /proc/$OUTER/mem > /dev/null && echo LEAK:",
    "ps": "ps axeww",
    "unmount": "umount $(dirname $S); umount -l $S; cat $S",
    "as root": f"{PYTHON} -c 'import os; os.setuid(0); print(open(os.environ[\"S\"]).read())'",
}
SIGNALS = {
    "kill": "kill -9 $VICTIM",
    "kill from python": f"{PYTHON} -c 'import os; os.kill(int(os.environ[\"VICTIM\"]), 9)'",
    "kill the group": "kill -9 -- -$VICTIM",
    "pkill": "pkill -9 -f escape-victim",
}
GIT = {
    "a hook": "printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "the configuration": "git config core.fsmonitor 'touch PWNED'",
    "appended": "printf '[core]\\n\\tpager = touch PWNED\\n' >> .git/config",
    "another directory of hooks": "rm -rf .git/hooks; mkdir h; ln -s ../h .git/hooks",
    "the directory moved": "mv .git g; printf '[core]\\n\\tpager = x\\n' >> g/config; mv g .git",
    "a link to the configuration": "cp .git/config c; echo >> c; ln -sf ../c .git/config",
    "another common directory": "cp -r .git ev; echo '[core]pager=x' >> ev/config; echo $PWD/ev > .git/commondir",
    "a file for the directory": "mv .git .g; cp -r .g ev; echo gitdir: ev > .git",
    "a link for the directory": "mv .git .g; cp -r .g ev; ln -s ev .git",
    "a submodule": "git -C sub config core.fsmonitor 'touch PWNED'",
    "a nested repository's hook": "echo x > inner/.git/hooks/post-checkout",
    "a nested repository's configuration": "git -C inner config core.fsmonitor 'touch PWNED'",
    "a nested repository moved": "mv inner other; echo x > other/.git/hooks/post-checkout",
    "a file for a nested repository": "mkdir m; cp -r inner/.git m/g; echo '[core]pager=x' >> m/g/config; "
    "rm -rf inner/.git; echo gitdir: $PWD/m/g > inner/.git",
    "a directory of hooks of the project": "echo x >> .githooks/pre-push; echo x > .githooks/post-merge",
    "a hook's real file": "echo x >> scripts/check",
    "a new repository with a hook": "git init -q new && echo x > new/.git/hooks/pre-commit",
    "a new repository with a setting": "git init -q new && git -C new config core.fsmonitor 'touch PWNED'",
    "a new repository with an include": "git init -q new && git -C new config include.path $PWD/evil",
    "a new repository with hooks elsewhere": "git init -q new && git -C new config core.hooksPath $PWD/hooks",
    "a new bare repository": "git init -q --bare b.git && echo x > b.git/hooks/update",
    "a new repository behind a link": "git init -q .n; echo x > .n/.git/hooks/update; mkdir n; ln -s ../.n/.git n/.git",
    "a new repository behind a file": "git init -q --separate-git-dir=odd new && echo x > odd/hooks/update",
    "a new repository with a link for its hooks": "git init -q new; rm -r new/.git/hooks; ln -s ../../a new/.git/hooks",
    "another worktree's common directory": "cp -r .git ev; echo '[core]pager=x' >> ev/config; "
    "echo $PWD/ev > .git/worktrees/tree/commondir",
    "another worktree's configuration": "printf '[core]\\n\\tpager = x\\n' > .git/worktrees/tree/config.worktree",
    "a new worktree's common directory": "cp -r .git/worktrees/tree .git/worktrees/new; mkdir ev; "
    "echo $PWD/ev > .git/worktrees/new/commondir",
    "a submodule to come": "git clone -q --bare . .git/modules/a/lib; cd .git/modules/a/lib; "
    "git config core.fsmonitor x; echo x > hooks/post-checkout",
    "a link for a submodule to come": "mkdir -p ev .git/modules/a; ln -s $PWD/ev .git/modules/a/lib",
    "a configuration per worktree": "printf '[core]\\n\\tpager = x\\n' > .git/config.worktree",
}
NETWORK = {
    "tcp": "echo x > /dev/tcp/127.0.0.1/$PORT",
    "python": f'{PYTHON} -c \'import os, socket; socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))\'',
    "listen": f'{PYTHON} -c \'import os, socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); '
    'open(os.environ["O"] + "/f", "w")\'',
    "udp": "echo x > /dev/udp/127.0.0.1/$PORT",
}
METADATA = {
    "chmod": "chmod 600 $O/keep",
    "touch": "touch -d 2001-01-01 $O/keep",
    "chown": "chown 12345 $O/keep",
}
ATTEMPTS = {
    f"{kind}: {name}": command
    for kind, commands in (
        ("write", WRITES),
        ("read", READS),
        ("signal", SIGNALS),
        ("git", GIT),
        ("network", NETWORK),
        ("metadata", METADATA),
    )
    for name, command in commands.items()
}


@dataclass
class Field:
    """One place with a project, an outside and a secret, and processes outside."""

    place: Path

    def __post_init__(self) -> None:
        self.project, self.tree, self.outside, self.hidden = (
            self.place / name for name in ("project", "tree", "outside", "hidden")
        )

    def prepare(self) -> None:
        """Makes everything afresh."""
        subprocess.run(["chmod", "-R", "u+rwX", str(self.place)], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", *map(str, (self.project, self.tree, self.outside, self.hidden))], check=True)
        for path in (self.project, self.outside / "empty", self.hidden):
            path.mkdir(parents=True)
        (self.project / "a").write_text("a\n")
        (self.outside / "keep").write_text("kept\n")
        (self.hidden / "secret").write_text(SECRET)
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        modules = self.project / ".git" / "modules"
        modules.mkdir()
        subprocess.run(
            ["git", "init", "-q", f"--separate-git-dir={modules / 'sub'}", str(self.project / "sub")], check=True
        )
        subprocess.run(["git", "init", "-q", str(self.project / "inner")], check=True)
        git = ["git", "-C", str(self.project), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        subprocess.run([*git, "worktree", "add", "-q", str(self.tree)], check=True, stderr=subprocess.DEVNULL)
        for directory in (".githooks", "scripts"):
            (self.project / directory).mkdir()
        (self.project / ".githooks/pre-push").write_text("#!/bin/sh\n")
        (self.project / "scripts/check").write_text("#!/bin/sh\n")
        (self.project / ".githooks/pre-commit").symlink_to("../scripts/check")
        subprocess.run(["git", "-C", str(self.project), "config", "core.hooksPath", ".githooks"], check=True)
        self.guarded = policy_for(self.project, self.place / "home").guarded
        self.server = socket.create_server(("127.0.0.1", 0))
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(self.server.getsockname())
        self.server.setblocking(False)
        self.datagrams.setblocking(False)
        self.victim = subprocess.Popen(
            [PYTHON, "-c", "import time; time.sleep(100)", "escape-victim"],
            env={**os.environ, "SECRET": SECRET},
            cwd=self.outside,
            start_new_session=True,
        )

    def sandbox(self, name: str, *, offline: bool = False) -> Sandbox:
        """That backend, with this place's policy. Raises ConfigError where it does not work."""
        policy = Policy((self.project,), self.guarded, (self.hidden,), offline, self.project)
        chosen, _ = choose(policy, name)
        assert chosen
        return chosen

    def attempt(self, sandbox: Sandbox, command: str) -> list[str]:
        """Runs `command` confined; what it achieved that it should not have."""
        before, runs = self._state(), self._git_runs()
        env = {
            **os.environ,
            "O": str(self.outside),
            "S": str(self.hidden / "secret"),
            "VICTIM": str(self.victim.pid),
            "OUTER": str(os.getpid()),
            "PORT": str(self.server.getsockname()[1]),
        }
        with sandbox.git.guard():
            process = sandbox.start(
                ["bash", "-c", command],
                cwd=self.project,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            output = process.communicate(timeout=30)[0]
        after = self._state()
        achieved = [f"{name} is different" for name in before if before[name] != after[name]]
        achieved += [f"git may run what {path} says" for path, now in self._git_runs().items() if now != runs.get(path)]
        if SECRET.encode() in output or b"LEAK:" in output:
            achieved.append("the secret was read")
        if self.victim.poll() is not None:
            achieved.append("a process outside was killed")
        for reached in (self.server.accept, lambda: self.datagrams.recv(9)):
            with suppress(BlockingIOError):
                reached()
                achieved.append("a server was reached")
        return achieved

    def clear(self) -> None:
        self.victim.kill()
        self.victim.wait()
        self.server.close()
        self.datagrams.close()

    def _state(self) -> dict[str, object]:
        return {
            "the outside": {str(path): _fingerprint(path) for path in [self.outside, *self.outside.rglob("*")]},
            "the secret": _fingerprint(self.hidden / "secret"),
        }

    def _git_runs(self) -> dict[Path, object]:
        """What is there of all that can make git run a program; that it is gone makes git run nothing."""
        git = self.project / ".git"
        places = [git, *self.guarded] if git.is_file() or git.is_symlink() else [*self.guarded]
        runs = {path: _fingerprint(path) for place in places for path in [place, *place.glob("*")] if path.is_file()}
        for head in self.project.rglob("HEAD"):  # whatever the directory is called in which it lies
            links = [path for path in (head.parent / "hooks", head.parent / "config") if path.is_symlink()]
            hooks = [path for path in head.parent.glob("hooks/*") if path.suffix != ".sample"]
            runs.update((path, _fingerprint(path)) for path in [*links, *hooks])
            shared = head.parent / "commondir"
            if shared.is_file() and shared.read_text() != "../..\n":
                runs[shared] = shared.read_text()
            for file in filter(Path.is_file, (head.parent / "config", head.parent / "config.worktree")):
                for line in file.read_text().splitlines():
                    if any(word in line.lower() for word in ("pager", "fsmonitor", "hookspath", "path =")):
                        runs[file / line] = line
        runs.update((path, "") for path in (git / "modules").rglob("*") if path.is_symlink())
        return runs


def _fingerprint(path: Path) -> object:
    try:
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        return str(error)
    times = () if path.is_dir() else (info.st_mtime_ns,)
    return info.st_mode, info.st_uid, content, *(times if "outside" in path.parts else ())


def run_all(place: Path, name: str) -> dict[str, list[str]]:
    """What each attempt achieved against the backend `name`; network attempts with the policy offline."""
    field = Field(place)
    results = {}
    for title, command in ATTEMPTS.items():
        field.prepare()
        try:
            sandbox = field.sandbox(name, offline=title.startswith("network"))
            results[title] = field.attempt(sandbox, command)
        finally:
            field.clear()
    return results


if __name__ == "__main__":
    started = time.monotonic()
    for title, achieved in run_all(Path(sys.argv[2]), sys.argv[1]).items():
        if achieved:
            print(title, achieved)
    print(len(ATTEMPTS), f"{time.monotonic() - started:.1f} s")
