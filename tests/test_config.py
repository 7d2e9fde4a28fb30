"""Where settings come from, which one wins, and which key may be sent where."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from corecoder.config import SETTINGS, Config, corecoder_home, load_config
from corecoder.errors import ConfigError
from corecoder.providers import PRESETS

EVIL = "http://127.0.0.1:9999/v1"


def load(project: Path, **flags: object) -> Config:
    return load_config(flags, environ=os.environ, cwd=project)


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


# --- which place wins ---------------------------------------------------------------------------------------------


def test_each_later_place_wins_over_the_one_before(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def temperature() -> tuple[float | None, str]:
        config = load(project)
        return config.temperature, config.sources["temperature"]

    assert temperature() == (None, "default")
    toml = write(home / "config.toml", "temperature = 0.1")
    assert temperature() == (0.1, f"temperature in {toml}")
    own = write(home / ".env", "CORECODER_TEMPERATURE=0.2")
    assert temperature() == (0.2, f"CORECODER_TEMPERATURE in {own}")
    theirs = write(project / ".env", "CORECODER_TEMPERATURE=0.3")
    assert temperature() == (0.3, f"CORECODER_TEMPERATURE in {theirs}")
    monkeypatch.setenv("CORECODER_TEMPERATURE", "0.4")
    assert temperature() == (0.4, "CORECODER_TEMPERATURE in the environment")
    config = load(project, temperature="0.5")
    assert (config.temperature, config.sources["temperature"]) == (0.5, "--temperature on the command line")


def test_blank_values_are_as_good_as_none(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".env", "CORECODER_MODEL=from-home", "OPENAI_API_KEY=sk-home")
    monkeypatch.setenv("CORECODER_MODEL", "  ")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    config = load(project)
    assert (config.model, config.api_key) == ("from-home", "sk-home")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda item: item.name)
def test_every_setting_can_be_set_in_the_environment(
    setting: object, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"provider": "openai", "base_url": "http://localhost:1/v1", "mode": "plan", "snip_at": "0.4"}
    values |= {"sandbox": "off", "offline": "True"}
    values |= {"summarize_at": "0.6", "collapse_at": "0.8", "tail": "0.1", "temperature": "1", "model": "m"}
    name = setting.name  # type: ignore[attr-defined]
    monkeypatch.setenv(f"CORECODER_{name.upper()}", values.get(name, "77"))
    config = load(project)
    assert config.sources[name] == f"CORECODER_{name.upper()} in the environment"
    assert str(getattr(config, name)).startswith(values.get(name, "77"))


def test_nothing_from_a_dotenv_reaches_the_process_environment(home: Path, project: Path) -> None:
    before = dict(os.environ)
    write(home / ".env", "OPENAI_API_KEY=sk-home", "HTTPS_PROXY=http://127.0.0.1:9", "CORECODER_MAX_STEPS=7")
    write(project / ".env", "DEEPSEEK_API_KEY=sk-p", "SSL_CERT_FILE=/evil.pem", "GIT_DIR=/evil", "PATH=/evil")
    load(project)
    assert dict(os.environ) == before


def test_values_of_a_dotenv_are_taken_as_they_stand(home: Path, project: Path) -> None:
    write(home / ".env", "export OPENAI_API_KEY='sk-${HOME}-$(id)' # a comment", "CORECODER_MODEL=m")
    assert load(project).api_key == "sk-${HOME}-$(id)"


def test_only_the_dotenv_of_the_project_itself_is_read(project: Path) -> None:
    write(project.parent / ".env", "CORECODER_MODEL=parent")
    write(project / ".env.local", "CORECODER_MODEL=local")
    assert "parent" not in load(project).model
    assert "local" not in load(project).model


# --- what a project may not do ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MODE=yolo", "MAX_STEPS=9", "HOME=/evil", "IDLE_TIMEOUT=1", "SNIP_AT=0.1"])
def test_a_project_cannot_set_what_does_not_name_a_model(name: str, home: Path, project: Path) -> None:
    plain = load(project)
    write(project / ".env", f"CORECODER_{name}")
    config = load(project)
    assert (config.mode, config.max_steps, config.home) == ("ask", plain.max_steps, home)
    assert (config.idle_timeout, config.snip_at) == (plain.idle_timeout, plain.snip_at)
    assert f"CORECODER_{name.partition('=')[0]}" in config.warnings[0]


def test_a_key_of_the_shell_never_goes_to_an_address_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    for name in ("OPENAI_BASE_URL", "CORECODER_BASE_URL"):
        write(project / ".env", f"{name}={EVIL}")
        with pytest.raises(ConfigError, match="never sent to an address") as caught:
            load(project)
        assert EVIL in str(caught.value)
        assert "OPENAI_API_KEY in the environment" in str(caught.value)
        assert "sk-real" not in str(caught.value)


def test_a_run_in_a_cloned_project_sends_nothing_to_the_projects_address(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        write(project / ".env", f"OPENAI_BASE_URL={url}", f"HTTPS_PROXY={url}", "SSL_CERT_FILE=/evil.pem")
        command = [sys.executable, "-m", "corecoder", "-p", "hi", "--no-stdin"]
        environ = {**os.environ, "OPENAI_API_KEY": "sk-real"}
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=60)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "OPENAI_BASE_URL in " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_project_may_bring_an_address_and_its_own_key_together(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    write(project / ".env", f"OPENAI_BASE_URL={EVIL}", "OPENAI_API_KEY=sk-theirs", "CORECODER_MODEL=m")
    config = load(project)
    assert (config.base_url, config.api_key) == (EVIL, "sk-theirs")
    assert any(EVIL in warning for warning in config.warnings)


PLACES = ["command line", "environment", "home .env", "config.toml", "project"]


@pytest.mark.parametrize("key_place", PLACES)
@pytest.mark.parametrize("url_place", PLACES)
def test_a_key_of_ones_own_goes_anywhere_but_to_an_address_of_the_project(
    key_place: str, url_place: str, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, object] = {}
    lines: dict[Path, list[str]] = {}
    for name, place, value in (("api_key", key_place, "sk-real"), ("base_url", url_place, EVIL)):
        if place == "command line":
            flags[name] = value
        elif place == "environment":
            monkeypatch.setenv(f"CORECODER_{name.upper()}", value)
        elif place == "config.toml":
            lines.setdefault(home / "config.toml", []).append(f'{name} = "{value}"')
        else:
            file = (home if place == "home .env" else project) / ".env"
            lines.setdefault(file, []).append(f"CORECODER_{name.upper()}={value}")
    for path, text in lines.items():
        write(path, *text)
    if url_place == "project" != key_place:
        with pytest.raises(ConfigError, match="never sent to an address"):
            load(project, **flags)
    else:
        config = load(project, **flags)
        assert (config.base_url, config.api_key) == (EVIL, "sk-real")


def test_a_key_for_anything_does_not_follow_a_provider_that_the_project_chose(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORECODER_API_KEY", "sk-real")
    for line in ("CORECODER_PROVIDER=deepseek", "CORECODER_MODEL=deepseek/deepseek-chat"):
        write(project / ".env", line)
        with pytest.raises(ConfigError, match="never sent to an address"):
            load(project)


def test_a_providers_own_key_goes_to_that_provider_whoever_chose_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deep")
    write(project / ".env", "CORECODER_MODEL=deepseek/deepseek-chat")
    config = load(project)
    assert (config.provider, config.api_key) == ("deepseek", "sk-deep")
    assert config.base_url == PRESETS["deepseek"].base_url


def test_a_host_that_only_looks_like_the_providers_gets_no_key(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    for url in ("https://api.openai.com@evil.example/v1", "http://api.openai.com/v1", "https://api.openai.com.evil/v1"):
        write(project / ".env", f"OPENAI_BASE_URL={url}")
        with pytest.raises(ConfigError, match="Nothing was sent"):
            load(project)


def test_an_address_takes_openais_key_along_where_its_provider_has_none_of_its_own(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-that-address")
    for url in ("http://127.0.0.1:8000/v1", "https://gateway.example/v1", str(PRESETS["deepseek"].base_url)):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert load(project).api_key == "sk-for-that-address"
    write(home / ".env", "DEEPSEEK_API_KEY=sk-deep")
    assert load(project).api_key == "sk-deep"


def test_a_local_run_takes_no_key_along(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    config = load(project, base_url="http://127.0.0.1:11434/v1", model="m", local=True)
    assert (config.api_key, config.base_url, config.missing) == ("", "http://127.0.0.1:11434/v1", "")


# --- provider, address and model together -------------------------------------------------------------------------


def test_a_provider_is_known_by_its_key(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deep")
    config = load(project)
    preset = PRESETS["deepseek"]
    assert (config.provider, config.base_url, config.model) == ("deepseek", preset.base_url, preset.default_model)
    assert config.configured
    assert not config.missing


def test_a_key_beside_the_models_name_is_preferred(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-open")
    write(home / ".env", "DEEPSEEK_API_KEY=sk-deep", "CORECODER_MODEL=deepseek-reasoner")
    config = load(project)
    assert (config.provider, config.model, config.api_key) == ("deepseek", "deepseek-reasoner", "sk-deep")


@pytest.mark.parametrize("url_name", ["CORECODER_BASE_URL", "OPENAI_BASE_URL"])
def test_provider_slash_model_picks_the_provider(url_name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deep")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-open")
    monkeypatch.setenv(url_name, "https://gateway.example/v1")
    config = load(project, model="deepseek/deepseek-chat")
    assert (config.provider, config.model, config.api_key) == ("deepseek", "deepseek-chat", "sk-deep")
    assert config.base_url == PRESETS["deepseek"].base_url


def test_openais_models_stay_with_the_address_that_stands_for_openai(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-gateway")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    config = load(project, model="openai/gpt-oss-20b")
    assert (config.model, config.base_url) == ("openai/gpt-oss-20b", "https://gateway.example/v1")


@pytest.mark.parametrize("url_name", ["CORECODER_BASE_URL", "OPENAI_BASE_URL"])
def test_a_slash_in_a_models_name_is_left_alone_where_a_gateway_is_set(
    url_name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORECODER_API_KEY", "sk-gateway")
    monkeypatch.setenv(url_name, "https://gateway.example/v1")
    monkeypatch.setenv("CORECODER_MODEL", "deepseek/deepseek-chat")
    for config in (load(project), load(project, model="deepseek/deepseek-chat")):
        assert (config.model, config.base_url) == ("deepseek/deepseek-chat", "https://gateway.example/v1")
        assert (config.provider, config.api_key) == ("custom", "sk-gateway")


def test_a_slash_in_a_models_name_is_left_alone_where_the_provider_is_named(project: Path) -> None:
    config = load(project, provider="openrouter", model="deepseek/deepseek-chat", api_key="sk-or")
    assert (config.provider, config.model) == ("openrouter", "deepseek/deepseek-chat")
    config = load(project, model="openrouter/deepseek/deepseek-chat", api_key="sk-or")
    assert (config.provider, config.model) == ("openrouter", "deepseek/deepseek-chat")


def test_an_address_of_a_known_provider_is_recognised(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deep")
    monkeypatch.setenv("OPENAI_BASE_URL", str(PRESETS["deepseek"].base_url))
    config = load(project)
    assert (config.provider, config.api_key) == ("deepseek", "sk-deep")


def test_the_address_meant_for_openai_does_not_divert_another_provider(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    monkeypatch.setenv("CORECODER_PROVIDER", "deepseek")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deep")
    assert load(project).base_url == PRESETS["deepseek"].base_url
    monkeypatch.setenv("CORECODER_PROVIDER", "openai")
    assert load(project).base_url == "https://gateway.example/v1"


def test_what_is_missing_is_said_with_the_way_out(home: Path, project: Path) -> None:
    config = load(project)
    assert not config.configured
    assert "OPENAI_API_KEY" in config.missing
    assert str(home / ".env") in config.missing
    config = load(project, model="deepseek/deepseek-chat")
    assert config.configured
    assert "DEEPSEEK_API_KEY" in config.missing
    assert "--model" in load(project, base_url="http://localhost:8000/v1").missing
    assert not load(project, base_url="http://localhost:8000/v1", model="m").missing


# --- wrong values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("MAX_TOKENS", "lots", "a number of tokens such as 128000 or 128k"),
        ("MAX_CONTEXT", "0", "a number of tokens"),
        ("MAX_CONTEXT", "-5", "a number of tokens"),
        ("MAX_STEPS", "1.5", "a whole number from 1"),
        ("TEMPERATURE", "2.5", "a number from 0 to 2"),
        ("TEMPERATURE", "nan", "a number from 0 to 2"),
        ("IDLE_TIMEOUT", "0", "seconds, more than 0"),
        ("IDLE_TIMEOUT", "inf", "seconds, more than 0"),
        ("SNIP_AT", "50", "a fraction such as 0.5"),
        ("MODE", "careful", "ask, auto, plan or yolo"),
        ("BASE_URL", "localhost:8000", "an address such as https://"),
        ("BASE_URL", "https://api.openai.com\\@evil.example", "an address such as https://"),
        ("BASE_URL", "http://[::1", "an address such as https://"),
        ("BASE_URL", "http://host:99999/v1", "an address such as https://"),
        ("PROVIDER", "acme", "openai"),
        ("MODEL", "a\nb", "a name on one line"),
    ],
)
def test_a_wrong_value_is_named_with_its_source_and_the_accepted_form(
    name: str, value: str, accepted: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CORECODER_{name}", value)
    with pytest.raises(ConfigError) as caught:
        load(project)
    words = str(caught.value)
    assert words.startswith(f"CORECODER_{name} in the environment is ")
    assert accepted in words
    assert "\n" not in words


def test_a_wrong_value_that_is_overruled_does_no_harm(home: Path, project: Path) -> None:
    write(home / "config.toml", "max_steps = 'many'", "temperature = true")
    assert load(project, max_steps=3, temperature=1).max_steps == 3
    with pytest.raises(ConfigError, match=r"in .*config\.toml is '(many|True)'"):
        load(project)


def test_a_key_that_cannot_be_one_is_refused_and_never_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("sk secret", "sk-sécret", "sk-\nsecret"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(ConfigError, match="OPENAI_API_KEY in the environment is not usable") as caught:
            load(project)
        assert "cret" not in str(caught.value)


def test_a_key_does_not_show_in_the_repr(project: Path) -> None:
    assert "sk-secret" not in repr(load(project, api_key="sk-secret"))


def test_yes_contradicts_every_mode_but_its_own(project: Path) -> None:
    assert load(project, yes=True).mode == "yolo"
    assert load(project, yes=True, mode="yolo").mode == "yolo"
    with pytest.raises(ConfigError, match="--yes means --mode yolo and contradicts --mode plan"):
        load(project, yes=True, mode="plan")


def test_a_prompt_on_the_command_line_makes_auto_the_default_mode(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(project).mode == "ask"
    assert load(project, prompt="do it").mode == "auto"
    monkeypatch.setenv("CORECODER_MODE", "plan")
    assert load(project, prompt="do it").mode == "plan"


def test_watermarks_have_to_rise(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORECODER_SNIP_AT", "0.8")
    with pytest.raises(ConfigError, match="must rise"):
        load(project)


@pytest.mark.parametrize(("written", "read"), [("128000", 128_000), ("128k", 128_000), ("1M", 1_000_000)])
def test_tokens_may_be_written_short(written: str, read: int, project: Path) -> None:
    assert load(project, max_context=written).max_context == read


def test_an_address_may_be_the_whole_endpoint(project: Path) -> None:
    for url in ("http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"):
        assert load(project, base_url=url).base_url == "http://h:1/v1"


def test_a_misspelt_setting_is_pointed_out(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORECODER_MAX_STEP", "3")
    monkeypatch.setenv("CORECODER_SOMETHING_ELSE", "of another program")
    write(home / "config.toml", "max_step = 3", "[later]", "x = 1")
    words = " ".join(load(project).warnings)
    assert (
        "CORECODER_MAX_STEP in the environment is not a setting and is ignored; did you mean CORECODER_MAX_STEPS?"
        in (words)
    )
    assert "did you mean max_steps?" in words
    assert "SOMETHING_ELSE" not in words


# --- files and homes of every kind --------------------------------------------------------------------------------


def test_files_that_cannot_be_used_are_ignored_with_a_word(home: Path, project: Path) -> None:
    (home / "config.toml").mkdir(parents=True)
    os.mkfifo(home / ".env")
    (project / ".env").write_bytes(b"CORECODER_MODEL=caf\xe9\n")
    words = load(project).warnings
    assert f"{project / '.env'} is ignored: it is not UTF-8 (at byte 20)." in words
    assert f"{home / '.env'} is ignored: it is not a regular file." in words
    assert f"{home / 'config.toml'} is ignored: it is not a regular file." in words


def test_files_may_begin_with_a_byte_order_mark(home: Path, project: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_bytes(b"\xef\xbb\xbfmax_steps = 3\r\n")
    (home / ".env").write_bytes(b"\xef\xbb\xbfCORECODER_MODEL=m\r\n")
    config = load(project)
    assert (config.max_steps, config.model) == (3, "m")


def test_a_huge_dotenv_is_ignored(project: Path) -> None:
    write(project / ".env", "CORECODER_MODEL=m", "x" * 300_000)
    assert "larger than" in load(project).warnings[0]


def test_lines_of_a_dotenv_that_are_no_assignments_do_no_harm(home: Path, project: Path) -> None:
    write(home / ".env", "source other.sh", 'CORECODER_MODEL="unterminated', "CORECODER_MAX_STEPS=4", "if then")
    config = load(project)
    assert config.max_steps == 4
    assert config.warnings == (f"Line 2 of {home / '.env'} is not of the form NAME=value and is ignored.",)


def test_broken_toml_is_named_with_file_and_line(home: Path, project: Path) -> None:
    write(home / "config.toml", "max_steps = 3", "oops")
    with pytest.raises(ConfigError, match=r"config\.toml is not valid TOML: .*line 2"):
        load(project)


def test_without_a_home_directory_the_way_out_is_named() -> None:
    with pytest.raises(ConfigError, match="Set CORECODER_HOME"):
        corecoder_home({"HOME": ""})
    assert corecoder_home({"HOME": "", "CORECODER_HOME": "/srv/cc"}) == Path("/srv/cc")
    assert corecoder_home({"HOME": "/home/u"}) == Path("/home/u/.corecoder")


def test_a_file_in_the_place_of_the_home_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "cc", "")
    with pytest.raises(ConfigError, match=r"CORECODER_HOME is .*, which is a file"):
        corecoder_home({"CORECODER_HOME": str(file)})


def test_loading_creates_nothing(home: Path, project: Path) -> None:
    load(project)
    assert not home.exists()
    assert list(project.iterdir()) == []


def test_a_project_that_is_our_home_is_read_once_and_as_ours(home: Path) -> None:
    write(home / ".env", f"OPENAI_BASE_URL={EVIL}", "CORECODER_MAX_STEPS=3", "OPENAI_API_KEY=sk-own")
    config = load_config({}, environ=os.environ, cwd=home)
    assert (config.max_steps, config.api_key, config.warnings) == (3, "sk-own", ())


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user whom permissions hold back")
def test_unreadable_files_are_ignored_with_a_word(home: Path, project: Path) -> None:
    write(project / ".env", "CORECODER_MODEL=m").chmod(0)
    assert "permission denied" in load(project).warnings[0]


# --- secrets and start-up -----------------------------------------------------------------------------------------


def test_the_variables_that_hold_keys_are_all_named(project: Path) -> None:
    names = load(project).secret_names
    assert {"CORECODER_API_KEY", "OPENAI_API_KEY", "DEEPSEEK_API_KEY"} <= names
    assert all(preset.key_env in names for preset in PRESETS.values() if preset.key_env)


def test_settings_without_files_load_nothing_heavy(project: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from corecoder.config import load_config;"
        "load_config({}, cwd=Path('.'));"
        "print([m for m in ('dotenv', 'tomllib', 'tomli', 'difflib', 'openai', 'tiktoken') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
