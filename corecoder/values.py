"""`dataclass`, as in the standard library, but made in a quarter of the time.

The standard one writes and compiles the source of six methods for every class, a millisecond each, and a one-shot run
makes ninety classes before its first request. Here only `__init__` is compiled; the other methods are shared, and look
at the fields when they are called. The price: comparing and printing a value takes microseconds longer, and what is
frozen is so because a field can be set only once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, *, frozen: bool = False) -> Any:
        """`dataclasses.dataclass` with `frozen` as its only option; `field` and the rest of the module go with it."""

        def make(cls: type) -> type:
            shared: dict[str, Callable[..., Any] | None] = {"__repr__": _shown, "__eq__": _equal, "__hash__": None}
            if frozen:
                shared |= {"__hash__": _hashed, "__setattr__": _set_once, "__delattr__": _keep}
            for name, method in shared.items():
                if name not in cls.__dict__:
                    setattr(cls, name, method)
            return dataclasses.dataclass(repr=False, eq=False)(cls)

        return make if cls is None else make(cls)


def _values(value: Any) -> list[Any]:
    return [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]


def _equal(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hashed(self: Any) -> int:
    return hash(tuple(_values(self)))


def _shown(self: Any) -> str:
    fields = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _set_once(self: Any, name: str, value: object) -> None:
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _keep(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__name__}")
