"""One-shot runs keep their contract with scripts: what goes where, and which exit code."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server import Call, D, F, HTTPError, StrictServer, Text, call, sse

from corecoder.cli import main
from corecoder.errors import ConfigError
from corecoder.print_mode import join_prompt, read_input, warm_up
from corecoder.sandbox import Policy, choose
from corecoder.scripted import ScriptedLLM
from corecoder.terminal import Screen

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the program in this process against a server; gives exit code, standard output and standard error."""

    def run(*argv: str, server: StrictServer | None = None, stdin: bytes = b"") -> tuple[int, str, str]:
        if server is not None:
            point_at(server, monkeypatch)
        given = tmp_path / "stdin"
        given.write_bytes(stdin)
        capsys.readouterr()
        with given.open(encoding="utf-8") as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            code = main(list(argv))
        if server is not None:
            assert server.faults == []
        return code, *capsys.readouterr()

    return run


def point_at(server: StrictServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORECODER_BASE_URL", server.base_url)
    monkeypatch.setenv("CORECODER_API_KEY", "key")
    monkeypatch.setenv("CORECODER_MODEL", "scripted")


# --- what goes where ----------------------------------------------------------------------------------------------


def test_standard_output_is_the_answer_alone_and_progress_goes_to_standard_error(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("one\ntwo\n")
    with StrictServer([Text("I look."), call("read_file", file_path="a.txt")], "It has\ntwo lines.") as server:
        code, out, err = run("-p", "how long is a.txt?", server=server)
    assert (code, out) == (0, "It has\ntwo lines.\n")
    assert "I look." in err
    assert "read a.txt" in err
    assert "two lines." not in err
    assert "\x1b" not in out + err


@pytest.mark.parametrize(("term", "said"), [("xterm", "\x1b[1mIt has\x1b[0m two\n"), ("dumb", "**It has** two\n")])
def test_an_answer_that_goes_to_a_terminal_with_colour_is_laid_out(
    run: Run, monkeypatch: pytest.MonkeyPatch, term: str, said: str
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with StrictServer("**It has** two") as server, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        assert run("-p", "how long is a.txt?", server=server)[0] == 0
    assert terminal.getvalue() == said


def test_it_says_what_will_run_before_the_first_request(run: Run) -> None:
    seen: list[str] = []
    with StrictServer(lambda body: seen.append("asked") or "ok") as server:
        _, _, err = run("-p", "hi", server=server)
    assert "--yes" in err.splitlines()[0]
    assert seen == ["asked"]


def test_control_sequences_of_a_model_reach_neither_stream(run: Run) -> None:
    nasty = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[6n\x9b31m\x1b]x"
    with StrictServer([Text(f"a{nasty}"), call("read_file", file_path=nasty)], f"b{nasty}c") as server:
        _, out, err = run("-p", "hi", server=server)
    assert [char for char in out + err if char != "\n" and (char < " " or "\x7f" <= char <= "\x9f")] == []
    assert out.startswith("b")


def test_what_comes_through_a_pipe_joins_the_prompt(run: Run) -> None:
    with StrictServer("ok", "ok", "ok") as server:
        assert run("-p", "review this", server=server, stdin=b"+ new\n- old\n")[0] == 0
        assert run("-p", server=server, stdin=b"only the pipe\n")[0] == 0
        assert run("-p", "alone", "--no-stdin", server=server, stdin=b"left out")[0] == 0
        assert server.prompts() == ["review this\n\n+ new\n- old", "only the pipe", "alone"]


def test_piped_words_without_a_flag_are_a_one_shot_run(run: Run) -> None:
    with StrictServer("hello") as server:
        assert run(server=server, stdin=b"say hello\n")[:2] == (0, "hello\n")
        assert server.prompts() == ["say hello"]


def test_input_that_is_not_utf8_is_read_with_replacements_and_said_so(run: Run) -> None:
    with StrictServer("ok") as server:
        code, _, err = run("-p", "fix", server=server, stdin=b"caf\xe9 cr\xe8me")
        assert code == 0
        assert server.prompts() == ["fix\n\ncaf� cr�me"]
    assert "not UTF-8" in err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_how_input_is_read(run: Run, encoding: str) -> None:
    with StrictServer("ok") as server:
        assert run("-p", "fix", server=server, stdin="café\n".encode(encoding))[2].count("\n") == 2
        assert server.prompts() == ["fix\n\ncafé"]


def test_an_argument_that_is_not_utf8_is_no_reason_to_fail(run: Run) -> None:
    with StrictServer("ok") as server:
        assert run("-p", os.fsdecode(b"caf\xe9"), server=server)[0] == 0
        assert server.prompts() == ["caf?"]


def test_five_megabytes_through_a_pipe_are_no_reason_to_fail(run: Run) -> None:
    with StrictServer("read") as server:
        code, out, err = run("-p", "summarise", server=server, stdin=b"a line of a log file\n" * 250_000)
        assert len(server.raw[0]) < 1_000_000
    assert (code, out) == (0, "read\n")
    assert err.count("the model gets its beginning and end") == 1


def test_an_argument_that_begins_with_a_dash_can_be_a_prompt(run: Run) -> None:
    with StrictServer("ok", "ok") as server:
        assert run("-p", "-v is broken", server=server)[0] == 0
        assert run("-p", "- one\n- two", server=server)[0] == 0
        assert server.prompts() == ["-v is broken", "- one\n- two"]


def test_the_session_is_kept_and_goes_on(run: Run) -> None:
    with StrictServer("first", "second") as server:
        run("-p", "one", server=server)
        run("-c", "-p", "two", server=server)
        said = [message["content"] for message in server.requests[1]["messages"][1:]]
        assert said == ["one", "first", "two"]


# --- exit codes ---------------------------------------------------------------------------------------------------


def test_a_limit_on_steps_ends_with_3_and_says_so(run: Run) -> None:
    with StrictServer(forever=call("glob", pattern="*")) as server:
        code, _, err = run("--max-steps", "2", "-p", "go", server=server)
        assert len(server.requests) == 2
        assert code == 3
        assert "stopped after 2 steps, the limit set by --max-steps" in err
        assert "after 1 step," in run("--max-steps", "1", "-p", "go", server=server)[2]


def test_a_window_in_which_nothing_can_be_sent_makes_no_session(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORECODER_MAX_CONTEXT", "1500")
    with StrictServer() as server:
        code, _, err = run("-p", "go", server=server)
    assert code == 1
    assert "the context window is too small" in err
    assert "corecoder -c" not in err
    assert not list(home.rglob("*.jsonl"))


def test_something_refused_in_the_last_step_ends_with_4(run: Run, project: Path) -> None:
    with StrictServer(call("bash", command="touch made"), "I was not allowed to.") as server:
        code, out, err = run("--sandbox", "off", "-p", "make a file", server=server)
    assert (code, out) == (4, "I was not allowed to.\n")
    assert "refused" in err
    assert not (project / "made").exists()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_task_runs_its_commands_confined_without_a_word_from_anybody(
    run: Run, project: Path, tmp_path: Path, backend: str
) -> None:
    try:
        choose(Policy((project,)), backend)
    except ConfigError as error:
        pytest.skip(str(error))
    outside = Path(os.path.expanduser("~")) / "outside"
    with StrictServer(
        [call("bash", command="echo made > made; cat made"), call("bash", command=f"echo no > {outside}")],
        call("bash", command=f"echo no > {outside}", unconfined=True),
        "done what I could",
    ) as server:
        code, out, err = run("--sandbox", backend, "-p", "make a file", server=server)
        results = [item["content"] for item in server.requests[-1]["messages"] if item["role"] == "tool"]
    assert (project / "made").read_text() == "made\n"
    assert not outside.exists()
    assert results[0].startswith("made\n[exit code 0")
    assert "with unconfined set" in results[1]
    assert results[2].startswith("Not run: it asks to leave the sandbox")
    assert f"{backend.capitalize()} confines commands" in err
    assert "Left open" in err
    assert (code, out) == (4, "done what I could\n")


def test_in_plan_mode_the_plan_is_the_answer_and_nothing_is_changed(run: Run, project: Path) -> None:
    plan = "# Plan\n\n1. Make `a`.\n2. Look at it."
    with StrictServer(call("bash", command="ls"), [Text("So:"), call("propose_plan", plan=plan)]) as server:
        code, out, err = run("-p", "make a", "--mode", "plan", server=server)
    assert (code, out) == (0, f"{plan}\n")
    assert "nothing will be changed." in err
    assert list(project.iterdir()) == []


def test_a_change_beside_the_plan_is_refused_and_counts_as_such(run: Run, project: Path) -> None:
    write = call("write_file", file_path="a", content="")
    with StrictServer([call("propose_plan", plan="# Plan"), write]) as server:
        code, out, _ = run("-p", "make a", "--mode", "plan", server=server)
    assert (code, out) == (4, "# Plan\n")
    assert list(project.iterdir()) == []


def test_a_plan_that_was_the_answer_can_be_gone_on_with(run: Run, project: Path) -> None:
    with StrictServer(call("propose_plan", plan="# Plan")) as server:
        run("-p", "make a", "--mode", "plan", server=server)
    with StrictServer(call("write_file", file_path="a", content=""), "made") as server:
        code, out, _ = run("-c", "-p", "yes, do it", server=server)
        assert "plan mode is over" in server.requests[0]["messages"][-1]["content"]
    assert (code, out) == (0, "made\n")
    assert (project / "a").exists()


@pytest.mark.parametrize("flags", [["--yes"], ["--sandbox", "off"]])
def test_no_network_without_a_sandbox_is_a_contradiction(run: Run, flags: list[str]) -> None:
    code, out, err = run("--offline", *flags, "-p", "hi", "--base-url", "http://127.0.0.1:9/v1", "-m", "m")
    assert (code, out) == (2, "")
    assert "--offline holds only in a sandbox" in err


def test_a_sandbox_that_was_demanded_and_is_not_there_is_an_error(run: Run) -> None:
    wanted = "landlock" if sys.platform == "darwin" else "seatbelt"
    code, out, err = run("--sandbox", wanted, "-p", "hi", "--base-url", "http://127.0.0.1:9/v1", "-m", "m")
    assert (code, out) == (2, "")
    assert "No sandbox works here" in err


def test_yes_allows_it(run: Run, project: Path) -> None:
    with StrictServer(call("bash", command="touch made"), "done") as server:
        assert run("--yes", "-p", "make a file", server=server)[0] == 0
    assert (project / "made").exists()


def test_a_wrong_key_is_an_error_in_the_servers_words(run: Run) -> None:
    body = {"error": {"message": "Incorrect API key provided: key.", "code": "invalid_api_key"}}
    with StrictServer(forever=HTTPError(401, body)) as server:
        code, out, err = run("-p", "hi", server=server)
        assert len(server.requests) == 1
    assert (code, out) == (1, "")
    assert "Incorrect API key" in err
    assert "Traceback" not in err
    assert "corecoder -c" in err


def test_an_unreachable_server_may_be_there_later(run: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with StrictServer() as server:
        point_at(server, monkeypatch)  # and it goes away
    home.mkdir(parents=True)
    (home / "config.toml").write_text("retry_wait_limit = 0.01\n")
    code, out, err = run("-p", "hi")
    assert (code, out) == (75, "")
    assert "error:" in err
    assert "Traceback" not in err


def test_an_unfinished_text_is_not_an_answer(run: Run) -> None:
    broken = {"error": {"message": "the server gave up", "code": 400}}
    with StrictServer(forever=sse(D("half an answer"), broken)) as server:
        code, out, err = run("-p", "hi", server=server)
    assert code in (1, 75)
    assert out == ""
    assert "the server gave up" in err


@pytest.mark.parametrize("stdin", [b"", b"\n \n"])
def test_no_prompt_at_all_is_a_usage_error(run: Run, stdin: bytes) -> None:
    with StrictServer() as server:
        for argv in (["-p"], []):
            code, out, err = run(*argv, server=server, stdin=stdin)
            assert (code, out) == (2, "")
            assert "no prompt" in err
        assert server.requests == []


def test_a_home_that_cannot_be_written_does_not_keep_it_from_answering(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORECODER_HOME", "/proc/nowhere")
    with StrictServer("hello") as server:
        code, out, err = run("-p", "hi", server=server)
    assert (code, out) == (0, "hello\n")
    assert "/proc/nowhere" in err
    assert "memory" in err


# --- reading the pipe ---------------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[io.TextIOWrapper, int]]:
    """The reading end as a stream and the writing end as a descriptor, which the test closes."""
    read, write = os.pipe()
    with open(read, encoding="utf-8") as stream:
        yield stream, write


def test_a_silent_pipe_is_said_once_and_waited_for(pipe: tuple[io.TextIOWrapper, int]) -> None:
    stream, write = pipe
    said = io.StringIO()
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(read_input(stream, Screen(said, {}), quiet=0.05)))
    reader.start()
    while "--no-stdin" not in said.getvalue():
        assert reader.is_alive()
    os.write(write, b"late")
    os.close(write)
    reader.join(10)
    assert got == ["late"]
    assert said.getvalue().count("\n") == 1


def test_a_pipe_that_ends_at_once_is_not_remarked_on(pipe: tuple[io.TextIOWrapper, int]) -> None:
    stream, write = pipe
    os.write(write, b"\xef\xbb\xbfwords")
    os.close(write)
    said = io.StringIO()
    assert read_input(stream, Screen(said, {}), quiet=60) == "words"
    assert said.getvalue() == ""


def test_a_closed_or_missing_standard_input_is_an_empty_one() -> None:
    screen = Screen(io.StringIO(), {})
    assert read_input(None, screen) == ""
    closed = io.StringIO()
    closed.close()
    assert read_input(closed, screen) == ""


def test_a_standard_input_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "write-only"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    with open(descriptor, "w", encoding="utf-8") as stream, pytest.raises(ConfigError, match="Standard input"):
        read_input(stream, Screen(io.StringIO(), {}))


def test_an_input_without_end_is_refused() -> None:
    with open("/dev/zero", encoding="utf-8") as stream, pytest.raises(ConfigError, match="larger than 64 MB"):
        read_input(stream, Screen(io.StringIO(), {}))


def test_a_prompt_is_the_flag_then_the_pipe() -> None:
    assert join_prompt(" a ", "b\n") == "a\n\nb"
    assert join_prompt("", "  indented\n") == "  indented"
    with pytest.raises(ConfigError):
        join_prompt(" ", "\n")


# --- standard output that does not take the answer ----------------------------------------------------------------


def shell(command: str, server: StrictServer) -> subprocess.CompletedProcess[str]:
    """Runs `command` in bash, with `corecoder` pointed at the server."""
    environ = {
        **os.environ,
        "CORECODER_BASE_URL": server.base_url,
        "CORECODER_API_KEY": "key",
        "CORECODER_MODEL": "scripted",
        "PYTHONWARNINGS": "error",
    }
    whole = f'corecoder() {{ "{sys.executable}" -m corecoder "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", whole], env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    with StrictServer("line\n" * 50_000) as server:
        done = shell("corecoder -p hi </dev/null | head -1; echo ${PIPESTATUS[0]}", server)
    assert done.stdout == "line\n141\n"
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output_is_an_error() -> None:
    with StrictServer("hello") as server:
        done = shell("corecoder -p hi </dev/null >/dev/full", server)
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_closed_descriptors_are_no_traceback_and_take_no_file() -> None:
    with StrictServer(forever=[Text("x"), Call("read_file", {"file_path": "none"})]) as server:
        done = shell("corecoder -p hi --max-steps 2 <&- 2>&-; echo $?", server)
        assert done.stdout.split()[-1] == "3"
        server.forever = "hello"
        done = shell("corecoder -p hi <&- >&-; echo $? >&2", server)
    assert done.stderr.split()[-1] == "1"
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_end_of_a_stream_is_not_needed_for_a_whole_answer(run: Run) -> None:
    with StrictServer(sse(D("hi"), F("stop"))) as server:
        assert run("-p", "x", server=server)[:2] == (0, "hi\n")


# --- start-up -----------------------------------------------------------------------------------------------------


def test_after_start_up_garbage_is_collected_but_what_was_loaded_is_not_searched() -> None:
    before = gc.get_freeze_count()
    gc.disable()
    try:
        warm_up(ScriptedLLM([]))
        deadline = time.monotonic() + 30
        while not gc.isenabled() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert gc.isenabled()
        assert gc.get_freeze_count() > before + len(sys.modules)
    finally:
        gc.enable()
        gc.unfreeze()
