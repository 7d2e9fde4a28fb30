"""propose_plan: how a plan reaches the person in plan mode. Who judges the call asks them and answers it; the tool
itself runs only where there is nothing to ask."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ToolError
from ..plan import NOT_NEEDED, PROPOSE_PLAN
from ..tool import Tool


class ProposePlan(Tool):
    name: ClassVar[str] = PROPOSE_PLAN
    description: ClassVar[str] = "In plan mode: show the user your whole plan; they accept it or say what to change."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "plan": {"type": "string", "description": "Markdown: what to change in which files, and how to verify it"}
        },
        "required": ["plan"],
    }
    read_only = True

    def execute(self, plan: str) -> str:
        if not plan.strip():
            raise ToolError("the plan is empty")
        return NOT_NEEDED
