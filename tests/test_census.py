"""What is in the window: the figures add up, and items are named so that they can be recalled."""

from __future__ import annotations

from pathlib import Path

from corecoder.agent import Agent
from corecoder.census import take_census
from corecoder.models import ModelInfo
from corecoder.scripted import ScriptedLLM, call


def reading(project: Path, window: int = 128_000) -> Agent:
    (project / "big.txt").write_text("a line of some length\n" * 2000)
    (project / "small.txt").write_text("one\n")
    reads = [[call("read_file", file_path="big.txt", offset=at * 200 + 1, limit=200)] for at in range(6)]
    replies = [*reads, [call("read_file", file_path="small.txt")], [call("grep", pattern="length", path="big.txt")]]
    agent = Agent(ScriptedLLM([*replies, "Read it."], info=ModelInfo(window=window)))
    agent.chat("read it all")
    return agent


def test_kinds_and_results_by_tool_add_up_to_the_fill(project: Path) -> None:
    agent = reading(project)
    found = take_census(agent.session, agent.context)
    assert found.total == agent.context.fill(agent.session.view)
    assert abs(sum(found.kinds.values()) - found.total) <= 6
    assert abs(sum(tokens for _, tokens in found.results.values()) - found.kinds["results"]) <= 9
    assert [(name, count) for name, (count, _) in found.results.items()] == [("read_file", 7), ("grep", 1)]


def test_the_biggest_items_come_first_each_with_the_record_that_brings_it_back(project: Path) -> None:
    agent = reading(project)
    found = take_census(agent.session, agent.context, most=3)
    assert [item.tokens for item in found.biggest] == sorted((item.tokens for item in found.biggest), reverse=True)
    assert len(found.biggest) == 3
    for item in found.biggest:
        assert item.what.startswith(("read_file big.txt", "grep length"))
        assert item.record is not None
        assert "a line of some length" in agent.context.recall(item.record)


def test_a_snipped_result_is_named_by_the_record_of_the_whole(project: Path) -> None:
    agent = reading(project, window=24_000)
    found = take_census(agent.session, agent.context, most=30)
    snipped = [item for item in found.biggest if "(snipped)" in item.what]
    assert snipped
    for item in snipped:
        assert item.record is not None
        assert "a line of some length" in agent.context.recall(item.record)


def test_an_empty_conversation_is_prompt_and_tools_alone() -> None:
    agent = Agent(ScriptedLLM([]))
    found = take_census(agent.session, agent.context)
    assert found.biggest == ()
    assert found.results == {}
    assert found.kinds["system"] + found.kinds["tools"] == found.total
