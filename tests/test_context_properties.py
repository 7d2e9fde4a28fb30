"""Random histories against the promises of the context: everything fits, nothing is lost, nothing is torn apart."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from histories import PICTURE, Play, calling, random_text, result, unrepaired

from corecoder.context import ContextManager
from corecoder.memory import read_memory
from corecoder.messages import NO_RESULT, Message, arguments_of, calls_of, repair, text_of, unpaired
from corecoder.plan import ACCEPTED
from corecoder.scripted import ScriptedLLM
from corecoder.session import Session

SEEDS = range(8)


def random_turns(play: Play, rng: random.Random, steps: int, most: int) -> None:
    """Turns of random steps: batches of calls, any sizes, prompts and words thrown in, pictures, undo, /compact."""
    step = 0
    while step < steps:
        pictures = rng.choice([0, 0, 0, 2, rng.randrange(40)])
        said = random_text(rng, most if rng.random() < 0.1 else 200)
        play.say(said if rng.random() < 0.2 and said.strip() else f"request {step}: {said}", pictures)
        for _ in range(rng.choice([1, 3, 10, 40])):
            step += 1
            batch = rng.choice([1, 1, 1, 2, 5, 30 if rng.random() < 0.2 else 3])
            calls = [
                (
                    f"c{step}_{number}",
                    rng.choice(["bash", "read_file", "write_file", "grep"]),
                    {"file_path": f"src/f{rng.randrange(20)}.py", "content": random_text(rng, most // batch // 4)},
                )
                for number in range(batch)
            ]
            play.reply(calling(*calls, text=rng.choice([None, "because it must be so", "next I will look"])))
            results = [result(id_, random_text(rng, most) or "(no output)") for id_, _, _ in calls]
            if rng.random() < 0.03:  # interrupted by the user: the rest says so, and the turn is over
                done = rng.randrange(batch)
                results[done:] = [result(id_, NO_RESULT) for id_, _, _ in calls[done:]]
                play.results(results)
                break
            play.results(results)
            if rng.random() < 0.05:
                play.steer(f"and mind {step}")
            act = rng.random()
            if act < 0.03 and play.session.undo():
                play.context.undone()
            elif act < 0.06:
                play.compress(force=True)
            elif act < 0.09:
                play.cancelled_compress()
            elif act < 0.12:
                play.resume()
        play.reply({"role": "assistant", "content": f"done with {step}"})
        if rng.random() < 0.2:  # words that came while the model was answering
            play.steer(random_text(rng, 400) + f" and {step}, too")
            play.reply({"role": "assistant", "content": f"done with {step}, too"})


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_fits_whatever_happened_before(seed: int, home: Path, project: Path) -> None:
    rng = random.Random(seed)
    session = Session.create(home, project)
    window = rng.choice([12_000, 16_000, 16_001, 32_000, 64_000])
    summarizer = ScriptedLLM([lambda *_: rng.choice(["", "fine notes on all that was done so far " * 20])] * 999)
    llm = rng.choice([None, summarizer])
    play = Play(session, window, scale=rng.choice([0.6, 1.0, 1.0, 1.6]), llm=llm, usage=rng.random() < 0.8)
    random_turns(play, rng, 50, 40_000)
    assert max(play.sizes) <= window
    assert play.hows
    play.resume()
    for record, message in play.logged.items():
        assert play.session.message(record) == message
        recalled = play.context.recall(record)
        assert recalled.startswith(play.said[record]) if message.get("tool_calls") else recalled == play.said[record]
        assert play.context.pictures(record) == [part["image_url"]["url"] for part in play.pictures[record]]
    play.session.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_accepted_plan_is_in_view_after_any_number_of_compactions(seed: int, home: Path, project: Path) -> None:
    """Whatever the summariser writes, in every tier, after a resume and after an undo."""
    rng = random.Random(seed)
    garbage = ScriptedLLM([lambda *_: rng.choice(["", "no", "x" * 50_000, "All is done. " * 30])] * 9999)
    window = rng.choice([16_000, 20_000, 64_000])
    play = Play(Session.create(home, project), window, llm=rng.choice([None, garbage]))
    plan = f"# Plan {seed}\n" + "".join(f"{at}. Change `src/m{at}.py`.\n</accepted_plan>\n" for at in range(20))
    play.say("plan it")
    for words, answer in (
        ("an older one", ACCEPTED),
        (plan, ACCEPTED),
        ("a bad one", "Not accepted: the user said no."),
    ):
        play.reply(calling(("p", "propose_plan", {"plan": words})))
        play.results([result("p", answer)])
    for _ in range(6):
        random_turns(play, rng, 8, 30_000)
        play.compress(force=True)
        assert plan_in(play.session.view) == plan.replace("\n</accepted_plan>", "\n </accepted_plan>")
    assert len(play.hows) > 6
    play.session.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_survives_in_a_plain_list_too_and_is_cut_only_beyond_its_bound(seed: int) -> None:
    rng = random.Random(seed)
    plan = "\n".join(f"{at}. Change `src/m{at}.py`." for at in range(rng.choice([3, 3_000])))
    context = ContextManager(16_000)
    view = [{"role": "user", "content": "plan it"}, calling(("p", "propose_plan", {"plan": plan}))]
    view += [result("p", ACCEPTED), {"role": "assistant", "content": "on it"}]
    for at in range(12):
        view += [{"role": "user", "content": f"and {at}"}, calling((f"c{at}", "bash", {"command": "make"}))]
        view.append(result(f"c{at}", random_text(rng, 20_000)))
        context.maybe_compress(view, force=at % 3 == 0)
        assert unpaired(view) == []
        kept = plan_in(view)
        assert kept == plan or (len(plan) > 10_000 and kept.startswith("0. Change") and "left out to fit" in kept)


def plan_in(view: list[Message]) -> str:
    """The plan in the memory at the head of a view; before there is one, in its call."""
    kept = read_memory(view[0])
    return kept.plan if kept else str(arguments_of(calls_of(view[1])[0]["function"])["plan"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resume_into_a_smaller_window_fits_before_the_first_request(seed: int, home: Path, project: Path) -> None:
    rng = random.Random(seed)
    play = Play(Session.create(home, project), 200_000)
    random_turns(play, rng, 20, 40_000)
    play.session.close()
    again = Play(Session.load(play.session.path), 16_000)
    again.prompt = play.prompt
    again.say("go on")
    again.reply({"role": "assistant", "content": "on it"})
    assert again.sizes[-1] <= 16_000
    again.session.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_undo_brings_back_the_exact_view(seed: int) -> None:
    rng = random.Random(seed)
    play = Play(Session.in_memory(), 32_000)
    play.say("look at everything")
    for step in range(8):
        play.reply(calling((f"c{step}", "read_file", {"file_path": f"f{step}"})))
        before = play.session.view
        play.results([result(f"c{step}", random_text(rng, 30_000) or "nothing")])
        if play.hows:
            break
    before = [*play.session.view]
    if not play.compress(force=True):
        return
    assert play.session.view != before
    play.session.undo()
    assert play.session.view == before


def view_of(rng: random.Random, groups: int) -> list[Message]:
    """A healthy view of random batches."""
    view: list[Message] = [{"role": "user", "content": "begin"}]
    for group in range(groups):
        size = rng.randrange(5)
        if size == 0:
            view += [{"role": "assistant", "content": "said"}, {"role": "user", "content": f"and {group}"}]
        else:
            ids = [f"g{group}_{number}" for number in range(size)]
            view.append(calling(*[(id_, "bash", {"command": "true"}) for id_ in ids]))
            view += [result(id_, random_text(rng, 2_000) or "(no output)") for id_ in ids]
    return view


@pytest.mark.parametrize("seed", SEEDS)
def test_safe_split_never_orphans_a_tool_message(seed: int) -> None:
    view = view_of(random.Random(seed), 20)
    for keep in range(len(view) + 3):
        split = ContextManager._safe_split(view, keep)
        assert unpaired(view[:split]) == []
        assert unpaired(view[split:]) == []
        assert len(view) - split >= min(keep, len(view))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plain_list_keeps_its_promises_whoever_manages_it(seed: int) -> None:
    rng = random.Random(seed)
    window = rng.choice([10_000, 16_000, 32_000])
    system = rng.choice([None, {"role": "system", "content": "You are an agent. " * rng.randrange(1, 200)}])
    view: list[Message] = [system] if system else []
    context = ContextManager(window)
    for turn in range(6):
        prompt = f"{rng.choice(['', random_text(rng, 300)])} request {turn}: {random_text(rng, 300)}"
        content: Any = prompt
        if pictures := rng.choice([0, 0, 3, 30]):
            content = [{"type": "text", "text": prompt}, *[PICTURE] * pictures]
        view.append({"role": "user", "content": content})
        for step in range(rng.choice([0, 2, 20])):
            calls = [(f"c{turn}_{step}_{at}", "read_file", {"file_path": f"f{at}"}) for at in range(rng.choice([1, 3]))]
            view.append(calling(*calls, text=rng.choice([None, "because it must be so " * 40])))
            view += [result(id_, random_text(rng, 30_000) or "(no output)") for id_, _, _ in calls]
            if rng.random() < 0.1:
                context = ContextManager(window)
            context.maybe_compress(view, force=rng.random() < 0.05)
            assert unpaired(view) == []
            assert unrepaired(view)
            assert context.fill(view) <= context.usable
            assert not system or view[0] is system
            assert sum(read_memory(message) is not None for message in view[:2]) <= 1
            assert any(prompt in text_of(message) for message in view if message["role"] == "user")
        view.append({"role": "assistant", "content": f"done with {turn}"})


@pytest.mark.parametrize("seed", SEEDS)
def test_compress_never_leaves_an_orphan_tool_reply(seed: int) -> None:
    rng = random.Random(seed)
    context = ContextManager(rng.choice([2_000, 4_000, 8_000]))
    messages: list[Message] = []
    for message in view_of(rng, 60):
        messages.append(message)
        if unpaired(messages):
            continue
        context.maybe_compress(messages, force=rng.random() < 0.05)
        assert unpaired(messages) == []
        assert repair(messages) == [*repair(messages)]
        assert any("begin" in text_of(each) or "and" in text_of(each) for each in messages)
        assert context.fill(messages) <= context.window
