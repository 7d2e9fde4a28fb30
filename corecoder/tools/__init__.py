"""The tools that every session has. One file each; see `corecoder/tool.py` for what a tool is."""

from __future__ import annotations

from ..tool import Tool
from .bash import BashTool
from .edit_file import EditFileTool
from .glob_tool import GlobTool
from .grep import GrepTool
from .propose_plan import ProposePlan
from .read_file import ReadFileTool
from .recall import Recall
from .write_file import WriteFileTool

ALL_TOOLS: tuple[Tool, ...] = (
    BashTool(),
    ReadFileTool(),
    WriteFileTool(),
    EditFileTool(),
    GlobTool(),
    GrepTool(),
    Recall(),
    ProposePlan(),
)
