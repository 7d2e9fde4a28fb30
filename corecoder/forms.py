"""The forms that settings may have: how each is read from text, TOML or a flag, and the words for what is accepted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from .values import dataclass


@dataclass(frozen=True)
class Form:
    """`read` turns a raw value into the setting's own type, or raises ValueError; `accepts` says what it takes."""

    accepts: str
    read: Callable[[object], Any]


def _name(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.strip().isprintable():
        raise ValueError
    return raw.strip()


def _key(raw: object) -> str:
    # A header value (RFC 9110, field-value) of visible ASCII is what every provider's keys are made of.
    if not isinstance(raw, str) or not re.fullmatch(r"[!-~]+", raw.strip()):
        raise ValueError
    return raw.strip()


def _url(raw: object) -> str:
    url = _name(raw)
    parts = urlsplit(url)  # ValueError for a broken host
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\s\\]", url) or parts.port == 0:
        raise ValueError
    return url.rstrip("/").removesuffix("/chat/completions")


def _tokens(raw: object) -> int:
    match = re.fullmatch(r"(\d[\d_]*)([km]?)", str(raw).strip().lower(), re.ASCII)
    if not match or isinstance(raw, bool):
        raise ValueError
    return _positive(int(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2]])


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError
    return number


def _steps(raw: object) -> int:
    if isinstance(raw, bool) or not re.fullmatch(r"\d{1,9}", str(raw).strip(), re.ASCII):
        raise ValueError
    return _positive(int(str(raw)))


def _number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)) or not math.isfinite(float(raw)):
        raise ValueError
    return float(raw)


def _between(low: float, high: float, *, open_below: bool = False) -> Callable[[object], float]:
    def read(raw: object) -> float:
        number = _number(raw)
        if not low <= number <= high or (open_below and number == low):
            raise ValueError
        return number

    return read


def _yes_no(raw: object) -> bool:
    word = str(raw).strip().lower()
    if word not in ("yes", "no", "true", "false", "1", "0", "on", "off"):
        raise ValueError
    return word in ("yes", "true", "1", "on")


def one_of(*words: str) -> Form:
    """One of `words`, in any case."""

    def read(raw: object) -> str:
        word = _name(raw).lower()
        if word not in words:
            raise ValueError
        return word

    return Form(f"{', '.join(words[:-1])} or {words[-1]}", read)


NAME = Form("a name on one line", _name)
KEY = Form("the key as the provider gave it, without spaces, quotes or letters outside ASCII", _key)
URL = Form("an address such as https://api.example.com/v1", _url)
TOKENS = Form("a number of tokens such as 128000 or 128k", _tokens)
STEPS = Form("a whole number from 1", _steps)
SECONDS = Form("seconds, more than 0 and at most 86400", _between(0, 86_400, open_below=True))
FRACTION = Form("a fraction such as 0.5, more than 0 and at most 1", _between(0, 1, open_below=True))
TEMPERATURE = Form("a number from 0 to 2", _between(0, 2))
SANDBOX = one_of("auto", "required", "off", "bubblewrap", "landlock", "seatbelt")
YES_NO = Form("yes or no", _yes_no)
MODE = one_of("ask", "auto", "plan", "yolo")
