"""Settings: one frozen value made of seven places, and the rule on which key may go to which address.

Later places win: defaults, `config.toml` and `.env` in CoreCoder's home, `.corecoder/config.toml` and `.env` of the
project, the environment, the command line. What the project brings is somebody else's text: its `.env` may set only
what names a model, its `config.toml` is read once the user has trusted the project and can make nothing less safe, and
a key of the user's own never goes to an address from there. Nothing read here is put into the process environment.

The price: a provider, an address and a key are chosen together, in `_choose` and `_key`, rather than each on its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import ConfigError
from .forms import FRACTION, KEY, MODE, NAME, SANDBOX, SECONDS, STEPS, TEMPERATURE, TOKENS, URL, YES_NO, Form
from .providers import PRESETS, Preset, preset_for
from .sources import BUILT_IN, OWN, PROJECT, Found, Place, Reader, find, find_all
from .trust import is_trusted, no_less_safe, project_file
from .values import dataclass

DEFAULT = "default"
CUSTOM = "custom"
_OPENAI_URL = "OPENAI_BASE_URL"


def _setting(default: Any, form: Form, about: str, *, project: bool = False, shown: bool = True) -> Any:
    """A field that can be set; `project` lets a project's `.env` set it, `shown` says whether `repr` shows it."""
    return field(default=default, repr=shown, metadata={"form": form, "about": about, "project": project})


@dataclass(frozen=True)
class Config:
    """Everything that can be set, with the source of each value in words for a person (`sources`).

    Every setting is spelled `max_steps` in config.toml, `CORECODER_MAX_STEPS` in the environment and in a `.env`.
    """

    model: str = _setting("", NAME, "the model, or `provider/model`", project=True)
    provider: str = _setting("openai", NAME, "a preset: address, key and default model in one word", project=True)
    base_url: str | None = _setting(None, URL, "the server's address", project=True)
    api_key: str = _setting("", KEY, "the key, whatever the provider", project=True, shown=False)
    max_context: int | None = _setting(None, TOKENS, "the model's context window; found out if not set", project=True)
    max_tokens: int | None = _setting(None, TOKENS, "the longest reply; up to the provider if not set", project=True)
    temperature: float | None = _setting(None, TEMPERATURE, "up to the provider if not set", project=True)
    mode: str = _setting("ask", MODE, "what may happen without a question; `auto` if one-shot")
    sandbox: str = _setting("auto", SANDBOX, "what confines the commands that nobody looked at")
    offline: bool = _setting(False, YES_NO, "commands in the sandbox have no network")
    max_steps: int = _setting(500, STEPS, "model requests in one turn")
    first_byte_timeout: float = _setting(300.0, SECONDS, "how long a reply may take to begin")
    idle_timeout: float = _setting(120.0, SECONDS, "how long a reply may be silent once it has begun")
    keepalive_timeout: float = _setting(600.0, SECONDS, "how long a server may send keep-alives and nothing else")
    retry_wait_limit: float = _setting(300.0, SECONDS, "how long all waits for one reply may take together")
    snip_at: float = _setting(0.5, FRACTION, "fill of the window at which stale tool output is snipped")
    summarize_at: float = _setting(0.7, FRACTION, "fill at which old conversation is summarised")
    collapse_at: float = _setting(0.9, FRACTION, "fill at which all but the essentials is left out")
    tail: float = _setting(0.2, FRACTION, "share of the room in which the newest messages stay whole")
    summary_timeout: float = _setting(120.0, SECONDS, "how long a summary may take")
    home: Path = Path()
    sources: Mapping[str, str] = field(default_factory=dict)
    # Environment variables that hold keys: nothing that the model runs may see them.
    secret_names: frozenset[str] = frozenset()
    # The presets whose own key is set.
    keyed: tuple[str, ...] = ()
    # The project's own settings, "" without any, and whether they are in force.
    project_file: str = ""
    trusted: bool = False
    # What was ignored, or is worth knowing, one sentence each.
    warnings: tuple[str, ...] = ()

    @property
    def configured(self) -> bool:
        """Whether a key, an address or a provider was given anywhere."""
        return self.sources.get("provider", DEFAULT) != DEFAULT

    @property
    def missing(self) -> str:
        """What is lacking before a request can be sent, as a sentence for a person; "" if nothing is."""
        preset = PRESETS.get(self.provider)
        if preset and preset.key_env and not self.api_key and preset_for(self.base_url) is preset:
            where = f"set {preset.key_env} in the environment or in {self.home / '.env'}, or give --api-key"
            return f"There is no key for {self.provider}: {where}."
        if not self.model:
            return f"No model is named for {self.base_url}: give one with --model or set CORECODER_MODEL."
        return ""


SETTINGS = tuple(item for item in fields(Config) if "form" in item.metadata)


def load_config(flags: Mapping[str, object], *, environ: Mapping[str, str] = os.environ, cwd: Path) -> Config:
    """The settings for a run in `cwd`. `flags` maps names of settings to what the command line gave, None for nothing.

    Four other flags count: `yes` means mode yolo, `prompt` makes auto the default mode, `local` keeps every key at
    home that is not on the command line too, and `trust` trusts the project for this run. Raises ConfigError with the
    source of a wrong value and the accepted form; what can be ignored becomes one of `warnings` instead.
    """
    warnings: list[str] = []
    home = corecoder_home(environ)
    theirs = project_file(home, cwd)
    trusted = bool(theirs) and (bool(flags.get("trust")) or is_trusted(home, cwd))
    if theirs and not trusted:
        warnings.append(
            f"This project's own settings, {theirs}, are not used, for you have not trusted the project. /trust shows "
            "them and asks; --trust uses them for one run."
        )
    places = _places(flags, environ, home, cwd, warnings, theirs if trusted else None)
    target = _choose(places)
    key = _key(places[:1] if flags.get("local") else places, target)
    values, sources = _independent(places)
    values |= {"provider": target.provider, "model": target.model, "base_url": target.url}
    sources |= target.sources
    if key:
        values["api_key"], sources["api_key"] = key.read(KEY), key.words
    if flags.get("prompt") is not None:
        values.setdefault("mode", "auto")
    if target.trust == PROJECT or (key and key.place.trust == PROJECT):
        warnings.append(f"This project's files have a say in where requests go: {target.url or 'the OpenAI API'}.")
    config = Config(
        **values,
        home=home,
        sources=sources,
        secret_names=frozenset({"CORECODER_API_KEY", *_key_names()}),
        keyed=tuple(name for name, preset in PRESETS.items() if preset.key_env and find(places, preset.key_env)),
        project_file=str(theirs or ""),
        trusted=trusted,
        warnings=tuple(warnings),
    )
    if not config.snip_at <= config.summarize_at <= config.collapse_at:
        raise ConfigError("snip_at, summarize_at and collapse_at must rise in this order (defaults: 0.5, 0.7, 0.9).")
    return config


def corecoder_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where CoreCoder keeps its files: CORECODER_HOME, else `.corecoder` in the home directory. Not created here.

    Raises ConfigError if there is no home directory, or a file stands in the way.
    """
    named = environ.get("CORECODER_HOME", "").strip()
    base = environ.get("HOME", os.path.expanduser("~")).strip()
    if not named and (not base or base.startswith("~")):
        raise ConfigError("There is no home directory. Set CORECODER_HOME to a directory for CoreCoder's own files.")
    home = Path(os.path.abspath(os.path.expanduser(named))) if named else Path(base) / ".corecoder"
    if os.path.exists(home) and not os.path.isdir(home):
        source = "CORECODER_HOME is" if named else "CoreCoder keeps its files in"
        raise ConfigError(f"{source} {home}, which is a file. It must be a directory; CORECODER_HOME names another.")
    return home


def _places(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    home: Path,
    cwd: Path,
    warnings: list[str],
    theirs: Path | None,
) -> list[Place]:
    """All places, the one that wins first; `theirs` are the settings of a project that is trusted."""
    if flags.get("yes"):
        if flags.get("mode") not in (None, "yolo"):
            raise ConfigError(f"--yes means --mode yolo and contradicts --mode {flags['mode']}. Give one of them.")
        flags = {**flags, "mode": "yolo"}
    reader = Reader(
        settings=frozenset(item.name for item in SETTINGS),
        of_project=frozenset(item.name for item in SETTINGS if item.metadata["project"]),
        foreign=frozenset({_OPENAI_URL, *_key_names()}),
        warnings=warnings,
    )
    places = [reader.command_line(flags), reader.environment(environ)]
    if os.path.realpath(cwd) != os.path.realpath(home):
        places.append(reader.dotenv(cwd / ".env", PROJECT))
    own = [reader.dotenv(home / ".env", OWN), reader.toml(home / "config.toml")]
    if theirs:
        guarded = {item.name: (item.metadata["form"], item.default) for item in SETTINGS}
        if flags.get("prompt") is not None:
            guarded["mode"] = (MODE, "auto")
        places.append(no_less_safe(reader.toml(theirs, PROJECT), own, guarded, warnings))
    return [*places, *own]


def _key_names() -> list[str]:
    return [preset.key_env for preset in PRESETS.values() if preset.key_env]


def _independent(places: Sequence[Place]) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that do not depend on each other, and the sources of all."""
    values: dict[str, Any] = {}
    sources = {item.name: DEFAULT for item in SETTINGS}
    for item in SETTINGS:
        found = find(places, item.name)
        if found and item.name not in ("provider", "model", "base_url", "api_key"):
            values[item.name], sources[item.name] = found.read(item.metadata["form"]), found.words
    return values, sources


@dataclass(frozen=True)
class _Target:
    """Where requests go. `trust` is that of the place which decided the address, `by_address` that no provider was."""

    provider: str
    preset: Preset | None
    model: str
    url: str | None
    trust: int
    by_address: bool
    sources: dict[str, str]


def _choose(places: Sequence[Place]) -> _Target:
    """Provider, model and address, chosen together.

    A provider, also one named as `provider/model`, brings its address with it unless an address is given in the same
    or a later place. With an address alone the provider is known by it. With neither, it is known by the key.
    """
    model, provider = find(places, "model"), find(places, "provider")
    name = model.read(NAME) if model else ""
    prefix, _, rest = name.partition("/")
    if model and _names_provider(places, model, provider, prefix, rest):
        provider, name = Found("provider", model.spelled, prefix, model.place, model.depth), rest
    url = find(places, "base_url", _OPENAI_URL)
    preset: Preset | None
    if provider:
        preset = _preset(provider)
        url = find(places, "base_url")
        url = url if url and url.depth <= provider.depth else None
        url = url or (find(places, _OPENAI_URL) if preset.name == "openai" else None)
        why = provider.words
    elif url:
        preset, why = preset_for(url.read(URL)), url.words
    else:
        preset, why = _by_key(places, model)
    sources = {"provider": why, "model": model.words if model else DEFAULT, "base_url": url.words if url else DEFAULT}
    trust = url.place.trust if url else PROJECT if provider and provider.place.trust == PROJECT else BUILT_IN
    return _Target(
        provider=preset.name if preset else CUSTOM,
        preset=preset,
        model=name or (preset.default_model if preset else ""),
        url=url.read(URL) if url else preset.base_url if preset else None,
        trust=trust,
        by_address=provider is None and url is not None,
        sources=sources,
    )


def _names_provider(places: Sequence[Place], model: Found, provider: Found | None, prefix: str, rest: str) -> bool:
    """Whether `prefix/rest` is a provider and its model, rather than the whole name of a model on another server."""
    preset = PRESETS.get(prefix)
    if not preset or not rest or (provider and provider.depth <= model.depth):
        return False
    url = find(places, "base_url", _OPENAI_URL)
    if url is None:
        return True
    has_key = not preset.key_env or find(places, preset.key_env) is not None
    return url.depth > model.depth and has_key and not (url.name == _OPENAI_URL and prefix == "openai")


def _preset(provider: Found) -> Preset:
    name = provider.read(NAME)
    if name not in PRESETS:
        hint = "for any other server set its address (base_url) instead"
        raise ConfigError(f"{provider.words} is {name!r}. Accepted: {', '.join(PRESETS)}; {hint}.")
    return PRESETS[name]


def _by_key(places: Sequence[Place], model: Found | None) -> tuple[Preset, str]:
    """The preset whose key is set, first of all beside the model's name; OpenAI's if there is no key."""
    names = {"api_key": "openai"} | {item.key_env: item.name for item in PRESETS.values() if item.key_env}
    key = (find([model.place], *names) if model else None) or find(places, *names)
    return (PRESETS[names[key.name]], key.words) if key else (PRESETS["openai"], DEFAULT)


def _key(places: Sequence[Place], target: _Target) -> Found | None:
    """The winning key that may be sent to the target: from no more trusted a place, or that provider's own key.

    An address without a provider may also have OPENAI_API_KEY, which is how the two go together for other clients.
    Raises ConfigError if there are keys but none may go there.
    """
    own = target.preset.key_env if target.preset else ""
    keys = list(find_all(places, "api_key", *([own] if own else [])))
    if target.by_address and own != "OPENAI_API_KEY":
        keys += find_all(places, "OPENAI_API_KEY")
    for found in keys:
        if target.trust >= found.place.trust or (found.name == own and _at_home(target)):
            return found
    if not keys:
        return None
    source = target.sources["base_url"] if target.sources["base_url"] != DEFAULT else target.sources["provider"]
    raise ConfigError(
        f"The address {target.url or 'of OpenAI'} comes from {source}, the key from {keys[0].words}, and a key of "
        "yours is never sent to an address that the project's own file chose. "
        "Nothing was sent. Give the address with --base-url if you trust it, or set a key beside it."
    )


def _at_home(target: _Target) -> bool:
    """Whether the address is the provider's own, and nobody can listen on the way."""
    secure = target.url is None or urlsplit(target.url).scheme == "https"
    return secure and preset_for(target.url) is target.preset
