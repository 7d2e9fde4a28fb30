"""The ledger: what code knows of a session, from nothing but its messages."""

from __future__ import annotations

import json
import time

from histories import calling, result, user

from corecoder.ledger import Ledger, main_argument
from corecoder.memory import OURS, Memory
from corecoder.messages import Message
from corecoder.outcome import CHANGED
from corecoder.plan import ACCEPTED, IS_THE_ANSWER, PLAN_BEGINS, PLAN_ENDS
from corecoder.tokens import estimate_text

PYTEST_FAILS = """\
============================= test session starts ==============================
collected 12 items
E   AssertionError: assert 3 == 4
FAILED tests/test_sum.py::test_adds - AssertionError: assert 3 == 4
FAILED tests/test_sum.py::test_carries[9-9]
========================= 2 failed, 10 passed in 0.52s =========================
[exit code 1]"""
PYTEST_PASSES = "======= 12 passed in 0.51s =======\n[exit code 0]"


def fed(*messages: Message) -> Ledger:
    """A ledger that has seen `messages` with the record ids 1, 2, 3 and so on."""
    ledger = Ledger()
    for record, message in enumerate(messages, 1):
        kind = message.get("kind", "")
        ledger.observe({key: value for key, value in message.items() if key != "kind"}, record, kind)
    return ledger


def run(command: str, output: str, id_: str = "c") -> list[Message]:
    return [calling((id_, "bash", {"command": command})), result(id_, output)]


def written(ledger: Ledger, budget: int = 2000) -> str:
    return ledger.render(budget, estimate_text)


def test_the_users_words_are_kept_verbatim_newest_first() -> None:
    said = "Never touch `vendor/`!\n  Use tabs."
    text = written(fed(user(said), {"role": "assistant", "content": "ok"}, user("second")))
    assert "#1 Never touch `vendor/`!\n    Use tabs." in text
    assert text.index("#3 second") < text.index("#1 Never")


def test_files_read_and_changed_are_kept_with_the_record_to_recall() -> None:
    text = written(
        fed(
            calling(("a", "read_file", {"file_path": "src/a.py"}), ("b", "edit_file", {"file_path": "src/b.py"})),
            result("a", "1\tx"),
            result("b", "--- a\n+++ b"),
        )
    )
    assert "Files read:\n- src/: a.py #2" in text
    assert "Files changed:\n- src/: b.py #3" in text


def test_a_failed_edit_changes_nothing_and_is_kept_as_a_failure() -> None:
    edit = calling(("b", "edit_file", {"file_path": "src/b.py"}))
    text = written(fed(edit, result("b", "Error: old_string is not in the file")))
    assert "Files changed" not in text
    assert "#2 failed: edit_file src/b.py | Error: old_string is not in the file" in text


def test_commands_are_kept_with_exit_code_and_error_line() -> None:
    failed = "compiling\nsrc/main.c:3: error: expected ';'\nmake: *** [all] Error 2\n[exit code 2]"
    text = written(fed(*run("make all", failed), *run("ls", "a\nb")))
    assert "#2 exit 2: make all | make: *** [all] Error 2" in text
    assert "#4 exit 0: ls" in text


def test_a_failure_in_words_of_its_own_is_kept_by_its_last_line() -> None:
    assert fed(*run("check", "checking\nthe moon is full\n[exit code 3, 0.1 s]")).commands[-1].why == "the moon is full"


def test_the_way_a_command_ended_is_read_from_the_note_and_not_from_its_output() -> None:
    for output, outcome in {
        "make: exit code 3\n[exit code 0, 0.1 s]": "exit 0",
        "x\n[exit code 1 (in the pipeline: 1, 0), 2.0 s]\n[now in /tmp]": "exit 1",
        "x\n[killed by SIGKILL, 1.0 s]": "killed by SIGKILL",
        "x\n[timed out after 5 s: the command and what it started were ended]": "timed out after 5 s",
        "(no output)\n[job 3 runs in the background, pid 7]\n[background job 2 has ended: exit code 9]": "job 3 runs",
        "Not run: the user said no.": "not run",
        "Error: no shell": "failed",
        "Error rate: 0%\n[exit code 0, 0.1 s]": "exit 0",
        "half of it\n[interrupted by the user after 2.0 s]": "interrupted",
        "a shell of another make\nexit status 4": "exit 4",
    }.items():
        assert fed(*run("x", output)).commands[-1].outcome == outcome


def test_failing_tests_are_known_until_a_run_of_them_passes() -> None:
    ledger = fed(*run("pytest -q", PYTEST_FAILS))
    assert list(ledger.failing) == ["tests/test_sum.py::test_adds", "tests/test_sum.py::test_carries[9-9]"]
    for message in run("pytest tests/test_other.py", PYTEST_PASSES):
        ledger.observe(message, 9)
    assert len(ledger.failing) == 2
    for message in run("pytest tests/test_sum.py", PYTEST_PASSES):
        ledger.observe(message, 10)
    assert not ledger.failing


def test_the_pass_of_one_test_says_nothing_of_the_others() -> None:
    ledger = fed(*run("pytest -q", PYTEST_FAILS), *run("pytest tests/test_sum.py::test_adds", PYTEST_PASSES))
    assert list(ledger.failing) == ["tests/test_sum.py::test_carries[9-9]"]


def test_one_thing_run_in_two_ways_is_the_same_thing() -> None:
    for first in ("pytest -q tests", "python -m pytest tests/ -x", "cd /p && PYTHONPATH=src .venv/bin/pytest tests"):
        for second in (
            "python3 -m pytest tests", "uv run pytest -q tests 2>&1 | tail -5", "pytest", "pytest -n 4 ./tests",
            "(pytest --tb short tests/test_sum.py)", "pytest tests/test_sum.py > log.txt",
        ):  # fmt: skip
            assert not fed(*run(first, PYTEST_FAILS), *run(second, PYTEST_PASSES)).failing, (first, second)


def proposed(plan: str, answer: str, id_: str = "p") -> list[Message]:
    return [calling((id_, "propose_plan", {"plan": plan})), result(id_, answer)]


def test_the_plan_that_was_accepted_last_is_kept_whole_with_the_record_of_its_call() -> None:
    ledger = fed(
        *proposed("# First", ACCEPTED),
        *proposed("# Second\n- a", ACCEPTED),
        *proposed("# Third", "Not accepted: the user said no."),
        *proposed("# Fourth", IS_THE_ANSWER),
    )
    assert (ledger.plan, ledger.plan_record) == ("# Second\n- a", 3)
    assert ledger.plan not in written(ledger)


def test_plan_mode_is_noted_as_long_as_it_is_on() -> None:
    told = {**user(PLAN_BEGINS), "kind": "notice"}
    over = {**user(PLAN_ENDS), "kind": "notice"}
    assert "Plan mode:\n- plan mode from here on: look and ask, change nothing" in written(fed(told))
    assert "lan mode" not in written(fed(told, over))
    again = Ledger()
    again.read_back(Memory(facts=written(fed(told)), plan="# Plan"))
    assert again.planning
    assert again.plan == "# Plan"
    again.observe(user(PLAN_ENDS), 9, "notice")
    assert "lan mode" not in written(again)


def test_a_command_that_the_user_changed_is_kept_as_it_ran() -> None:
    note = CHANGED.format(command="pytest -q\necho hi")
    command = fed(*run("make", f"{note}no such file\n[exit code 2, 0.1 s]")).commands[-1]
    assert (command.command, command.outcome, command.why) == ("pytest -q echo hi", "exit 2", "no such file")
    refused = fed(*run("make", f"{note}Error: no shell")).commands[-1]
    assert refused.outcome == "failed"


def test_a_run_of_something_else_clears_nothing() -> None:
    for second in (
        "pytest tests/test_s", "pytest -k adds", "pytest tests/test_other.py tests/test_sum.py::test_new", "make test",
        "pytest --lf", "pytest tests/unit", "cat tests/test_sum.py", "pytest -q tests/test_sum.py -m slow",
    ):  # fmt: skip
        assert len(fed(*run("pytest", PYTEST_FAILS), *run(second, PYTEST_PASSES)).failing) == 2, second
    ledger = fed(*run("cargo test", "test a::b ... FAILED\ntest result: FAILED"))
    for message in run("cargo test other", "test result: ok. 1 passed"):
        ledger.observe(message, 9)
    assert list(ledger.failing) == ["a::b"]


def test_a_run_that_stops_at_its_first_failure_says_nothing_of_what_it_did_not_reach() -> None:
    stopped = "FAILED tests/test_sum.py::test_adds - x\n1 failed, 3 passed in 0.1s\n[exit code 1]"
    assert len(fed(*run("pytest", PYTEST_FAILS), *run("pytest -x", stopped)).failing) == 2
    assert not fed(*run("pytest", PYTEST_FAILS), *run("pytest -x", PYTEST_PASSES)).failing


def test_ids_of_tests_are_whole_whatever_is_in_their_brackets() -> None:
    ids = ["t/test_x.py::test_x[a b]", "t/test_x.py::T::test_y[a - b]", "t/test_x.py::test_z[[1] [2]]", "t/test_e.py"]
    lines = [
        f"FAILED {ids[0]} - assert [1] == [2]",
        f"FAILED {ids[1]}",
        f"FAILED {ids[2]} - E: x",
        f"ERROR {ids[3]} - no",
    ]
    output = "\n".join(lines) + "\n4 failed in 0.1s\n[exit code 1]"
    assert list(fed(*run("pytest", output)).failing) == ids


def test_the_error_line_of_a_test_run_names_a_test() -> None:
    output = "FAILED tests/test_sum.py::test_adds\n===== 1 failed, 3 passed in 0.1s =====\n[exit code 1, 0.3 s]"
    assert fed(*run("pytest -q --tb=no", output)).commands[-1].why == "FAILED tests/test_sum.py::test_adds"


def test_a_file_read_in_part_is_listed_with_its_lines() -> None:
    messages: list[Message] = []
    for text in ("1\tx\n[lines 1 to 400 of 2,000; go on with offset 401]", "9\ty\n[lines 900 to 950 of 2,000]"):
        messages += [calling(("a", "read_file", {"file_path": "src/big.py"})), result("a", text)]
    other = [calling(("a", "read_file", {"file_path": "src/b.py"})), result("a", "1\tx")]
    assert "- src/: b.py #6, big.py:1-400,900-950 #4" in written(fed(*messages, *other))
    whole = [calling(("a", "read_file", {"file_path": "src/big.py"})), result("a", "1\tx")]
    assert "- src/: big.py #6" in written(fed(*messages, *whole))
    assert "- src/: big.py #6" in written(fed(*whole, *messages))


def test_failing_tests_of_other_runners_are_read_as_well() -> None:
    outputs = {
        "FAIL: test_adds (tests.sums.Sums)\n\nRan 3 tests in 0.1s": "test_adds (tests.sums.Sums)",
        "--- FAIL: TestAdds (0.00s)\nFAIL\tpkg\t0.1s": "TestAdds",
        "test sums::adds ... FAILED\n\ntest result: FAILED. 1 passed; 1 failed": "sums::adds",
        "  ● sums › adds\n\nTests: 1 failed, 2 passed": "sums › adds",
        "not ok 3 - adds two numbers\n# 1 failed": "adds two numbers",
    }
    for output, test in outputs.items():
        assert list(fed(*run("run tests", output)).failing) == [test]


def test_the_todo_list_is_the_last_one_written() -> None:
    tasks = [{"status": "done", "content": "read"}, {"status": "pending", "content": "write"}]
    first = calling(("a", "todo_write", {"tasks": tasks[:1]}))
    second = calling(("b", "todo_write", {"tasks": tasks}))
    text = written(fed(first, result("a", "ok"), second, result("b", "ok")))
    assert "Todo list:\n- [done] read\n- [pending] write" in text


def test_words_thrown_in_during_a_turn_do_not_replace_its_prompt() -> None:
    ledger = fed(user("old"), {"role": "assistant", "content": "ok"}, user("mend it"), *run("ls", "a"))
    ledger.observe(user("gently"), 6, "steer")
    ledger.observe({"role": "assistant", "content": "mended"}, 7)
    ledger.observe(user("and test it"), 8, "steer")
    assert [words.text for words in ledger.current] == ["mend it", "gently", "and test it"]


def test_a_prompt_after_a_turn_that_ended_with_a_tool_result_is_the_current_request() -> None:
    ledger = fed(user("first"), *run("ls", "a"), user("second"))
    assert [words.text for words in ledger.current] == ["second"]


def test_what_the_program_itself_says_is_a_notice_and_not_the_user() -> None:
    ledger = fed(user("mend it"), *run("ls", "a"), {**user(f"{OURS}the date is now 2 May]"), "kind": "notice"})
    assert [words.text for words in ledger.current] == ["mend it"]
    assert "Notices:\n- the date is now 2 May" in written(ledger)


def test_the_ledger_keeps_to_its_budget_and_counts_what_it_left_out() -> None:
    messages: list[Message] = []
    for at in range(300):
        messages += [calling(("a", "read_file", {"file_path": f"src/pkg{at % 7}/module_{at}.py"})), result("a", "x")]
        messages += run(f"python -m tool_{at} --option {at}", f"Traceback\nValueError: {at}\n[exit code 1]")
        messages += [{"role": "assistant", "content": "so"}, user(f"constraint number {at}: " + "never " * (at % 40))]
    ledger = fed(*messages)
    for budget in (0, 50, 300, 1_200, 5_000):
        text = written(ledger, budget)
        assert estimate_text(text) <= budget + 1
        assert "constraint number 299" in text or budget < 300
    assert "more" in written(ledger, 1_200)
    assert "module_299.py" in written(ledger, 1_200)
    assert "exit 1: python -m tool_299" in written(ledger, 1_200)


def test_a_long_prompt_is_cut_in_the_ledger_and_can_be_recalled() -> None:
    text = written(fed(user("start " + "long " * 5000 + "finish")), 1_000)
    assert "#1 start long" in text
    assert "finish" in text
    assert estimate_text(text) <= 1_000


def test_odd_results_and_arguments_are_taken_in_stride() -> None:
    odd: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": '}},
            {"id": "b", "type": "function", "function": {"name": None, "arguments": None}},
            {"id": None, "type": "function", "function": None},
            {"id": "d", "type": "function", "function": {"name": "read_file", "arguments": '{"file_path": 3}'}},
            {"id": "e", "type": "function", "function": {"name": "todo_write", "arguments": '{"tasks": "x"}'}},
        ],
    }
    results = [result(id_, "Not run: wrong arguments") for id_ in ("a", "b", "d", "e", "unknown")]
    assert written(fed(odd, *results, {"role": "user", "content": [{"type": "image_url"}]})) is not None
    assert main_argument({"deep": {"x": 1}}) == ""
    assert main_argument(json.loads('{"query": "red\\nblue"}')) == "red blue"


def test_observing_takes_linear_time_on_hostile_output() -> None:
    started = time.process_time()
    for text in ("FAILED " * 200_000, "a/b.c" * 300_000, "FAIL: x (" * 100_000, "\n" * 1_000_000, "● " * 500_000):
        written(fed(*run("x", text)))
    assert time.process_time() - started < 10
