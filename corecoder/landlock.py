"""Landlock and seccomp by system call: what a thread of this process, and all it starts, may still do (Linux).

Both restrict the calling thread for good and are inherited by its children. The packages for it are alpha or want a
newer kernel, and these are five system calls. Sources: landlock(7) and the kernel's "Landlock: unprivileged access
control"; seccomp(2). Truncation (version 3 of the interface, Linux 6.2) is the least that is taken: before it, a
command could empty any file it cannot write.
"""

from __future__ import annotations

import functools
import os
import platform
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Any

LEAST_ABI = 3
SCOPING_ABI = 6  # from which on signals stay within what was started (Linux 6.12)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1
_SET_DUMPABLE, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 4, 38, 22, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_CHANGE = ((1 << 14) - (1 << 4)) | _WRITE_FILE | _TRUNCATE  # remove, make, rename, write, truncate
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES = 0b11  # abstract unix sockets and signals to the outside

# linux/audit.h; the numbers of socket(2), socketpair(2) and io_uring_setup(2), which opens sockets as well.
_MACHINES = {"x86_64": (0xC000003E, (41, 53, 425)), "aarch64": (0xC00000B7, (198, 199, 425))}
_X32 = 0x40000000  # x86_64: numbers above are those of a second interface
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 13  # EACCES
_AF_UNIX = 1


def abi() -> int:
    """The version of Landlock's interface that this kernel has, 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, _call("syscall", _CREATE_RULESET, None, 0, _VERSION, checked=False))


def restrict(
    *, readable: Iterable[str], writable: Iterable[str], offline: bool = False, capabilities: Iterable[int] = ()
) -> None:
    """Lets the calling thread read files only beneath `readable` and change things only beneath `writable`.

    Directories can be listed and programs started everywhere. `offline` leaves it only unix sockets, and root keeps
    no more than `capabilities`: some would read other processes' memory. There is no way back.
    Raises OSError where the kernel cannot do it.
    """
    version = abi()
    if version < LEAST_ABI:
        raise OSError("Landlock is not there, or too old")
    handled = _EXECUTE | _READ_FILE | _READ_DIR | _CHANGE | (_IOCTL_DEV if version >= 5 else 0)
    attributes = struct.pack("QQQ", handled, 0, _SCOPES)[: 24 if version >= SCOPING_ABI else 8]
    ruleset = _call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    try:
        _allow(ruleset, "/", _EXECUTE | _READ_DIR)
        for path in readable:
            _allow(ruleset, path, _READ_FILE)
        for path in writable:
            _allow(ruleset, path, handled)
        _call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("syscall", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    _keep_capabilities(sum(1 << number for number in capabilities))
    if offline:
        _only_unix_sockets()


def hide_this_process() -> None:
    """Nobody but root can read this process's memory and environment any more, not even a command from one of its own
    confined threads, which counts as one of them for as long as that thread lives (prctl(2), PR_SET_DUMPABLE)."""
    _call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)


def _keep_capabilities(kept: int) -> None:
    """capget(2), with the header of version 3."""
    header, sets = struct.pack("Ii", 0x20080522, 0), _buffer(bytes(24))
    _call("capget", header, sets)
    effective, permitted, *_ = struct.unpack("6I", sets)
    _call("capset", header, struct.pack("6I", effective & kept, permitted & kept, 0, 0, 0, 0))


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Adds a rule for what is at `path` now; nothing there, no rule."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_A_FILE
        _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _only_unix_sockets() -> None:
    """A filter that refuses to make a socket of any family but one (seccomp(2), "Filters")."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(f"no filter for {platform.machine()}")
    architecture, (make, pair, ring) = machine
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, JMP|JEQ, JMP|JGE, RET|K
    program = [
        (load, 0, 0, 4),  # the architecture
        (equal, 0, 7, architecture),
        (load, 0, 0, 0),  # the number of the call
        (at_least, 5, 0, _X32),
        (equal, 4, 0, ring),
        (equal, 1, 0, make),
        (equal, 0, 3, pair),
        (load, 0, 0, 16),  # its first argument, the family
        (equal, 1, 0, _AF_UNIX),
        (give, 0, 0, _DENY),
        (give, 0, 0, _ALLOW),
    ]
    code = _buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    _call("prctl", _SET_SECCOMP, _FILTER, struct.pack("HxxxxxxP", len(program), _address(code)), 0, 0)


@functools.cache
def _library() -> Any:
    import ctypes  # as below

    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any, checked: bool = True) -> int:
    """A function of the C library. Raises OSError for its errno, if `checked`."""
    import ctypes  # 4 ms, only once a sandbox is looked for

    numbers = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result = int(getattr(_library(), name)(*numbers))
    if result < 0 and checked:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _buffer(content: bytes) -> Any:
    """Memory that stays where it is."""
    import ctypes  # as above

    return (ctypes.c_char * len(content)).from_buffer(bytearray(content))


def _address(buffer: Any) -> int:
    import ctypes  # as above

    return ctypes.addressof(buffer)
