"""The command line: reads the flags and hands over to a one-shot run, the REPL or the demo.

Imports are late on purpose: `--version` loads nothing but this file, a one-shot run no terminal library, and a usage
error no model client. That is the price of this module: its imports stand in its functions.
"""

from __future__ import annotations

import sys

from . import __version__

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from .config import Config
    from .editor import Editor
    from .terminal import Screen, Signals
    from .ui import Ui

USAGE, ERROR, INTERRUPTED = 2, 1, 130


def main(argv: list[str] | None = None) -> int:
    """Runs the program and gives its exit code; never raises and never shows a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["-v"], ["--version"]):
        return _show_version()
    try:
        return _guarded(arguments, last=argv is None)
    except KeyboardInterrupt:
        if argv is None:  # the same while Python shuts down would end in a traceback or another exit code
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return INTERRUPTED


def _show_version() -> int:
    if sys.stdout is None:
        return ERROR
    try:
        sys.stdout.write(f"corecoder {__version__}\n")
        sys.stdout.flush()
    except OSError:
        return ERROR
    return 0


def _guarded(arguments: list[str], *, last: bool) -> int:
    """Turns whatever is raised into one line on standard error and an exit code; `last` if the process ends then."""
    import gc

    from .errors import ConfigError, CoreCoderError
    from .terminal import Screen, Signals, fill_descriptors

    if last:  # until the client is loaded: imports make no garbage, and looking for it takes a tenth of the start
        gc.disable()
    fill_descriptors()
    out, err = Screen(sys.stdout), Screen(sys.stderr)
    code = ERROR
    try:
        args = parse(arguments)
        if args.help:
            out.line(build_parser().format_help().rstrip())
            return 0 if out.failed is None else ERROR
        if args.version:
            return _show_version()
        with Signals(last=last) as signals:
            return _run(args, out, err, signals, last=last)
    except ConfigError as error:
        code, words = USAGE, str(error)
    except CoreCoderError as error:
        words = str(error)
    except Exception as error:  # noqa: BLE001 - the last resort: a line instead of a traceback
        words = _mishap(error)
    err.prose(f"corecoder: {words}", "red")
    return code


def _mishap(error: Exception) -> str:
    """An exception that nobody expected, in a line: the system's own words, or where in the code it happened."""
    if isinstance(error, OSError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""
    return f"internal error: {type(error).__name__}: {error}{where}. The session is kept; `corecoder -c` goes on."


def build_parser() -> argparse.ArgumentParser:
    """The flags. Values are checked where settings are read, so a wrong one is named alike wherever it stands."""
    import argparse  # a quarter of the start-up time of --version

    from .errors import ConfigError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override] # it raises, which is no return either
            raise ConfigError(f"{message} (corecoder --help shows the flags)")

    parser = Parser(
        prog="corecoder",
        description="A terminal coding agent. Without -p it opens a prompt; a pipe joins or replaces -p.",
        epilog="exit codes: 0 done, 1 error, 2 usage, 3 a limit was reached, 4 the last step had something refused, "
        "75 try again later, 130 interrupted",
        allow_abbrev=False,
        add_help=False,
    )
    add = parser.add_argument
    add("-p", "--prompt", nargs="?", const=None, default=_NOT_GIVEN, metavar="TEXT", help="one turn, then exit")
    add("-m", "--model", metavar="NAME", help="the model, or provider/model")
    add("--base-url", metavar="URL", help="address of an OpenAI-compatible server")
    add("--api-key", metavar="KEY", help="its key; better kept in the environment")
    add("--local", action="store_true", help="use a model server on this machine")
    add("-c", "--continue", dest="resume_last", action="store_true", help="go on with the last session of this project")
    add("-r", "--resume", nargs="?", const="", metavar="ID", help="go on with a session; without ID, pick one")
    add("--mode", metavar="MODE", help="ask (default), auto (default with -p), plan, yolo")
    add("--yes", action="store_true", help="everything runs without a question (--mode yolo)")
    add("--trust", action="store_true", help="use the project's own settings, in this run")
    add("--sandbox", metavar="NAME", help="auto (default), required, off, bubblewrap, landlock, seatbelt")
    add("--offline", action="store_true", default=None, help="commands in the sandbox have no network")
    add("--max-steps", metavar="N", help="model requests in one turn (default 500)")
    add("--no-stdin", action="store_true", help="do not read standard input")
    add("--demo", action="store_true", help="play a small task offline; needs no key")
    add("-h", "--help", action="store_true", help="show this")
    add("-v", "--version", action="store_true", help="show the version")
    return parser


_NOT_GIVEN = "\0"  # tells `-p` without a text (the prompt comes through the pipe) from no -p at all


def parse(arguments: list[str]) -> argparse.Namespace:
    """The flags as given. Raises ConfigError for unknown ones and for those that contradict each other."""
    from .errors import ConfigError

    args = build_parser().parse_args(_joined(arguments))
    args.one_shot = args.prompt != _NOT_GIVEN
    args.prompt = args.prompt if args.one_shot else None
    session = args.resume_last or args.resume is not None
    for wrong, words in (
        (args.prompt is not None and not args.prompt.strip(), "the prompt given with -p is empty"),
        (
            args.resume_last and args.resume is not None,
            "-c goes on with the last session and -r with another one; give one of them",
        ),
        (
            args.one_shot and args.resume == "",
            "-r needs the id of a session when there is a prompt; corecoder -r lists them",
        ),
        (args.local and args.base_url, "--local looks for a server and --base-url names one; give one of them"),
        (
            args.yes and args.mode not in (None, "yolo"),
            f"--yes means --mode yolo and contradicts --mode {args.mode}; give one of them",
        ),
        (args.demo and (args.one_shot or session), "--demo plays a task of its own; it takes no prompt and no session"),
    ):
        if wrong:
            raise ConfigError(words)
    return args


def _joined(arguments: list[str]) -> list[str]:
    """Ties a prompt that begins with a dash to its flag; argparse would take `-p "-v is broken"` for two flags."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in ("-p", "--prompt") and argument.startswith("-") and len(argument.split()) > 1:
            joined[-1] = f"--prompt={argument}"
        else:
            joined.append(argument)
    return joined


def _run(args: argparse.Namespace, out: Screen, err: Screen, signals: Signals, *, last: bool) -> int:
    """Runs what the flags ask for. Before that nothing is open that would need closing, so a signal ends it on the
    spot: an exception in the midst of an import can get lost."""
    import os

    def leave() -> None:
        os._exit(signals.exit_code or ERROR)

    with signals.cancelling(leave if last else None):
        front_end = _front_end(args, out, err, signals, last=last)
    return front_end()


def _front_end(
    args: argparse.Namespace, out: Screen, err: Screen, signals: Signals, *, last: bool
) -> Callable[[], int]:
    """What the flags ask for, ready to run. Each import stands where nothing that comes before needs it."""
    if args.demo:
        from .demo import play

        return lambda: play(out=out, err=err, signals=signals)
    directory = _directory()
    one_shot = args.one_shot or sys.stdin is None or not sys.stdin.isatty()
    names = "model base_url api_key mode yes sandbox offline max_steps local trust".split()
    flags = {name: getattr(args, name) for name in names}
    flags["prompt"] = (args.prompt or "") if one_shot else None
    if args.local:
        from .firstrun import local_flags

        flags |= local_flags(args.model, err)
    if not one_shot:
        return _interactive(args, flags, directory, out, signals, last=last)
    config = _settled(flags, directory, err)
    if config is None:
        return lambda: USAGE
    if args.resume == "" and not args.one_shot:
        from .commands import list_sessions

        list_sessions(out, config.home, directory)
        return lambda: 0
    from . import print_mode
    from .app import build_agent

    # The model client loads while the session is opened, a sandbox looked for and the pipe read.
    agent = build_agent(config, directory=directory, resume=_resumed(args), begin=print_mode.warm_up)
    agent.workspace.processes.sole = last
    stdin = None if args.no_stdin else sys.stdin
    return lambda: print_mode.one_shot(agent, args.prompt or "", stdin, out=out, err=err, signals=signals)


def _resumed(args: argparse.Namespace) -> str | None:
    return "latest" if args.resume_last else args.resume or None


def _interactive(
    args: argparse.Namespace,
    flags: dict[str, object],
    directory: Path,
    out: Screen,
    signals: Signals,
    *,
    last: bool,
) -> Callable[[], int]:
    """A conversation, ready to run. Where the terminal can do it, its input line comes first and the agent loads
    behind it."""
    import os

    if not out.terminal or os.environ.get("TERM") in (None, "", "dumb"):
        from .ui import Plain

        plain = Plain(out, signals)
        return lambda: _converse(args, flags, directory, out, signals, plain, None, last=last)
    from .editor import Editor

    editor = Editor(signals)
    return lambda: editor.run(
        lambda: _converse(args, flags, directory, editor.screen, signals, editor, editor, last=last)
    )


def _converse(
    args: argparse.Namespace,
    flags: dict[str, object],
    directory: Path,
    screen: Screen,
    signals: Signals,
    ui: Ui,
    editor: Editor | None,
    *,
    last: bool,
) -> int:
    """Settings, agent, conversation."""
    config = _settled(flags, directory, screen, ui)
    if config is None:
        return USAGE
    from .app import build_agent
    from .print_mode import warm_up
    from .repl import Repl

    agent = build_agent(config, directory=directory, interactive=True, resume=_resumed(args), begin=warm_up)
    agent.workspace.processes.sole = last
    repl = Repl(agent, config, flags, screen, signals, ui)
    if editor is not None:
        repl.attach(editor)
    return repl.loop(*(["/resume"] if args.resume == "" else []))


def _settled(flags: dict[str, object], directory: Path, err: Screen, ui: Ui | None = None) -> Config | None:
    """The settings of this run; None, after words on what to do, where they do not suffice to send a request. `ui` is
    where the person can be asked."""
    from .config import load_config

    config = load_config(flags, cwd=directory)
    for warning in config.warnings:
        err.prose(f"warning: {warning}", "yellow")
    if not config.missing:
        return config
    if config.configured:
        err.prose(f"corecoder: {config.missing}", "red")
        return None
    from . import firstrun  # needed for nothing else
    from .providers import find_local_servers

    servers = find_local_servers()
    if servers and ui is not None and firstrun.offer(servers, ui):
        flags |= firstrun.chosen(servers[0], None, err)
        return load_config(flags, cwd=directory)
    err.line(firstrun.ways_on(config, servers))
    return None


def _directory() -> Path:
    """The current directory. Raises ConfigError if it is gone or cannot be looked into."""
    import os
    from pathlib import Path

    from .errors import ConfigError

    try:
        directory = Path.cwd()
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise ConfigError(f"the current directory cannot be used ({words}); change to another one") from None
    if not os.access(directory, os.R_OK | os.X_OK):
        raise ConfigError(f"{directory} cannot be read; change its permissions or start in another directory")
    return directory
