"""What is known of a model comes from the surest source, survives on disk, and is never invented."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from corecoder.events import Usage
from corecoder.models import FILE, LESSON_AGE, Lessons, Memory, catalogue_window, cost_of, describe, from_listing

URL = "https://example.test/v1"


def test_the_window_comes_from_the_surest_source() -> None:
    lessons = Lessons(window=3, listed={"window": 4, "catalogue": 5})
    assert describe("m", lessons, 2).window == 2
    assert describe("m", lessons).window == 3
    lessons.window = None
    assert (describe("m", lessons).window, describe("m", lessons).sources["window"]) == (4, "the provider's list")
    lessons.listed.pop("window")
    assert describe("m", lessons).window == 5
    assert describe("m", Lessons()).window is None


def test_the_only_model_of_a_server_is_the_one_that_answers_whatever_it_is_called() -> None:
    row = {"id": "weights.gguf", "meta": {"n_ctx": 16384}}
    assert from_listing({"data": [row]}, "m") == {"window": 16384}
    assert from_listing({"data": [row, {"id": "other"}]}, "m") == {}


def test_what_a_listing_says_of_images_is_believed_before_a_name() -> None:
    assert describe("gpt-4o", Lessons()).sees_images
    assert not describe("gpt-4o", Lessons(listed={"images": False})).sees_images
    assert not describe("gpt-4o", Lessons(frozenset({"no images"}))).sees_images
    assert not describe("some-coder", Lessons()).sees_images
    assert describe("kimi-k3", Lessons()).reasons


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"max_model_len": 32768}, {"window": 32768}),
        ({"context_window": 131072, "max_completion_tokens": 8192}, {"window": 131072, "output_limit": 8192}),
        (
            {"context_length": 262144, "architecture": {"input_modalities": ["text", "image"]}},
            {"window": 262144, "images": True},
        ),
        ({"context_length": 9, "top_provider": {"max_completion_tokens": 7}}, {"window": 9, "output_limit": 7}),
        ({"max_context_length": 40960, "capabilities": {"vision": False}}, {"window": 40960, "images": False}),
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, {"window": 4096}),
        (
            {"loaded_context_length": 8192, "max_context_length": 131072, "type": "vlm"},
            {"window": 8192, "images": True},
        ),
        ({"max_model_len": "big", "context_length": None, "architecture": 3}, {}),
    ],
)
def test_listings_of_every_provider_are_read(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert from_listing({"object": "list", "data": [{"id": "other"}, {"id": "m", **row}]}, "m") == wanted


def test_listings_that_make_no_sense_say_nothing() -> None:
    listings: tuple[object, ...] = (None, [], {}, {"data": None}, {"data": [1, None, {"id": 3}]}, "x")
    for listing in listings:
        assert from_listing(listing, "m") == {}


def test_lessons_survive_by_endpoint_and_model(home: Path) -> None:
    lessons = Lessons(frozenset({"drop temperature"}), 8192, time.time(), 4096, {"window": 9}, time.time())
    Memory(home, URL, "m").save(lessons)
    Memory(home, URL, "n").save(Lessons(window=1000, taught=time.time()))
    assert Memory(home, URL, "m").load() == lessons
    assert Memory(home, URL + "/", "m").load() == lessons
    assert Memory(home, URL, "n").load().window == 1000
    assert Memory(home, None, "m").load() == Lessons()
    assert not lessons.stale
    assert Lessons().stale
    assert list(home.iterdir()) == [home / FILE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\x00",
        json.dumps({f"{URL} m": 3}),
        json.dumps({f"{URL} m": {"quirks": ["nonsense", 3], "window": "x", "at": [], "listed": 1, "output_limit": -1}}),
    ],
)
def test_a_damaged_file_is_read_as_far_as_it_makes_sense(text: str, home: Path) -> None:
    home.mkdir()
    (home / FILE).write_text(text)
    assert Memory(home, URL, "m").load() == Lessons()
    Memory(home, URL, "m").save(Lessons(output_limit=1000))
    assert Memory(home, URL, "m").load().output_limit == 1000


def test_a_window_is_not_believed_for_ever(home: Path) -> None:
    Memory(home, URL, "m").save(Lessons(window=1000, taught=time.time() - LESSON_AGE))
    assert Memory(home, URL, "m").load().window is None


def test_without_a_home_nothing_is_written(project: Path) -> None:
    Memory(None, URL, "m").save(Lessons(window=3))
    assert Memory(None, URL, "m").load() == Lessons()
    assert list(project.iterdir()) == []


def test_the_catalogue_knows_windows_offline() -> None:
    assert (catalogue_window("gpt-5", None) or 0) >= 200_000
    assert (catalogue_window("kimi-k2.5", "https://api.moonshot.ai/v1") or 0) >= 200_000
    assert catalogue_window("gpt-5", "http://127.0.0.1:8080/v1") is None
    assert catalogue_window("no-such-model", URL) is None


def test_cost_counts_cached_tokens_at_their_price() -> None:
    full = cost_of(Usage(1_000_000, 0), {}, "gpt-5", None)
    cached = cost_of(Usage(1_000_000, 0, 1_000_000), {}, "gpt-5", None)
    assert full is not None
    assert cached is not None
    assert 0 < cached < full / 2


def test_a_model_without_a_price_has_no_cost() -> None:
    assert cost_of(Usage(1000, 10), {}, "no-such-model", None) is None
    assert cost_of(Usage(1000, 10), {}, "gpt-5", URL) is None
    assert cost_of(Usage(1000, 10), {}, "gpt-5", "http://localhost:8000/v1") is None
    assert cost_of(Usage(1000, 10), {"cost": 0.5}, "gpt-5", None) == 0.5
