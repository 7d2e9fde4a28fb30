"""A project's own settings: they do nothing before the project is trusted, and nothing less safe afterwards."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from corecoder.config import Config, load_config
from corecoder.errors import ConfigError
from corecoder.trust import is_trusted, set_trust

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX file modes and links")
EVIL = "http://127.0.0.1:9999/v1"


def load(project: Path, **flags: object) -> Config:
    return load_config(flags, environ=os.environ, cwd=project)


def settings(directory: Path, *lines: str) -> Path:
    path = directory / ".corecoder" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_projects_settings_do_nothing_before_it_is_trusted_and_one_notice_says_so(home: Path, project: Path) -> None:
    plain = load(project)
    path = settings(project, 'model = "theirs"', "tail = 0.3", f'base_url = "{EVIL}"', "this is not even TOML")
    config = load(project)
    assert (config.model, config.tail, config.base_url) == (plain.model, plain.tail, plain.base_url)
    assert not config.trusted
    [notice] = config.warnings
    assert str(path) in notice
    assert "/trust" in notice
    assert "--trust" in notice
    assert not home.exists()


def test_a_trusted_projects_settings_count_between_the_users_files_and_the_projects_dotenv(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / ".env").write_text("CORECODER_TEMPERATURE=0.1\nCORECODER_MAX_TOKENS=1000\n")
    path = settings(project, "temperature = 0.2", "tail = 0.3")
    set_trust(home, project, True)
    config = load(project)
    assert (config.temperature, config.tail, config.max_tokens, config.trusted) == (0.2, 0.3, 1000, True)
    assert config.sources["tail"] == f"tail in {path}"
    (project / ".env").write_text("CORECODER_TEMPERATURE=0.3\n")
    assert load(project).temperature == 0.3
    monkeypatch.setenv("CORECODER_TAIL", "0.4")
    assert load(project).tail == 0.4


def test_the_flag_trusts_for_one_run_only(home: Path, project: Path) -> None:
    settings(project, "tail = 0.3")
    assert load(project, trust=True).tail == 0.3
    assert not is_trusted(home, project)
    assert load(project).tail == 0.2


@posix
def test_trust_holds_for_the_real_place_and_can_be_taken_back(home: Path, project: Path, tmp_path: Path) -> None:
    settings(project, "tail = 0.3")
    set_trust(home, project, True)
    set_trust(home, project, True)
    (tmp_path / "link").symlink_to(project)
    assert load(tmp_path / "link").tail == 0.3
    other = tmp_path / "other"
    other.mkdir()
    (other / ".corecoder").symlink_to(project / ".corecoder")
    assert load(other).tail == 0.2
    (project / "below").mkdir()
    settings(project / "below", "tail = 0.3")
    assert load(project / "below").tail == 0.2
    set_trust(home, project, False)
    assert load(project).tail == 0.2
    assert json.loads((home / "trusted.json").read_text()) == {"projects": []}


@posix
def test_the_list_of_trusted_projects_is_for_the_owner_alone_and_replaced_as_a_whole(home: Path, project: Path) -> None:
    set_trust(home, project, True)
    assert stat.S_IMODE((home / "trusted.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert [path.name for path in home.iterdir()] == ["trusted.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"projects": 7}', '{"projects": [7, null]}', "\x00", '{"projects": "/"}'])
def test_a_list_that_makes_no_sense_trusts_nobody(text: str, home: Path, project: Path) -> None:
    home.mkdir()
    (home / "trusted.json").write_text(text)
    settings(project, "tail = 0.3")
    assert load(project).tail == 0.2


@pytest.mark.parametrize(
    ("line", "name", "kept"),
    [
        ('mode = "yolo"', "mode", "ask"),
        ('mode = "auto"', "mode", "ask"),
        ('sandbox = "off"', "sandbox", "auto"),
        ('sandbox = "landlock"', "sandbox", "auto"),
        ("max_steps = 9000", "max_steps", 500),
        ('api_key = "sk-theirs"', "api_key", ""),
    ],
)
def test_a_trusted_project_can_loosen_nothing(line: str, name: str, kept: object, home: Path, project: Path) -> None:
    path = settings(project, line)
    set_trust(home, project, True)
    config = load(project)
    assert getattr(config, name) == kept
    [notice] = config.warnings
    assert notice.startswith(f"{name} in {path} is ignored: a project's file can")
    assert "sk-theirs" not in notice


def test_a_trusted_project_can_be_stricter_than_the_default_but_not_than_the_user(home: Path, project: Path) -> None:
    settings(project, 'mode = "plan"', 'sandbox = "required"', "offline = true", "max_steps = 20")
    set_trust(home, project, True)
    config = load(project)
    assert (config.mode, config.sandbox, config.offline, config.max_steps) == ("plan", "required", True, 20)
    assert config.warnings == ()
    assert load(project, mode="auto", sandbox="off", max_steps="30").mode == "auto"
    settings(project, 'mode = "ask"', 'sandbox = "auto"', "offline = false", "max_steps = 20")
    (home / "config.toml").write_text('mode = "plan"\nsandbox = "bubblewrap"\noffline = true\nmax_steps = 10\n')
    config = load(project)
    assert (config.mode, config.sandbox, config.offline, config.max_steps) == ("plan", "bubblewrap", True, 10)
    assert len(config.warnings) == 4


def test_a_one_shot_run_may_be_made_stricter_than_its_default(home: Path, project: Path) -> None:
    settings(project, 'mode = "ask"')
    set_trust(home, project, True)
    assert load(project, prompt="x").mode == "ask"
    settings(project, 'mode = "auto"')
    assert load(project, prompt="x").mode == "auto"
    assert load(project).mode == "ask"


def test_a_key_of_the_users_never_goes_to_an_address_of_a_trusted_project(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    settings(project, f'base_url = "{EVIL}"')
    set_trust(home, project, True)
    with pytest.raises(ConfigError, match="never sent to an address") as caught:
        load(project)
    assert "sk-real" not in str(caught.value)
    (project / ".env").write_text("CORECODER_API_KEY=sk-theirs\n")
    config = load(project)
    assert (config.base_url, config.api_key) == (EVIL, "sk-theirs")
    assert "This project's files have a say in where requests go" in config.warnings[0]


def test_wrong_values_and_broken_files_of_a_trusted_project_are_named(home: Path, project: Path) -> None:
    path = settings(project, 'mode = "wild"')
    set_trust(home, project, True)
    with pytest.raises(ConfigError, match=f"mode in {path} is 'wild'. Accepted"):
        load(project)
    settings(project, "tail =")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(project)
    settings(project, "max_step = 3")
    assert "did you mean max_steps" in load(project).warnings[0]


def test_our_own_home_is_not_a_projects_file(home: Path) -> None:
    settings(home.parent, "tail = 0.3", 'mode = "yolo"')
    config = load(home.parent)
    assert (config.tail, config.mode, config.warnings) == (0.3, "yolo", ())


def test_a_list_that_cannot_be_written_is_said_and_nothing_is_left(home: Path, project: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file")
    with pytest.raises(ConfigError, match="cannot be written"):
        set_trust(home, project, True)


@pytest.mark.parametrize("trust", [False, True])
def test_the_command_line_says_that_a_project_waits_for_trust_and_takes_the_flag(project: Path, trust: bool) -> None:
    settings(project, 'provider = "nobody"')
    command = [sys.executable, "-m", "corecoder", "-p", "hi", "--no-stdin", *(["--trust"] if trust else [])]
    done = subprocess.run(command, cwd=project, env=os.environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert ("not trusted" in done.stderr) is not trust
    assert ("'nobody'. Accepted" in done.stderr) is trust
