"""What to do without a configuration: a model server on this machine, or a page with the ways to go on."""

from __future__ import annotations

from .config import Config
from .errors import ConfigError
from .providers import PRESETS, LocalServer, find_local_servers
from .terminal import Screen
from .ui import Ui

WAYS_ON = """\
Welcome to CoreCoder. No model is set up yet; three ways to go on:

1. With nothing, see a small task done with real tools and real tests:
       corecoder --demo

2. With a key, in the environment or in {env}:
       export OPENAI_API_KEY=...
   or the key of another provider:
{keys}

3. With a model server, on this machine (Ollama, llama.cpp, LM Studio, vLLM):
       corecoder --local
   or anywhere:
       corecoder --base-url URL --model NAME"""
_KEYS_PER_LINE = 3


def ways_on(config: Config, servers: list[LocalServer]) -> str:
    """The page for whoever has neither key nor server; says so where a server is running here."""
    names = [preset.key_env for preset in PRESETS.values() if preset.key_env and preset.name != "openai"]
    lines = [", ".join(names[at : at + _KEYS_PER_LINE]) for at in range(0, len(names), _KEYS_PER_LINE)]
    page = WAYS_ON.format(env=config.home / ".env", keys="\n".join(f"       {line}" for line in lines))
    if not servers:
        return page
    return f"{page}\n\nA model server is running here: {_words(servers[0])}. corecoder --local uses it."


def local_flags(model: str | None, err: Screen) -> dict[str, object]:
    """The flags that stand for --local; what was chosen is said. Raises ConfigError where no server is running."""
    servers = find_local_servers()
    if not servers:
        places = ", ".join(f"{preset.name} at {preset.base_url}" for preset in PRESETS.values() if preset.local)
        raise ConfigError(
            f"no model server was found on this machine ({places}); start one, or name it with --base-url"
        )
    return chosen(servers[0], model, err)


def chosen(server: LocalServer, model: str | None, err: Screen) -> dict[str, object]:
    """The flags for `server` and the model wanted, or its first one that writes text."""
    name = model or next((name for name in server.models if "embed" not in name.lower()), server.models[0])
    others = [other for other in server.models if other != name][:5]
    also = f" (--model takes others: {', '.join(others)})" if others and not model else ""
    err.prose(f"Using {name} at {server.preset.base_url}{also}.", "dim")
    if server.note:
        err.prose(server.note, "yellow")
    return {"base_url": server.preset.base_url, "model": name, "local": True}


def offer(servers: list[LocalServer], ui: Ui) -> bool:
    """Asks the person whether to use the server that is running here; yes is the default."""
    words = f"No model is set up, but a model server is running here: {_words(servers[0])}. Use it? [Y]es, [n]o"
    try:
        return ui.choose(words, {"": "yes", "y": "yes", "n": "no"}) == "yes"
    except KeyboardInterrupt:
        return False


def _words(server: LocalServer) -> str:
    more = f" and {len(server.models) - 1} more" if len(server.models) > 1 else ""
    return f"{server.preset.name} with {server.models[0]}{more}"
