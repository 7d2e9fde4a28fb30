"""A bash command as the simple commands it is made of, or why it is not certain which those are.

tree-sitter finds the structure; every word is then read once more by a scanner of our own that knows bash's quoting,
and between words nothing but blanks may stand, so a text that the grammar takes for something else than bash does is
noticed. Whatever is not in the tables here (functions, assignments, here-documents, background, a computed command
name, a redirection into a file) is unclear. The price is that much of bash is refused that somebody could prove.

A text that only bash will know stands in a word as a mark: GLOB for what a pattern or the name of a file brings in,
ANY for anything at all, perhaps several words.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from .text import one_line
from .values import dataclass

if TYPE_CHECKING:
    from tree_sitter import Node

GLOB, ANY = "\0", "\1"
_LONGEST = 10_000  # characters
_DEEPEST = 30
_MOST_WORDS = 500  # that braces and loop variables make of one command

_CONTAINERS = frozenset(
    "program list pipeline negated_command subshell compound_statement if_statement elif_clause else_clause "
    "while_statement do_group command_substitution process_substitution".split()
)
_TOKENS = frozenset("&& || | |& ; \n ! ( ) { } $( <( if then elif else fi while until do done".split(" "))
_KEYWORDS = frozenset("case coproc do done elif else esac fi for function if in select then until while [[ ]]".split())
_EXPANSIONS = frozenset(
    "simple_expansion expansion command_substitution process_substitution arithmetic_expansion".split()
)
_GAP = re.compile(rb"(?:[ \t]|\\\n)*")
_WIDE_GAP = re.compile(rb"(?:[ \t\n]|\\\n)*")
_PLAIN = re.compile(r"[\w./:,@%+^=\]#!~-]+")
_QUOTED = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r"[^\"\\$`]+")
_ANSI = {r"$'\t'": "\t", r"$'\n'": "\n"}
_ARITHMETIC = re.compile(r"\$\(\([\d\s+*/%()-]*\)\)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\}|[?#])")
_LOOP_VARIABLE = re.compile(r"[a-z][a-z0-9]*")  # never one that steers a program, as PATH or http_proxy do
# What a command may be given for its own run: nothing that names a file or a program.
_ENVIRONMENT = re.compile(r"(?:LC_[A-Z]+|LANG|TZ|NO_COLOR|COLUMNS|CI)=[\w.@-]*")
_PATTERN = re.compile(r"[*?]|\[[\w!^.,-]+\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(0|[1-9]\d{0,3})\.\.(0|[1-9]\d{0,3})")


Choices = list[list[str]]
"""What one word may become: one of several lists (the turns of a loop), each of several words (braces)."""


class Unclear(ValueError):
    """It is not certain what a command does; the text says which part of it, for a person or a model."""


@dataclass(frozen=True)
class Simple:
    """One simple command: its words without quotes, and the files that its redirections read."""

    words: tuple[str, ...]
    reads: tuple[str, ...] = ()


def simple_commands(command: str, values: Mapping[str, str]) -> list[Simple]:
    """All simple commands that `command` may run, those of substitutions, loops and branches included.

    `values` are the variables whose value is known and harmless to tell. Raises Unclear.
    """
    strange = next((char for char in command if not char.isprintable() and char not in "\n\t"), "")
    if strange:
        raise Unclear(f"it holds the character {strange!a}")
    if len(command) > _LONGEST:
        raise Unclear("it is too long to be judged")
    source = command.encode()
    tree = _tree(source)
    if tree.has_error:
        raise Unclear("it is incomplete, or it is not certain how bash reads it")
    reader = _Reader(source, dict(values))
    reader.statement(tree, 0)
    between = source[: tree.start_byte] + b"\n" + source[tree.end_byte :]
    if not _WIDE_GAP.fullmatch(between) or not reader.found:
        raise Unclear("it is empty" if not command.strip() else "it is not certain how bash reads it")
    return reader.found


def _tree(source: bytes) -> Node:
    try:
        # Imported only once a command is judged: 50 ms that start-up need not wait for.
        import tree_sitter
        import tree_sitter_bash

        return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(source).root_node
    except (ImportError, OSError, ValueError) as error:
        raise Unclear(f"no command can be judged: tree-sitter does not load ({one_line(str(error))})") from None


@dataclass
class _Reader:
    """Walks one tree. `known` maps a variable to its value, `loops` those of loops to the words they stand for."""

    source: bytes
    known: Mapping[str, str]
    loops: dict[str, list[str]] = field(default_factory=dict)
    found: list[Simple] = field(default_factory=list)

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def statement(self, node: Node, depth: int) -> None:
        """Adds the simple commands of `node` to `found`."""
        if depth > _DEEPEST:
            raise Unclear("it is nested too deeply to be judged")
        if node.type in _CONTAINERS:
            self.container(node, depth)
        elif node.type == "command":
            self.command(node, (), depth)
        elif node.type == "redirected_statement":
            self.redirected(node, depth)
        elif node.type == "file_redirect":  # `$(< file)`: bash itself reads it
            self.found.append(Simple(("cat",), tuple(self.redirect(node, depth))))
        elif node.type == "for_statement":
            self.loop(node, depth)
        elif node.type == "test_command":
            self.test(node, depth)
        elif node.type == "comment":
            self.comment(node)
        elif node.type in ("variable_assignment", "variable_assignments", "declaration_command"):
            raise Unclear(f"`{one_line(self.text(node), 30)}` sets a variable")
        else:
            raise Unclear(f"`{one_line(self.text(node), 30)}` is more than simple commands, pipes, && and ;")

    def container(self, node: Node, depth: int) -> None:
        first = len(self.found)
        for child in self.children(node, _WIDE_GAP):
            if child.is_named:
                self.statement(child, depth + 1)
            elif child.type not in _TOKENS:
                background = child.type == "&"
                raise Unclear("it would go on in the background" if background else f"`{child.type}` is not judged")
        if node.type in ("while_statement", "do_group") and any("cd" in simple.words for simple in self.found[first:]):
            raise Unclear("it changes the directory in a loop")

    def children(self, node: Node, gap: re.Pattern[bytes] = _GAP) -> Iterator[Node]:
        """The children of `node`. Raises Unclear where anything but blanks stands between them."""
        at = node.start_byte
        for child in node.children:
            if child.is_missing or not gap.fullmatch(self.source, at, child.start_byte):
                raise Unclear("it is not certain how bash reads it")
            at = child.end_byte
            yield child
        if not gap.fullmatch(self.source, at, node.end_byte):
            raise Unclear("it is not certain how bash reads it")

    def comment(self, node: Node) -> None:
        before = self.source[: node.start_byte]
        if b"\\\n" in self.source or (before and before[-1:] not in (b" ", b"\t", b"\n")):
            raise Unclear("it is not certain where its comment begins")

    def redirected(self, node: Node, depth: int) -> None:
        if any(child.type == "heredoc_redirect" for child in node.children):
            raise Unclear("it has a here-document")
        body, *redirects = self.children(node)
        reads = tuple(itertools.chain.from_iterable(self.redirect(each, depth) for each in redirects))
        if body.type == "command":
            self.command(body, reads, depth)
        else:
            self.found.append(Simple((":",), reads))
            self.statement(body, depth + 1)

    def redirect(self, node: Node, depth: int) -> list[str]:
        """The files that a redirection reads. Raises Unclear unless it writes nowhere but to /dev/null."""
        *before, target = self.children(node)
        operator = before[-1].type if before else ""
        if node.type == "herestring_redirect" and operator == "<<<":
            self.words(target, depth)
            return []
        words = list(itertools.chain(*self.words(target, depth))) if node.type == "file_redirect" else []
        if operator in (">", ">>", "&>", "&>>", ">|", "<") and words == ["/dev/null"]:
            return []
        if operator == ">&" and words in (["1"], ["2"]):
            return []
        if operator != "<":
            raise Unclear(f"`{one_line(self.text(node), 30)}` may write")
        if any(ANY in word or re.match(r"/+dev/+(tcp|udp)\b", word) for word in words):
            raise Unclear(f"it is not certain what `{one_line(self.text(node), 30)}` reads")
        return words

    def loop(self, node: Node, depth: int) -> None:
        children = list(self.children(node, _WIDE_GAP))
        name = next((self.text(child) for child in children if child.type == "variable_name"), "")
        if children[0].type != "for" or not _LOOP_VARIABLE.fullmatch(name) or name in self.loops:
            raise Unclear(f"`{one_line(self.text(node), 30)}` is not a plain loop")
        values: list[str] = []
        for child in children:
            if child.type == "do_group":
                self.loops[name] = values
                self.statement(child, depth + 1)
                del self.loops[name]
            elif child.is_named and child.type != "variable_name":
                values += itertools.chain(*self.words(child, depth))
            elif not child.is_named and child.type not in ("for", "in", ";", "\n"):
                raise Unclear(f"`{one_line(self.text(node), 30)}` is not a plain loop")

    def test(self, node: Node, depth: int) -> None:
        """`[ -f x ]` and its like, as the command `test`; other expressions can run code (in subscripts)."""
        opening, *expression, closing = self.children(node)
        inner = list(self.children(expression[0])) if len(expression) == 1 else []
        if len(inner) == 2 and inner[0].type == "!":
            inner = list(self.children(inner[1]))
        if (opening.type, closing.type) not in (("[", "]"), ("[[", "]]")) or len(inner) not in (2, 3):
            raise Unclear(f"`{one_line(self.text(node), 30)}` is not a plain test")
        operator = inner[-2]
        parts = [
            [[self.text(each)]] if each is operator or each.type == "test_operator" else self.words(each, depth)
            for each in inner
        ]
        self.found += [Simple(("test", *words)) for words in _commands(parts)]

    def command(self, node: Node, reads: tuple[str, ...], depth: int) -> None:
        parts: list[Choices] = []
        bound = reads
        for child in self.children(node):
            if child.type == "variable_assignment":
                if not _ENVIRONMENT.fullmatch(self.text(child)):
                    raise Unclear(f"`{one_line(self.text(child), 30)}` sets a variable")
            elif child.type.endswith("_redirect"):
                bound = (*bound, *self.redirect(child, depth))
            elif child.type == "command_name":
                parts.append([[self.name(child, depth)]])
            else:
                parts.append(self.words(child, depth))
        if not parts:
            raise Unclear(f"`{one_line(self.text(node), 30)}` sets a variable")
        self.found += [Simple(words, bound) for words in _commands(parts)]

    def name(self, node: Node, depth: int) -> str:
        words = list(itertools.chain(*self.words(node, depth)))
        shown = one_line(self.text(node), 30)
        if len(words) != 1 or not words[0] or GLOB in words[0] or ANY in words[0] or "$" in shown:
            raise Unclear(f"`{shown}` is a computed command name")
        if shown in _KEYWORDS:
            raise Unclear(f"it is not certain how bash reads `{shown}`")
        return words[0]

    def words(self, node: Node, depth: int) -> Choices:
        """What `node` may become. Raises Unclear unless it is one whole word of bash."""
        choices: Choices = [[""]]
        for piece in self.pieces(node, depth):
            choices = [[start + end for start in words for end in more] for words in choices for more in piece]
            if sum(map(len, choices)) > _MOST_WORDS:
                raise Unclear("its braces or loops make too many words")
        if any(len(words) > 1 and "" in words for words in choices):  # bash leaves those out
            raise Unclear("its braces make an empty word")
        return choices

    def pieces(self, node: Node, depth: int) -> Iterator[Choices]:
        """The parts of one word, each as what it may become."""
        text = self.text(node)
        expansions = {each.start_byte - node.start_byte: each for each in _outermost(node)}
        at = 0
        quoted = text.startswith("#")  # which is no word
        while at < len(text):
            inner = expansions.pop(len(text[:at].encode()), None)
            if inner:
                yield [[value] for value in self.expansion(inner, quoted, depth)]
                at += len(self.text(inner))
            elif text[at] == '"':
                quoted = not quoted
                at += 1
            else:
                words, at = _in_quotes(text, at) if quoted else self.plain(text, at)
                yield [words]
        if quoted or expansions:
            raise Unclear("it is not certain how bash reads its quotes")

    def plain(self, text: str, at: int) -> tuple[list[str], int]:
        """The words that stand outside of double quotes at `at`, and where they end."""
        if at == 0 and text[0] == "~":
            return [self.home(text)], 1
        if match := _PLAIN.match(text, at):
            return [match[0]], match.end()
        if match := _QUOTED.match(text, at):
            return [match[1]], match.end()
        if match := _PATTERN.match(text, at):
            return [GLOB], match.end()
        if text[at] == "\\" and text[at + 1 : at + 2] not in ("", "\n"):
            return [text[at + 1]], at + 2
        if text[at : at + 5] in _ANSI:
            return [_ANSI[text[at : at + 5]]], at + 5
        if match := _BRACES.match(text, at):
            return _braces(match[0], match[1]), match.end()
        raise Unclear(f"`{one_line(text[at:], 30)}` is more than plain words and quotes")

    def home(self, text: str) -> str:
        if len(text) > 1 and text[1] != "/":
            raise Unclear(f"`{one_line(text, 30)}` is somebody's home directory")
        return self.known.get("HOME") or ANY

    def expansion(self, node: Node, quoted: bool, depth: int) -> Sequence[str]:
        """What an expansion may stand for; outside of quotes one with a blank or a pattern in it is anything."""
        text = self.text(node)
        if node.type == "process_substitution" and text.startswith("<(") and not quoted:
            self.statement(node, depth + 1)
            return ("/dev/fd/63",)
        if node.type == "command_substitution":
            if not text.startswith("$("):
                raise Unclear("backquotes are not judged; $( ) is")
            self.statement(node, depth + 1)
            return (ANY,)
        if node.type == "arithmetic_expansion" and _ARITHMETIC.fullmatch(text):
            return (ANY,)
        match = _VARIABLE.fullmatch(text)
        name = (match[1] or match[2] or "") if match else ""
        if match and not name:  # $? and $#
            return ("0",)
        values = self.loops.get(name) or ([self.known[name]] if name in self.known else [])
        if not values:
            raise Unclear(f"it is not certain what `{one_line(text, 30)}` holds")
        return [value if quoted or re.fullmatch(r"[\w./:,@%+=~-]+", value) else ANY for value in values]


def _outermost(node: Node) -> Iterator[Node]:
    """The expansions in a word, without those that stand inside of others."""
    if node.type in _EXPANSIONS:
        yield node
        return
    for child in node.children:
        yield from _outermost(child)


def _in_quotes(text: str, at: int) -> tuple[list[str], int]:
    """What stands inside of double quotes at `at` and is no expansion, and where it ends."""
    if match := _DOUBLE.match(text, at):
        return [match[0]], match.end()
    following = text[at + 1 : at + 2]
    if text[at] == "\\" and following and following != "\n":
        return [following if following in '"\\$`' else f"\\{following}"], at + 2
    if text[at] == "$" and following in ('"', " ", "|", ")", "/", "."):
        return ["$"], at + 1
    raise Unclear(f"`{one_line(text[at:], 30)}` is more than plain words and quotes")


def _braces(whole: str, inner: str) -> list[str]:
    """`{a,b}` and `{1..3}` as bash expands them; braces around anything else stand for themselves."""
    if numbers := _RANGE.fullmatch(inner):
        first, last = int(numbers[1]), int(numbers[2])
        return [str(number) for number in range(min(first, last), max(first, last) + 1)]
    if re.fullmatch(r"[\w^/-]*", inner):
        return [whole]
    if re.fullmatch(r"[\w./,-]*", inner) and "," in inner:
        return inner.split(",")
    raise Unclear(f"`{one_line(whole, 30)}` is more than a plain list")


def _commands(parts: Sequence[Choices]) -> list[tuple[str, ...]]:
    """The commands that the choices for each word make."""
    if math.prod(map(len, parts)) > _MOST_WORDS:
        raise Unclear("its loops make too many commands")
    return [tuple(itertools.chain.from_iterable(chosen)) for chosen in itertools.product(*parts)]
