"""Commands on how the agent works: the model, the mode, plan mode, trust, and notes on the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..app import make_llm
from ..config import SETTINGS, Config, load_config
from ..models import known_names
from ..permissions import MODES
from ..prompt import AGENTS
from ..providers import PRESETS
from ..trust import set_trust
from ..words import tokens
from .registry import Console, command, indented, two_columns

_MOST_MODELS = 40  # listed on the screen
_OF_THE_MODEL = ("model", "provider", "base_url", "api_key", "max_context", "max_tokens", "temperature")
_MODES: Mapping[str, str] = MappingProxyType(
    {
        "ask": "reads run at once, all else is asked for",
        "auto": "edits in the project and confined commands run at once",
        "plan": "nothing is changed: the model looks around and makes a plan",
        "yolo": "everything runs without a question",
    }
)


def _models(console: Console) -> Iterable[tuple[str, str]]:
    """What is known without asking anybody: this model, those used or listed before, the defaults of the providers
    whose keys are set."""
    config = console.config
    found = {console.agent.llm.model: f"{config.provider}, in use"}
    for name in known_names(config.home, config.base_url):
        found.setdefault(name, config.provider)
    for provider in config.keyed:
        preset = PRESETS[provider]
        mine = provider == config.provider
        for name in [preset.default_model, *known_names(config.home, preset.base_url)]:
            about = f"{provider}, its default" if name == preset.default_model else provider
            found.setdefault(name if mine else f"{provider}/{name}", about)
    return found.items()


@command("model", "[name]", choices=_models)
def model(console: Console, argument: str) -> None:
    """Lists the models, or goes on with another one.

    The argument is a name, or `provider/name` for another provider whose key is set. The conversation goes on; where
    it does not fit the window of the new model, room is made before the next request. Any name works, also one that
    is not listed.
    """
    screen, agent = console.screen, console.agent
    if not argument:
        known = list(_models(console))
        rows = [(f"{'*' if at == 0 else ' '} {name}", about) for at, (name, about) in enumerate(known)]
        two_columns(screen, rows[:_MOST_MODELS])
        if len(rows) > _MOST_MODELS:
            screen.line(f"  … and {len(rows) - _MOST_MODELS} more, which Tab completes", "dim")
        return _show_model(console)
    config = _config_for(console, argument)
    if config.missing:
        return screen.line(config.missing, "yellow")
    before = agent.llm
    agent.use(make_llm(config))
    before.close()
    chosen = {name: getattr(config, name) for name in _OF_THE_MODEL}
    sources = {**console.config.sources, **{name: config.sources[name] for name in _OF_THE_MODEL}}
    console.config = replace(console.config, **chosen, sources=sources)
    _show_model(console)
    if too_small := agent.context.too_small():
        return screen.prose(too_small, "yellow")
    fill, usable = agent.context.fill(agent.session.view), agent.context.usable
    if fill > usable * config.collapse_at:
        screen.prose(
            f"The conversation has {tokens(fill)} tokens, too many for a window of {tokens(agent.context.window)}: "
            "room is made before the next request.",
            "yellow",
        )
    return None


def _config_for(console: Console, name: str) -> Config:
    """The settings with another model: a bare name is one of the provider in use, also if that was switched to."""

    def load(model: str) -> Config:
        return load_config({**console.flags, "model": model}, cwd=console.agent.workspace.root)

    config, provider = load(name), console.config.provider
    named = name.partition("/")[0] in PRESETS
    if config.provider != provider and provider in PRESETS and not named:
        return load(f"{provider}/{name}")
    return config


def _show_model(console: Console) -> None:
    config, agent = console.config, console.agent
    where = f" at {config.base_url}" if config.base_url else ""
    console.screen.line(f"  {agent.llm.model} ({config.provider}{where}, window {tokens(agent.context.window)})")


def _modes(_console: Console) -> Iterable[tuple[str, str]]:
    return _MODES.items()


@command("mode", "[name]", anytime=True, choices=_modes)
def mode(console: Console, argument: str) -> None:
    """Shows what may happen without a question, or changes it.

    `ask`, `auto`, `plan` or `yolo`; it holds until the session ends or it is changed again.
    """
    agent, screen = console.agent, console.screen
    name = argument.strip().lower()
    if name and name not in MODES:
        return screen.line(f"There is no mode {argument}. The modes are {', '.join(MODES)}.", "yellow")
    if name:
        agent.set_mode(name)
    else:
        two_columns(screen, [(f"{'*' if each == agent.mode else ' '} {each}", about) for each, about in _MODES.items()])
    return screen.prose(agent.permissions.announcement(), "dim")


@command("plan", "[words]")
def plan(console: Console, argument: str) -> None:
    """Goes to plan mode: the model looks and plans only.

    What you write after the command is the prompt. Once you accept its plan, it goes on in the mode that you choose;
    /mode leaves plan mode without one.
    """
    console.agent.set_mode("plan")
    if argument:
        return console.submit(argument)
    return console.screen.prose(console.agent.permissions.announcement(), "dim")


_INIT = f"""\
Look around in this project and write {AGENTS} in its top directory: notes for coding agents who start here with no \
other knowledge.

First find out: read the manifests, the README, the configuration of tests and linters and of continuous integration, \
and a few source files of each part. Prefer what the files say over what is usual. Where it is quick and harmless, run \
a command to see that it works before you write it down.

Then write, in at most about 60 lines:
- what the project is, in one or two sentences
- the exact commands to build it, to run all tests and a single test, to lint and to format
- the layout: which directory holds what, and where the entry points are
- conventions that the code really follows and that one would not guess (style, errors, naming, layers), and what to \
stay away from (generated files, vendored code)

No general advice that holds for every project, no list of every file, nothing that you have not seen. {{existing}}
At the end say in two or three sentences what you were not sure of."""
_NEW = "If a file with the same purpose exists under another name (CLAUDE.md, .cursorrules), use what holds of it."
_IMPROVE = (
    f"{AGENTS} exists: read it first, keep what it says unless it is wrong, in its own words and order, and only "
    "correct it and add what is missing."
)


@command("init")
def init(console: Console, _argument: str) -> None:
    """Lets the model look around and write an AGENTS.md.

    Commands, layout and conventions, as a draft for you to edit; one that exists is improved, and keeps what it says.
    """
    exists = (console.agent.workspace.root / AGENTS).exists()
    console.submit(_INIT.format(existing=_IMPROVE if exists else _NEW))


def _trust_options(_console: Console) -> Iterable[tuple[str, str]]:
    return [("--undo", "the project's own settings are not used any more")]


@command("trust", "[--undo]", choices=_trust_options)
def trust(console: Console, argument: str) -> None:
    """Lets this project's own settings count, or not.

    `.corecoder/config.toml` in the project does nothing until you trust the project. It can set a model, its address
    and limits, but no key, and nothing that would make a run less safe than your own settings do. It is shown first;
    `--undo` takes the trust back. Both hold from the next start on.
    """
    screen, settings, root = console.screen, console.config, console.agent.workspace.root
    if argument == "--undo":
        set_trust(settings.home, root, False)
        return screen.prose("This project is not trusted; from the next start on its own settings are not used.")
    if argument:
        return screen.line("The only option is --undo.", "yellow")
    config = load_config({**console.flags, "trust": True}, cwd=root)
    if not config.project_file:
        return screen.prose(f"This project has no settings of its own ({root / '.corecoder' / 'config.toml'}).")
    ending = f" in {config.project_file}"
    wins = [(item.name, item) for item in SETTINGS if config.sources.get(item.name, "").endswith(ending)]
    rows = [(name, f"{getattr(config, name)}  (now: {getattr(settings, name) or '-'})") for name, _ in wins]
    screen.prose(f"{config.project_file} would set:" if rows else f"{config.project_file} would change nothing.")
    two_columns(screen, rows)
    for warning in config.warnings:
        if config.project_file in warning or "where requests go" in warning:
            indented(screen, warning, "yellow")
    if console.pick(f"Trust {root} and what comes to this file later?", ["no", "yes"]) != 1:
        return screen.line("Nothing has changed.")
    set_trust(settings.home, root, True)
    return screen.prose("Trusted. Its settings hold from the next start on; /trust --undo takes it back.")
