"""The providers that are known by name: where they are, which variable holds their key, and what is odd about them.

Everything here is data. An endpoint that is not in the table works as well: it is treated as a plain one, and what it
refuses is learnt on the first refusal (`dialects.py`). A row saves that first refusal, and no code asks who a
provider is.
"""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

from .errors import ConfigError
from .values import dataclass


@dataclass(frozen=True)
class Preset:
    """One provider. `key_env` is "" where no key is needed, `base_url` None for the SDK's own default; `quirks` are
    names from `dialects.py`; `hosts` are further hosts that behave like it."""

    name: str
    key_env: str
    base_url: str | None
    default_model: str
    quirks: frozenset[str] = frozenset()
    hosts: tuple[str, ...] = ()

    @property
    def local(self) -> bool:
        """Whether it is a server on this machine."""
        return not self.key_env


# Fields that these refuse in a message that comes back to them, so they get the plain standard.
_PLAIN = frozenset({"plain messages", "plain calls"})

_ROWS = (
    Preset("openai", "OPENAI_API_KEY", None, "gpt-5.5", _PLAIN | {"drop max_tokens"}, ("api.openai.com",)),
    Preset("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com", "deepseek-chat"),
    Preset(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com/v1",
        "claude-sonnet-5",
        _PLAIN | {"absent content", "short ids"},
    ),
    Preset(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-3.5-flash",
        frozenset({"plain messages", "named results"}),
    ),
    Preset("kimi", "MOONSHOT_API_KEY", "https://api.moonshot.ai/v1", "kimi-k3", hosts=("api.moonshot.cn",)),
    Preset(
        "qwen",
        "DASHSCOPE_API_KEY",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "qwen3-max",
        hosts=("dashscope.aliyuncs.com",),
    ),
    Preset("glm", "ZAI_API_KEY", "https://api.z.ai/api/paas/v4", "glm-5.3", hosts=("open.bigmodel.cn",)),
    Preset(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1",
        "mistral-medium-latest",
        _PLAIN | {"drop stream_options", "nine ids", "bridge results"},
    ),
    Preset("groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b", _PLAIN),
    Preset("xai", "XAI_API_KEY", "https://api.x.ai/v1", "grok-4.7"),
    Preset("cerebras", "CEREBRAS_API_KEY", "https://api.cerebras.ai/v1", "gpt-oss-120b", _PLAIN),
    Preset("together", "TOGETHER_API_KEY", "https://api.together.xyz/v1", "moonshotai/Kimi-K3"),
    Preset("openrouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", "~anthropic/claude-sonnet-latest"),
    Preset("ollama", "", "http://127.0.0.1:11434/v1", ""),
    Preset("llamacpp", "", "http://127.0.0.1:8080/v1", ""),
    Preset("lmstudio", "", "http://127.0.0.1:1234/v1", ""),
    Preset("vllm", "", "http://127.0.0.1:8000/v1", ""),
)
PRESETS: dict[str, Preset] = {row.name: row for row in _ROWS}


def checked_url(base_url: str | None) -> str | None:
    """`base_url` if a request can be sent there. Raises ConfigError in words for a person."""
    if base_url is None:
        return None
    try:
        place = urlsplit(base_url)
        usable = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"The base URL {base_url!r} is no address; it must look like https://api.example.com/v1.")
    return base_url


def preset_for(base_url: str | None) -> Preset | None:
    """The provider whose server `base_url` is on, None for an endpoint that is not in the table."""
    if base_url is None:
        return PRESETS["openai"]
    place = urlsplit(base_url)
    for row in _ROWS:
        own = urlsplit(row.base_url or "")
        if place.hostname in row.hosts or (place.hostname == own.hostname and place.port == own.port):
            return row
    return None


def is_local(base_url: str | None) -> bool:
    """Whether the address is on this machine: no price, no catalogue, no patience with an unreachable server."""
    host = urlsplit(base_url or "").hostname or ""
    return host in ("localhost", "::1", "0.0.0.0", "host.docker.internal") or host.startswith("127.")


@dataclass(frozen=True)
class LocalServer:
    """A model server found running here, with the models it lists."""

    preset: Preset
    models: tuple[str, ...]
    note: str = ""


# Ollama gives every model this window unless told otherwise, cuts the front of longer prompts without a word, and its
# chat-completions route cannot set it (Ollama FAQ, "How can I specify the context window size?").
OLLAMA_NOTE = (
    "Ollama cuts prompts at 4,096 tokens unless it was started with a larger window, e.g. OLLAMA_CONTEXT_LENGTH=32768 "
    "ollama serve"
)


def find_local_servers(timeout: float = 0.3, presets: tuple[Preset, ...] = _ROWS) -> list[LocalServer]:
    """The model servers running on this machine that list at least one model; waits at most `timeout` for each."""
    found = []
    for preset in presets:
        if not preset.local or not preset.base_url:
            continue
        models = _listed_models(preset.base_url, timeout)
        if models:
            found.append(LocalServer(preset, models, OLLAMA_NOTE if preset.name == "ollama" else ""))
    return found


def _listed_models(base_url: str, timeout: float) -> tuple[str, ...]:
    """The ids that GET /models gives. Plain sockets: http.client would cost a one-shot start its time."""
    place = urlsplit(base_url)
    host, port = place.hostname or "127.0.0.1", place.port or 80
    request = f"GET {place.path}/models HTTP/1.0\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    answer = b""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(request.encode())
            while len(answer) < 2_000_000 and (piece := connection.recv(65536)):
                answer += piece
    except OSError:
        return ()
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200" not in head.split(b"\r\n", 1)[0]:
        return ()
    start, end = body.find(b"{"), body.rfind(b"}")
    try:
        listing = json.loads(body[start : end + 1])
        return tuple(item["id"] for item in listing.get("data") or () if isinstance(item.get("id"), str))
    except (ValueError, AttributeError, TypeError, KeyError):
        return ()
