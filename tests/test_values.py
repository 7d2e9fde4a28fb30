"""Our `dataclass` keeps every promise of the standard one that we use."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, replace
from typing import Any

import pytest

from corecoder.events import Notice, ToolStarted, Usage
from corecoder.values import dataclass


def made_by(decorator: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """A frozen class, one derived from it and one that can be changed, the same whatever makes them."""

    @decorator(frozen=True)
    class Frozen:
        """Nothing in it can be changed."""

        a: int
        b: str = "b"
        hidden: str = field(default="", repr=False)
        apart: int = field(default=0, compare=False)
        last: bool = field(default=False, kw_only=True)

    @decorator(frozen=True)
    class Derived(Frozen):
        """With one field more."""

        c: tuple[int, ...] = ()

        def __repr__(self) -> str:
            return "its own words"

    @decorator
    class Open:
        """Everything in it can be changed."""

        many: list[int] = field(default_factory=list)
        name: str = ""

    return Frozen, Derived, Open


BOTH = pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass], ids=["ours", "standard"])


@BOTH
def test_values_are_shown_compared_and_hashed_field_by_field(decorator: Callable[..., Any]) -> None:
    frozen, derived, changing = made_by(decorator)
    assert repr(frozen(1, hidden="x")) == "made_by.<locals>.Frozen(a=1, b='b', apart=0, last=False)"
    assert repr(changing([1], "n")) == "made_by.<locals>.Open(many=[1], name='n')"
    assert repr(derived(1)) == "its own words"
    assert frozen(1, apart=1) == frozen(1, apart=2)
    assert hash(frozen(1, apart=1)) == hash(frozen(1, apart=2)) == hash((1, "b", "", False))
    assert frozen(1) != frozen(2)
    assert frozen(1, last=True) != frozen(1)
    assert frozen(1) != derived(1)
    assert frozen(1) != (1, "b", "", 0, False)
    assert changing([1]) == changing([1]) != changing()
    with pytest.raises(TypeError, match="unhashable"):
        hash(changing())


@BOTH
def test_what_is_frozen_cannot_be_changed_by_any_name(decorator: Callable[..., Any]) -> None:
    for value in (made_by(decorator)[0](1), made_by(decorator)[1](1, c=(2,))):
        for name in ("a", "b", "last", "new"):
            with pytest.raises(FrozenInstanceError):
                setattr(value, name, 5)
        with pytest.raises(FrozenInstanceError):
            del value.a
        assert (value.a, value.b, value.last) == (1, "b", False)


@BOTH
def test_what_is_not_frozen_can_be_changed(decorator: Callable[..., Any]) -> None:
    value = made_by(decorator)[2]()
    value.name, value.extra = "new", 1
    value.many.append(3)
    assert (value.name, value.extra, value.many) == ("new", 1, [3])


@BOTH
def test_a_value_goes_through_replace_asdict_and_match(decorator: Callable[..., Any]) -> None:
    frozen, derived, _ = made_by(decorator)
    assert replace(frozen(1), a=2, last=True) == frozen(2, last=True)
    assert asdict(derived(1, c=(2,))) == {"a": 1, "b": "b", "hidden": "", "apart": 0, "last": False, "c": (2,)}
    match derived(7):
        case frozen(a, b):
            assert (a, b) == (7, "b")
        case _:
            pytest.fail("it did not match")


@pytest.mark.parametrize("value", [Notice("x"), ToolStarted("1", "bash", {"command": "ls"}), Usage(1, 2)], ids=repr)
def test_a_copied_value_is_equal_and_as_frozen(value: Any) -> None:
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert twin == value
        assert twin is not value
        with pytest.raises(FrozenInstanceError):
            setattr(twin, next(iter(asdict(value))), "other")
