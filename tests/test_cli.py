"""The command line: what loads, which flags there are, and what a wrong one gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from server import StrictServer

from corecoder import __version__
from corecoder.cli import build_parser, main, parse
from corecoder.errors import ConfigError
from corecoder.providers import Preset, find_local_servers


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_version_is_said_without_loading_anything_more_than_re_does() -> None:
    listed = "print(*sorted(n for n in sys.modules if '.' not in n))"
    floor = set(python(f"import sys, re; {listed}").split())
    loaded = python(f"import sys; from corecoder.cli import main; main(['--version']); {listed}").split()
    assert loaded[:2] == ["corecoder", __version__]
    assert set(loaded[2:]) - floor == {"corecoder", "__future__"}


def test_a_usage_error_and_help_load_no_model_client_and_no_terminal_library() -> None:
    heavy = ["openai", "rich", "prompt_toolkit", "tiktoken", "pydantic", "httpx"]
    code = "import sys; from corecoder.cli import main; main(['--nonsense']); main(['--help']); "
    assert python(f"{code} print([n for n in {heavy} if n in sys.modules])").splitlines()[-1] == "[]"


def test_a_one_shot_run_loads_no_terminal_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictServer("hi") as server:
        monkeypatch.setenv("CORECODER_BASE_URL", server.base_url)
        code = "import sys; from corecoder.cli import main; print(main(['-m', 'x', '-p', 'hi', '--no-stdin']));"
        said = python(f"{code} print([n for n in ('rich', 'prompt_toolkit') if n in sys.modules])")
    assert said == "hi\n0\n[]\n"


@pytest.mark.parametrize("argv", [["--version"], ["-v"], ["-v", "--yes"]])
def test_the_version_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    assert capsys.readouterr() == (f"corecoder {__version__}\n", "")


def test_help_names_every_flag_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for action in build_parser()._actions:
        assert all(flag in text for flag in action.option_strings)
    assert "75 try again" in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nonsense"], "--nonsense"),
        (["fix the test"], "fix the test"),
        (["--max"], "--max"),
        (["-m"], "expected one argument"),
        (["-p", ""], "empty"),
        (["-p", " \n"], "empty"),
        (["-c", "-r", "abc"], "one of them"),
        (["-c", "-r"], "one of them"),
        (["-p", "hi", "-r"], "id"),
        (["--yes", "--mode", "plan"], "contradicts"),
        (["--local", "--base-url", "http://x/v1"], "one of them"),
        (["--demo", "-p", "hi"], "--demo"),
        (["--demo", "-c"], "--demo"),
        (["-p", "hi", "--mode", "sometimes"], "sometimes"),
        (["-p", "hi", "--max-steps", "many"], "many"),
        (["-p", "hi", "--max-steps", "0"], "0"),
        (["-p", "hi", "--base-url", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_or_contradicting_flag_is_one_clear_line_and_exit_code_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1
    assert err.startswith("corecoder: ")


def test_a_prompt_may_come_with_its_flag_or_alone_or_not_at_all() -> None:
    assert (parse(["-p", "hi"]).one_shot, parse(["-p", "hi"]).prompt) == (True, "hi")
    assert (parse(["-p"]).one_shot, parse(["-p"]).prompt) == (True, None)
    assert (parse([]).one_shot, parse([]).prompt) == (False, None)
    assert parse(["-p", "-c"]).resume_last
    assert parse(["-p", "-c is a flag"]).prompt == "-c is a flag"
    assert parse(["--prompt=-c"]).prompt == "-c"
    assert parse(["-r", "abc"]).resume == "abc"
    with pytest.raises(ConfigError):
        parse(["-p", "a", "b"])


@pytest.mark.parametrize("argv", [["-p", "hi"], ["-p"], []])
def test_without_key_and_server_it_shows_three_ways_to_go_on(
    argv: list[str], capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull, encoding="utf-8") as null:
        monkeypatch.setattr(sys, "stdin", null)
        assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(way in err for way in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "--local", "--base-url", "--demo"))
    assert max(len(line) for line in err.splitlines() if str(home) not in line) <= 80
    assert not home.exists()


def test_an_unknown_session_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert main(["-r", "nope", "-p", "hi"]) == 1
    assert "nope" in capsys.readouterr().err
    assert main(["-r"]) == 0
    assert "no sessions" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="a directory in use cannot be removed there")
def test_a_directory_that_is_gone_is_a_clear_line(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    project.rmdir()
    assert main(["-p", "hi"]) == 2
    assert "current directory" in capsys.readouterr().err


def test_no_home_directory_is_a_clear_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("CORECODER_HOME")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert main(["-p", "hi"]) == 2
    assert "CORECODER_HOME" in capsys.readouterr().err


def test_what_nobody_expected_is_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def isatty(self) -> bool:
            raise TypeError("surprise")

    monkeypatch.setattr(sys, "stdin", Broken())
    assert main([]) == 1
    err = capsys.readouterr().err
    assert "TypeError: surprise" in err
    assert "test_cli.py:" in err
    assert len(err.splitlines()) == 1


# --- a model server on this machine -------------------------------------------------------------------------------


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictServer]:
    """A model server that takes the place of the usual ones in the search."""
    models = [{"id": "nomic-embed"}, {"id": "qwen"}, {"id": "gemma"}]
    with StrictServer(forever="local answer", models=models) as server:
        preset = Preset("ollama", "", server.base_url, "")
        search = partial(find_local_servers, presets=(preset,))
        monkeypatch.setattr("corecoder.providers.find_local_servers", search)
        monkeypatch.setattr("corecoder.firstrun.find_local_servers", search)
        yield server


def test_local_uses_what_is_running_here_and_says_so(
    local: StrictServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a real key")
    assert main(["--local", "-p", "hi", "--no-stdin"]) == 0
    out, err = capsys.readouterr()
    assert out == "local answer\n"
    assert f"Using qwen at {local.base_url}" in err
    assert "gemma" in err
    assert "OLLAMA_CONTEXT_LENGTH" in err
    assert local.requests[0]["model"] == "qwen"
    assert "a real key" not in str(local.headers)


def test_local_takes_the_model_that_is_named(local: StrictServer) -> None:
    assert main(["--local", "-m", "gemma", "-p", "hi", "--no-stdin"]) == 0
    assert local.requests[0]["model"] == "gemma"


def test_a_one_shot_run_without_configuration_names_the_server_and_asks_nothing_of_it(
    local: StrictServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-p", "hi", "--no-stdin"]) == 2
    assert "ollama with nomic-embed and 2 more. corecoder --local uses it." in capsys.readouterr().err
    assert local.requests == []


def test_local_without_a_server_says_where_it_looked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corecoder.firstrun.find_local_servers", partial(find_local_servers, presets=()))
    assert main(["--local", "-p", "hi"]) == 2
    assert "http://127.0.0.1:11434/v1" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="descriptors of POSIX")
def test_a_closed_standard_descriptor_is_not_given_to_the_next_file_that_is_opened() -> None:
    code = (
        "import os; from corecoder.terminal import fill_descriptors; fill_descriptors(); "
        "os._exit(0 if os.open(os.devnull, os.O_RDONLY) > 2 else 1)"
    )
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        command = f'"{sys.executable}" -c "{code}" {closed}'
        assert subprocess.run(command, shell=True, check=False, timeout=60).returncode == 0, closed
