"""The words of an error body, gathered from wherever they are.

Errors come as an HTTP body or inside a stream of status 200, in a dozen shapes: text, list, object in `message`, JSON
in a string, fields at the top level. Rather than a parser for each, everything that may be a message, a code or the
name of a field is collected; what it means is read from the collection (`refusals.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import field
from email.utils import parsedate_to_datetime
from typing import Any

from .values import dataclass

SHOWN = 600  # characters of a provider's text that a person is shown


@dataclass
class Refusal:
    """The words of one error, gathered from wherever they were."""

    messages: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)  # of the provider behind the one that answered
    html: bool = False  # a page for people, where there should have been an answer

    @property
    def said(self) -> str:
        """The provider's text for a person, the most telling part first to last, bounded."""
        unique = list(dict.fromkeys(" ".join(text.split()) for text in self.messages if text.strip()))
        told = [text for text in unique if not any(text != other and text in other for other in unique)]
        text = ": ".join(told) or " ".join(self.codes)
        return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"

    @property
    def words(self) -> str:
        """Everything in lower case, for matching."""
        return "\n".join([*self.messages, *self.codes, *self.fields]).lower()


_SPAN = r"(\d+(?:\.\d+)?)\s*(ms|s|sec\w*|m|min\w*|h|hours?)(?![a-z])"
_WAIT_WORDS = rf"(?:try again|retrydelay|retry|reset|wait)\W*(?:in |after |for )?\W*((?:{_SPAN}[\s,]*(?:and )?)+)"
_UNITS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "s": 1.0, "se": 1.0, "h": 3600.0, "ho": 3600.0}
_MESSAGE_KEYS = ("message", "error_message", "msg", "detail", "error", "raw", "metadata", "details", "errors", "reason")
_CODE_KEYS = ("code", "type", "status", "error_type", "reason", "quotaId", "quota_limit", "retryDelay")


def gather(body: Any, into: Refusal | None = None, depth: int = 0) -> Refusal:
    """Collects messages, codes and field names from an error body in any shape."""
    found = into if into is not None else Refusal()
    if depth > 8:
        return found
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        _gather_text(body, found, depth)
    elif isinstance(body, list):
        for item in body[:20]:
            gather(item, found, depth + 1)
    elif isinstance(body, dict):
        _gather_object(body, found, depth)
    return found


def _gather_text(text: str, found: Refusal, depth: int) -> None:
    if text.lstrip().startswith(("{", "[")):
        try:
            gather(json.loads(text), found, depth + 1)
            return
        except (ValueError, RecursionError):
            pass
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html")):
        found.html = True
        title = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = title[1] if title else "an HTML page instead of an answer"
    if text.strip():
        found.messages.append(text[:8000])


def _gather_object(body: dict[str, Any], found: Refusal, depth: int) -> None:
    for key in _CODE_KEYS:
        value = body.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            found.codes.append(f"{key} {value}" if key == "retryDelay" else str(value))
    if isinstance(body.get("param"), str):
        found.fields.append(body["param"])
    location = body.get("loc")
    if isinstance(location, list):
        found.fields.append(".".join(str(part) for part in location if part != "body"))
        if isinstance(body.get("msg"), str):
            found.messages.append(f"{found.fields[-1]}: {body['msg']}")
            return
    for key in _MESSAGE_KEYS:
        if key in body and not (key in _CODE_KEYS and isinstance(body[key], str)):
            gather(body[key], found, depth + 1)
    if isinstance(body.get("headers"), dict):
        found.headers |= {name: value for name, value in body["headers"].items() if isinstance(value, str)}
    for key in ("violations", "quotaMetric"):
        if key in body:
            gather(body[key], found, depth + 1)


def is_error(chunk: dict[str, Any]) -> bool:
    """Whether a chunk of a stream with status 200 is an error in one of its disguises."""
    if chunk.get("error") or chunk.get("error_message") or chunk.get("error_type"):
        return True
    if chunk.get("object") == "error" or chunk.get("type") == "error":
        return True
    choices = chunk.get("choices")
    if isinstance(choices, list) and choices:
        return isinstance(choices[0], dict) and bool(choices[0].get("error"))
    return "choices" not in chunk and not chunk.get("usage") and bool(chunk.get("message") or chunk.get("detail"))


def retry_after(headers: Mapping[str, str], words: str = "") -> float | None:
    """The wait in seconds that an answer asks for: header in seconds, milliseconds or as a date (RFC 9110, 10.2.3),
    Google's RetryInfo, or "try again in 1h2m3.5s". None if it asks for none or in a form that makes no sense."""
    folded = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = folded.get(name, "")
        if re.fullmatch(r"\d{1,12}(\.\d+)?", value):
            return float(value) * unit
    try:
        return max(0.0, parsedate_to_datetime(folded.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        pass
    told = re.search(_WAIT_WORDS, words)
    return sum(float(number) * _UNITS[unit[:2]] for number, unit in re.findall(_SPAN, told[1])) if told else None
