"""Runs the task of `bench/context.py` on corecoder 0.8.0; started by it, with that version's interpreter.

One JSON object per line: each request goes to stdout, its reply comes from stdin. The other side makes all decisions.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from corecoder.agent import Agent
from corecoder.llm import LLMResponse, ToolCall

ask, answers = os.fdopen(os.dup(1), "w"), sys.stdin
sys.stdout = sys.stderr


class Refused(Exception):
    pass


def exchange(**said: Any) -> Any:
    ask.write(json.dumps(said) + "\n")
    ask.flush()
    return json.loads(answers.readline())


class Piped:
    """Stands in for the model: the other side answers."""

    model = "bench"

    def chat(self, messages: list[dict[str, Any]], tools: Any = None, **_: Any) -> LLMResponse:
        reply = exchange(kind="request", messages=messages, tools=tools or [])
        if reply["refused"]:
            raise Refused(reply["refused"])
        calls = [ToolCall(call["id"], call["name"], json.loads(call["arguments"])) for call in reply["calls"]]
        return LLMResponse(content=reply["content"], tool_calls=calls, prompt_tokens=reply["prompt"])


def main() -> None:
    agent = Agent(Piped(), max_context_tokens=int(sys.argv[1]), max_rounds=1000)
    compress = agent.context._summarize_old, agent.context._hard_collapse

    def watched(how: str, work: Any) -> Any:
        def run(messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
            done = work(messages, *args, **kwargs)
            if done is not False:
                exchange(kind="compacted", how=how, messages=messages)
            return done

        return run

    agent.context._summarize_old = watched("summary", compress[0])
    agent.context._hard_collapse = watched("collapse", compress[1])
    while True:
        todo = exchange(kind="next")
        if todo["prompt"] is None:
            return
        if todo["compact"]:
            agent.context._summarize_old(agent.messages, agent.llm)
        try:
            agent.chat(todo["prompt"])
        except Refused as refused:
            exchange(kind="failed", why=str(refused))


main()
