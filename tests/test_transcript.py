"""A session as Markdown: everything is in it, and nothing breaks out of its place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from corecoder.agent import Agent
from corecoder.messages import Reply
from corecoder.scripted import ScriptedLLM, call
from corecoder.session import Session
from corecoder.transcript import contained, fenced, markdown


def document(agent: Agent) -> str:
    return "".join(markdown(agent.session, agent.context.recall))


class Open(HTMLParser):
    """How deep in <details> each `end` marker stands."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.depth = 0
        self.depths: list[int] = []
        self.feed(MarkdownIt().render(text))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.depth += tag in ("details", "pre", "blockquote")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag in ("details", "pre", "blockquote")

    def handle_data(self, data: str) -> None:
        self.depths += [self.depth] * data.count("LEVEL")


def test_prompts_answers_and_calls_with_results_are_in_it_in_order(project: Path) -> None:
    (project / "a.py").write_text("print(1)\n")
    replies = [["I look.", call("read_file", file_path="a.py")], "It prints **1**.", "Bye."]
    agent = Agent(ScriptedLLM(replies))
    agent.chat("What does a.py do?")
    agent.chat("Thanks\n\nand bye")
    text = document(agent)
    parts = [
        f"# CoreCoder session {agent.session.id}",
        "## 1. Prompt\n\n> What does a.py do?",
        "I look.",
        "<details><summary><code>read_file a.py</code></summary>",
        "- file_path: `a.py`",
        "print(1)",
        "</details>",
        "It prints **1**.",
        "## 2. Prompt\n\n> Thanks\n>\n> and bye",
        "Bye.",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "nasty",
    [
        "```\nno end",
        "````md\n```\n",
        "~~~\n",
        "</details>\n\n# out",
        "`one`",
        "> quote\n\n    code\n```py",
        "\\",
        "<!--",
    ],
)
def test_whatever_prompts_and_results_hold_stays_in_its_place(nasty: str, project: Path) -> None:
    (project / "a.md").write_text(nasty)
    agent = Agent(ScriptedLLM([[call("read_file", file_path="a.md")], "LEVEL answer"]))
    agent.chat(nasty)
    assert Open(document(agent)).depths == [0]


@pytest.mark.parametrize(
    "answer",
    ["```py\nx = 1", "<!-- x", "<details>\n", "~~~~\n~~~\n```", "````\n```\ncode", "text\n\n```\n", "```a`b```"],
)
def test_an_answer_that_leaves_a_fence_open_does_not_swallow_what_comes_after_it(answer: str) -> None:
    agent = Agent(ScriptedLLM([answer, "LEVEL"]))
    agent.chat("one")
    agent.chat("two")
    assert Open(document(agent)).depths == [0]


def test_a_whole_answer_is_not_touched() -> None:
    for text in ("```py\nx <b>\n```", "`<b>` is 1 < 2", "a\n\n~~~\nb\n~~~", "`a` ``` b", "none"):
        assert contained(text) == text


def test_a_fence_is_longer_than_any_run_in_its_text() -> None:
    assert fenced("a ````` b").startswith("``````\n")


def test_what_was_compacted_or_is_out_of_view_is_in_it(project: Path) -> None:
    (project / "a.txt").write_text("".join(f"line {at}\n" for at in range(2000)))
    reads = [[call("read_file", file_path="a.txt", offset=at * 100 + 1, limit=100)] for at in range(20)]
    agent = Agent(ScriptedLLM([*reads, "Read.", "GOAL: to read."]))
    agent.chat("read it")
    assert any(type(event).__name__ == "Compacted" for event in agent.compact())
    text = document(agent)
    assert all(f"line {at}\n" in text for at in range(2000))


def test_a_prompt_that_was_cut_for_the_window_is_whole_and_turns_taken_back_are_out(home: Path, project: Path) -> None:
    agent = Agent(ScriptedLLM(["ok", "no"]), session=Session.create(home, project))
    words = " ".join(f"word{at}" for at in range(200_000))
    agent.chat(words)
    agent.chat("take this back")
    agent.rewind()
    text = document(agent)
    assert words in text
    assert "take this back" not in text


def test_control_characters_and_broken_calls_do_no_harm() -> None:
    broken = {
        "role": "assistant",
        "content": "\x1b[31mred\ud800",
        "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "bash<b>", "arguments": "{not json ```"}},
            {"id": "y", "type": "function", "function": {"name": "bash", "arguments": '{"command": "a\\nb"}'}},
        ],
    }
    agent = Agent(ScriptedLLM([Reply(broken), "fine"]))
    agent.session.append({"role": "user", "content": "hi"}, turn=True)
    agent.session.append(broken)
    text = document(agent)
    text.encode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)
    assert "bash&lt;b>" in text
    assert text.count("*no result*") == 2
    assert "````json\n{not json ```\n````" in text
