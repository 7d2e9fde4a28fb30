"""CoreCoder, a terminal coding agent small enough to read in an afternoon.

    from corecoder import Agent, LLM
    agent = Agent(LLM("model", "key", "https://host/v1"))
    print(agent.chat("What does this project do?"))

The names below load their modules when they are first used, so that `import corecoder` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the real one costs the import of typing, a quarter of the time of `corecoder --version`
if TYPE_CHECKING:
    from typing import Any

    from .agent import Agent as Agent
    from .config import Config as Config
    from .context import ContextManager as ContextManager
    from .llm import LLM as LLM
    from .scripted import ScriptedLLM as ScriptedLLM
    from .session import Session as Session
    from .tokens import estimate_tokens as estimate_tokens
    from .tool import Tool as Tool
    from .tools import ALL_TOOLS as ALL_TOOLS

__version__ = "0.9.0"

_HOMES = {
    "Agent": "agent",
    "LLM": "llm",
    "Config": "config",
    "ContextManager": "context",
    "estimate_tokens": "tokens",
    "Tool": "tool",
    "ALL_TOOLS": "tools",
    "Session": "session",
    "ScriptedLLM": "scripted",
    **dict.fromkeys(
        (
            "Event TurnStarted StepStarted TextDelta ReasoningDelta MessageCompleted ToolStarted ToolOutput "
            "ToolFinished Question Retrying Compacting Compacted UsageUpdated TodoChanged Notice Steered ModeChanged "
            "TurnFinished Usage"
        ).split(),
        "events",
    ),
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # only needed here, and --version never comes here

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
