"""Plan mode in words: how the model learns that it begins and ends, and what becomes of a plan that it proposes.

System prompt and tool list are frozen for the session, so plan mode is told by a notice in the log, and the plan comes
as a tool call. The price: the words are also how the ledger knows what happened, so they are spelled here only.
"""

from __future__ import annotations

from .memory import OURS

PROPOSE_PLAN = "propose_plan"  # the tool
PLAN_BEGINS = f"{OURS}plan mode from here on: look and ask, change nothing; propose the plan with {PROPOSE_PLAN}]"
PLAN_ENDS = f"{OURS}plan mode is over: changes are allowed again]"

GO_ON = "Go on with this plan?"
CHOICES = ("no", "ask", "auto", "yolo")  # the modes to go on in
ACCEPTED = "The user accepted the plan. Go on with it now, until it is done."
NOT_ACCEPTED = "Not accepted: the user said no{words}. Change nothing yet; mend the plan and propose it again, or ask."
IS_THE_ANSWER = "Nobody is there to accept the plan: it is given to the user as your answer."
NOT_NEEDED = "This is not plan mode, so no approval is needed: go on."


def chosen_mode(answer: str) -> str:
    """The mode in which an answer to the proposal lets the work go on; "" where it does not. A mere yes is the most
    careful of them."""
    word = answer.strip().lower()
    word = "ask" if word in ("y", "yes") else word
    return word if word in CHOICES[1:] else ""
