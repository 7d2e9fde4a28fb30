"""What is known of a model, from the surest source to the weakest, and what its endpoint taught us.

The window, in order: the user's word, what an overflow taught, the provider's own model list, the offline catalogue
`genai-prices`. Nothing here guesses: what no source knows is None, and the context manager has its default.

Lessons are kept in `models.json` in CoreCoder's home, by endpoint and model: quirks, a window, an output limit, the
provider's listing. The file is read tolerantly and replaced as a whole; without a home they last for the process.
The price: two processes that learn at the same moment may forget one lesson, which costs one more refusal.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from .dialects import known
from .events import Usage
from .providers import is_local
from .values import dataclass

FILE = "models.json"
_MOST_NAMES = 300  # of a listing that are kept
LESSON_AGE = 7 * 86400.0  # seconds for which a listing and a window that an overflow named are believed

# Models that take images, or reason, by what their makers call them; only used where no listing says so.
_SEES = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-5|(?:^|/)o[34]|claude-(?:3|opus|sonnet|haiku|fable)|gemini|-vl\b|vision|llava|pixtral|llama-?4"
    r"|gemma-?[34]|kimi-k(?:2\.[5-9]|3)|grok-4|mistral-(?:small|medium)-(?:3|latest)|glm-[\d.]+v"
)
_REASONS = re.compile(
    r"(?:^|/)o[134]\b|gpt-5|gpt-oss|reason|thinking|(?:^|[-/])r1\b|qwq|deepseek-v4|kimi-k3|gemini-(?:[3-9]|2\.5)|magistral"
)


@dataclass(frozen=True)
class ModelInfo:
    """`window` and `output_limit` in tokens, None where unknown. `sources` says where each value came from."""

    window: int | None = None
    output_limit: int | None = None
    sees_images: bool = False
    reasons: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Lessons:
    """What one endpoint taught about one model: quirks, the window that an overflow named at `taught` (seconds since
    the epoch), the output limit that a refusal named; its listing and what the catalogue knew, and `at` what time."""

    quirks: frozenset[str] = frozenset()
    window: int | None = None
    taught: float = 0.0
    output_limit: int | None = None
    listed: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0

    @property
    def stale(self) -> bool:
        """Whether the listing has to be asked for (again)."""
        return not _recent(self.at)


class Memory:
    """The lessons on disk. `home` None keeps none."""

    def __init__(self, home: Path | None, base_url: str | None, model: str) -> None:
        self._path = home / FILE if home else None
        self._key = f"{(base_url or 'default').rstrip('/')} {model}"

    def load(self) -> Lessons:
        """The lessons kept for this endpoint and model; whatever makes no sense is ignored."""
        entry = self._read().get(self._key)
        if not isinstance(entry, dict):
            return Lessons()
        quirks = entry.get("quirks")
        listed, at = entry.get("listed"), entry.get("at")
        return Lessons(
            frozenset(name for name in quirks if known(name)) if isinstance(quirks, list) else frozenset(),
            _size(entry.get("window")) if _recent(entry.get("taught")) else None,
            float(entry["taught"]) if _recent(entry.get("taught")) else 0.0,
            _size(entry.get("output_limit")),
            listed if isinstance(listed, dict) else {},
            float(at) if isinstance(at, (int, float)) else 0.0,
        )

    def save(self, lessons: Lessons) -> None:
        """Keeps `lessons`. A home that cannot be written is no reason to stop: they last for the process then."""
        if self._path is None:
            return
        entry = {
            "quirks": sorted(lessons.quirks),
            "window": lessons.window,
            "taught": lessons.taught,
            "output_limit": lessons.output_limit,
            "listed": lessons.listed,
            "at": lessons.at,
        }
        everything = self._read() | {self._key: {key: value for key, value in entry.items() if value}}
        try:
            _replace(self._path, json.dumps(everything, indent=1, ensure_ascii=False))
        except OSError:
            return

    def _read(self) -> dict[str, Any]:
        return _everything(self._path) if self._path else {}


def _everything(path: Path) -> dict[str, Any]:
    try:
        everything = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return everything if isinstance(everything, dict) else {}


def known_names(home: Path, base_url: str | None) -> list[str]:
    """The models that are known at this endpoint without asking it: those used before, then those it listed."""
    place = f"{(base_url or 'default').rstrip('/')} "
    entries = {key: entry for key, entry in _everything(home / FILE).items() if key.startswith(place)}
    names = [key.removeprefix(place) for key in entries]
    for entry in entries.values():
        listed = entry.get("listed") if isinstance(entry, dict) else None
        more = listed.get("names") if isinstance(listed, dict) else None
        names += [name for name in more if isinstance(name, str)] if isinstance(more, list) else []
    return list(dict.fromkeys(names))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _recent(moment: Any) -> bool:
    return isinstance(moment, (int, float)) and 0 <= time.time() - moment < LESSON_AGE


def _size(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9 else None


def describe(model: str, lessons: Lessons, user_window: int | None = None) -> ModelInfo:
    """What is known, each value from its best source."""
    listed = lessons.listed
    windows = {
        "the user": user_window,
        "an overflow": lessons.window,
        "the provider's list": _size(listed.get("window")),
        "the catalogue": _size(listed.get("catalogue")),
    }
    source = next((name for name, size in windows.items() if size), None)
    limits = {"a refusal": lessons.output_limit, "the provider's list": _size(listed.get("output_limit"))}
    limit_source = next((name for name, size in limits.items() if size), None)
    name = model.lower()
    sees = listed.get("images")
    return ModelInfo(
        window=windows[source] if source else None,
        output_limit=limits[limit_source] if limit_source else None,
        sees_images="no images" not in lessons.quirks
        and (bool(sees) if sees is not None else bool(_SEES.search(name))),
        reasons=bool(_REASONS.search(name)),
        sources={key: value for key, value in (("window", source), ("output_limit", limit_source)) if value},
    )


def from_listing(listing: Any, model: str) -> dict[str, Any]:
    """What the answer to GET /models says about `model`, in our words.

    Field names: `context_length` and `architecture` (OpenRouter, Kimi, Together), `max_model_len` (vLLM),
    `context_window` (Groq), `max_context_length` and `capabilities` (Mistral), `max_input_tokens` (Anthropic,
    LiteLLM), `inputTokenLimit` (Gemini), `meta.n_ctx` (llama.cpp), `loaded_context_length` (LM Studio).
    """
    rows = _rows(listing)
    named = [row for row in rows if row.get("id") in (model, f"models/{model}")]
    row = next(iter(named or (rows if len(rows) == 1 else [])), None)  # llama.cpp answers to any name
    if row is None:
        return {}
    places = [row, *(row[key] for key in ("top_provider", "meta", "model_info") if isinstance(row.get(key), dict))]
    windows = (
        "loaded_context_length",
        "n_ctx",
        "max_model_len",
        "context_length",
        "context_window",
        "max_context_length",
        "max_input_tokens",
        "inputTokenLimit",
    )
    limits = ("max_completion_tokens", "max_output_tokens", "max_output_length", "outputTokenLimit")
    found = {"window": _first(places, windows), "output_limit": _first(places, limits), "images": _images(row)}
    return {key: value for key, value in found.items() if value is not None}


def listed_names(listing: Any) -> list[str]:
    """The models in the answer to GET /models, the first few hundred of them."""
    names = [row["id"].removeprefix("models/") for row in _rows(listing) if isinstance(row.get("id"), str)]
    return names[:_MOST_NAMES]


def _rows(listing: Any) -> list[dict[str, Any]]:
    rows = listing.get("data") if isinstance(listing, dict) else listing
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _first(places: list[dict[str, Any]], names: tuple[str, ...]) -> int | None:
    return next((size for name in names for place in places if (size := _size(place.get(name)))), None)


def _images(row: dict[str, Any]) -> bool | None:
    architecture, capabilities = row.get("architecture"), row.get("capabilities")
    if isinstance(architecture, dict) and isinstance(architecture.get("input_modalities"), list):
        return "image" in architecture["input_modalities"]
    if isinstance(capabilities, dict) and isinstance(capabilities.get("vision"), bool):
        return bool(capabilities["vision"])
    return {"vlm": True, "llm": False}.get(str(row.get("type")))


def catalogue_window(model: str, base_url: str | None) -> int | None:
    """The window in the offline catalogue, by provider or, for an unknown endpoint, by the model's name."""
    if is_local(base_url):
        return None
    # Imported here to buy start-up time: 1.6 MB of prices, needed after the first reply at the earliest.
    from genai_prices.data_snapshot import get_snapshot

    for url in (base_url or "https://api.openai.com/v1", None):
        try:
            return get_snapshot().find_provider_model(model, None, None, url)[1].context_window
        except LookupError:
            continue
    return None


def cost_of(usage: Usage, raw: Mapping[str, Any], model: str, base_url: str | None) -> float | None:
    """Dollars for one request: what the provider itself reports (OpenRouter's `usage.cost`), else the catalogue's
    price for this provider with cached tokens at theirs, else None. An unknown endpoint has no price."""
    reported = raw.get("cost")
    if isinstance(reported, (int, float)) and not isinstance(reported, bool) and reported >= 0:
        return float(reported)
    if is_local(base_url):
        return None
    # Imported here to buy start-up time, as above.
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    tokens = Priced(input_tokens=usage.prompt, cache_read_tokens=usage.cached, output_tokens=usage.completion)
    try:
        price = calc_price(tokens, model, provider_api_url=base_url or "https://api.openai.com/v1").total_price
    except (LookupError, ValueError):
        return None
    return float(price)
