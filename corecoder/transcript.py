"""A session as Markdown, for people: everything that was said, from the log and not from what the model still sees.

Prompts are quoted, answers stand as they are, each tool call with its result is folded away. Nothing in a text can
break out of its place: a fence is longer than any run of backticks in what it holds, a quotation marks every line, a
fence that an answer left open is closed, and HTML outside of code is only shown. Results stand as the model first got
them; one that was cut to fit says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from .ledger import main_argument
from .messages import Message, arguments_of, calls_of, pictures_of, text_of
from .session import Session
from .text import one_line, plural, printable

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_CODE = re.compile(r"(`+[^`]+`+)")
_TAG = re.compile(r"(?<!\\)<(?=[A-Za-z/!?])")
_SHORT = 120  # characters of an argument that stands on the line of its name


def markdown(session: Session, whole: Callable[[int], str]) -> Iterator[str]:
    """The parts of the document, in order. `whole` gives the text of a record as it was before it was cut."""
    numbers = {record: number for number, (_, record) in enumerate(session.turns, 1)}
    yield f"# CoreCoder session {session.id}\n\n- project: `{printable(session.project)}`\n"
    yield f"- model: {one_line(session.model_name) or 'unknown'}\n- {plural(len(numbers), 'turn')}\n"
    pending: dict[str, dict[str, Any]] = {}
    for record, message in session.messages():
        role = message.get("role")
        if role == "tool":
            call = pending.pop(str(message.get("tool_call_id") or ""), {})
            yield _call(call, message)
            continue
        yield from (_call(call, None) for call in pending.values())
        pending = {}
        if role == "user":
            kind = str(session.meta(record).get("kind") or "")
            title = f"\n## {numbers[record]}. Prompt\n" if record in numbers else ""
            yield title + _quoted(message, whole(record), "" if record in numbers else kind)
        elif role == "assistant":
            text = printable(text_of(message)).strip()
            yield f"\n{contained(text)}\n" if text else ""
            pending = {
                str(call.get("id") or at): call.get("function") or {} for at, call in enumerate(calls_of(message))
            }
    yield from (_call(call, None) for call in pending.values())


def fenced(text: str, language: str = "") -> str:
    """`text` as a code block that it cannot end."""
    text = printable(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def contained(text: str) -> str:
    """An answer whose HTML outside of code is only shown, with the code block closed that it may have left open."""
    opened = ""
    lines = []
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found and opened:
            ends = found[1][0] == opened[0] and len(found[1]) >= len(opened) and not found[2].strip()
            opened = "" if ends else opened
        elif found and not (found[1][0] == "`" and "`" in found[2]):  # CommonMark: no backtick in such an info string
            opened = found[1]
        elif not opened:
            pieces = _CODE.split(line)
            pieces[::2] = [_TAG.sub(r"\\<", piece) for piece in pieces[::2]]
            line = "".join(pieces)
        lines.append(line)
    return "\n".join([*lines, opened] if opened else lines)


def _quoted(message: Message, text: str, kind: str) -> str:
    """Somebody's words, as a quotation; as a code block where markup in them could do more than look odd."""
    text = printable(text).strip("\n")
    lines = (fenced(text, "text") if _FENCE.search(text) or _TAG.search(text) else text).split("\n")
    if pictures := len(pictures_of(message)):
        lines += ["", f"[{plural(pictures, 'picture')}]"]
    who = {"steer": "> **thrown in:**\n>\n", "notice": "> **CoreCoder to the model:**\n>\n"}.get(kind, "")
    return "\n" + who + "\n".join(f"> {line}".rstrip() for line in lines) + "\n"


def _call(call: dict[str, Any], result: Message | None) -> str:
    """One call and what came of it, folded."""
    name = one_line(str(call.get("name") or "tool"), 64)
    arguments = arguments_of(call)
    title = f"{name} {main_argument(arguments, 80)}".rstrip().replace("&", "&amp;").replace("<", "&lt;")
    if arguments:
        given = "\n".join(_argument(key, value) for key, value in arguments.items())
    else:  # none, or no JSON object
        given = fenced(str(call["arguments"]), "json") if call.get("arguments") not in (None, "", "{}") else ""
    came = fenced(text_of(result).strip("\n"), "text") if result else "*no result*"
    return f"\n<details><summary><code>{title}</code></summary>\n\n{given}\n\n{came}\n\n</details>\n"


def _argument(key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    name = one_line(key, 64).replace("`", "")
    if len(text) <= _SHORT and not set(text) & set("`\n") and text.strip():
        return f"- {name}: `{printable(text)}`"
    return f"- {name}:\n\n{fenced(text)}\n"
