"""Find the classes and functions of source code with tree-sitter, so that each passage knows where it is.

A part of code begins at each definition, with the comments and decorators above it, and again where the code around it
goes on. Its heading is the path of names: class, then method. A long definition has a part for each of its statements,
where the chunker may cut. One table serves all languages, since their grammars share the names of most nodes.

tree-sitter reads any bytes and marks code that it does not understand. Without it, and for files that are too large or
take too long, code is one part without headings.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..document_builder import MAX_LEVEL, MAX_TITLE, PartStart, collapse_spaces, name_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Heading = tuple[str, ...]

GRAMMARS: dict[str, tuple[str, ...]] = {  # format: the modules that may parse it, each with its function
    "python": ("tree_sitter_python:language",),
    "javascript": ("tree_sitter_javascript:language",),
    "typescript": ("tree_sitter_typescript:language_typescript", "tree_sitter_typescript:language_tsx"),
    "go": ("tree_sitter_go:language",),
    "rust": ("tree_sitter_rust:language",),
    "java": ("tree_sitter_java:language",),
    "c": ("tree_sitter_c:language", "tree_sitter_cpp:language"),
    "cpp": ("tree_sitter_cpp:language",),
    "cuda": ("tree_sitter_cpp:language",),
    "csharp": ("tree_sitter_c_sharp:language",),
    "ruby": ("tree_sitter_ruby:language",),
    "php": ("tree_sitter_php:language_php",),
    "shell": ("tree_sitter_bash:language",),
}

_MAX_BYTES = 2_000_000
_MAX_SECONDS = 4.0  # of processor time; the reader's own limit is 20
_MIN_NODE = 16  # bytes: no definition is shorter, and nothing inside of such a node matters
_LONG = 500  # bytes: only a longer definition or statement is worth a cut inside
_NOTE = 400  # bytes: no longer comment is about the definition beside it
_LINE = 1_000  # bytes: in a longer line, a definition begins at its first character, not with its line
_BLOCK = 65_536

_NAMED = name_set(
    "class_definition function_definition class_declaration abstract_class_declaration interface_declaration "
    "enum_declaration record_declaration annotation_type_declaration struct_declaration namespace_declaration "
    "trait_declaration function_declaration generator_function_declaration method_definition method_declaration "
    "constructor_declaration compact_constructor_declaration destructor_declaration property_declaration "
    "local_function_statement type_alias_declaration internal_module module type_spec function_item struct_item "
    "enum_item union_item trait_item macro_definition function_signature_item method_signature "
    "function_signature abstract_method_signature concept_definition class method singleton_method"
)
_WITH_BODY = name_set(  # only a use of the name if they have no body
    "struct_specifier class_specifier union_specifier enum_specifier namespace_definition mod_item"
)
_PATH = "assignment_expression"  # its name may be a path like Box.prototype.open
_ASSIGNED = {  # a name that gets a function: field of the name, field of the function
    "variable_declarator": ("name", "value"),
    "pair": ("key", "value"),
    "field_definition": ("property", "value"),
    "public_field_definition": ("name", "value"),
    _PATH: ("left", "right"),
}
_FUNCTIONS = name_set("arrow_function function_expression generator_function class")
_DEFINITIONS = _NAMED | _WITH_BODY | _ASSIGNED.keys() | {"impl_item", "type_definition"}
_WRAPPERS = name_set("decorated_definition export_statement template_declaration")  # begin above their definition
_LEADING = name_set("comment line_comment block_comment attribute_item")  # belong to the definition below
_NO_NAMES = name_set("module exports prototype this self window globalThis")

_CLOSERS = re.compile(r"(?:\W|\bend\b)*")
_REST_OF_LINE = re.compile(rb"[^\w\n]*?(?:(?://|#|/\*)[^\n]*)?(?=\n|\Z)")
_RECEIVER = re.compile(r"\(\s*(?:\w+\s+)?\*?\s*(\w+)")
_IMPL = re.compile(r"impl\b.*?(?=\{|\bwhere\b|\Z)", re.DOTALL)


def has_parser() -> bool:
    """Whether the extra `code` is installed."""
    return find_spec("tree_sitter") is not None


def definition_starts(text: str, format_name: str) -> list[PartStart]:
    """Return the starts of the parts of a source text, the first at 0.

    Every definition begins one, and so does the text behind it. Code in other languages has one.
    """
    plain = [PartStart(0, (), "code")]
    if format_name not in GRAMMARS or len(text) > _MAX_BYTES or not has_parser():
        return plain
    data = text.encode("utf-8", "replace")
    deadline = time.process_time() + _MAX_SECONDS
    tree = _parse(data, format_name, deadline)
    outline = _outline(tree, data, deadline) if tree is not None else None
    if outline is None:
        return plain
    return _without_closers(text, list(_in_characters(data, outline.starts())))


def _parse(data: bytes, format_name: str, deadline: float) -> Any:
    """Parse with the first grammar that understands all of the text, else the first; None if that takes too long."""
    first = None
    for grammar in GRAMMARS[format_name]:
        try:
            parser = _parser(grammar)
        except ImportError:
            return first
        try:
            tree = parser.parse(
                lambda position, _: data[position : position + _BLOCK],
                progress_callback=lambda *_: time.process_time() > deadline,
            )
        except ValueError:  # too late
            parser.reset()  # otherwise it would continue this text when it gets the next
            return first
        if not tree.root_node.has_error:
            return tree
        first = first or tree
    return first


@lru_cache
def _parser(grammar: str) -> Any:
    from tree_sitter import Language, Parser

    module, _, function = grammar.partition(":")
    return Parser(Language(getattr(import_module(module), function)()))


@dataclass(slots=True)
class _Definition:
    start: int  # with the comments and decorators above it
    body: int  # without
    end: int
    path: Heading


@dataclass(slots=True)
class _Outline:
    """The definitions of a text and its statements, while a cursor goes through the tree in order of position."""

    data: bytes
    definitions: list[_Definition] = field(default_factory=list)
    statements: list[int] = field(default_factory=list)
    open: list[_Definition] = field(default_factory=list)
    _comments: dict[int, int] = field(default_factory=dict)  # start: end
    _leading: tuple[int, int] = (-1, -1)  # the run of comments last seen
    _last_end: int = 0  # of the definitions before

    def comment(self, start: int, end: int, *, divisible: bool) -> None:
        """Note a comment on lines of its own. The first of a run of them is a statement too."""
        self._comments[start] = end
        first, last = self._leading
        if self._first_of_line(start) < start:
            if first >= 0 and not self.data[last:start].strip(b" \t"):  # it follows the attribute that it explains
                self._leading = first, end
            return
        goes_on = self._leads_to(start)
        self._leading = (first if goes_on else start), end
        if divisible and not goes_on:
            self.statements.append(start)

    def statement(self, start: int) -> None:
        """Note the start of a statement, unless it stands below its comment."""
        if self._first_of_line(start) == self._above(start) == start:
            self.statements.append(start)

    def definition(self, names: Heading, start: int, body: int, end: int) -> None:
        """Note a definition that begins with its decorators at `start`."""
        while self.open and self.open[-1].end <= start:
            self._last_end = self.open.pop().end
        parent = self.open[-1] if self.open else None
        path = (parent.path if parent else ()) + names
        if len(path) > MAX_LEVEL:
            return
        floor = max(self._last_end, parent.start + 1 if parent else 0)
        first = self._first_of_line(start)
        start = self._above(first) if first >= floor else start
        rest = _REST_OF_LINE.match(self.data, end)
        end = rest.end() if rest else end
        self.open.append(_Definition(max(start, floor), body, min(end, parent.end) if parent else end, path))
        self.definitions.append(self.open[-1])

    def starts(self) -> Iterator[tuple[int, Heading]]:
        """The position and the heading of each part, in order; a note has that of the definition below or above it."""
        parts = list(self._starts())
        for number, (start, heading) in enumerate(parts):
            end = parts[number + 1][0] if number + 1 < len(parts) else len(self.data)
            is_note = number > 0 and end - start <= _NOTE and self._is_comment(start, end)
            neighbours = [near for _, near in (*parts[number + 1 : number + 2], parts[number - 1])] if is_note else []
            yield start, next((near for near in neighbours if near[: len(heading)] == heading), heading)

    def _is_comment(self, start: int, end: int) -> bool:
        """Whether there are only comments, white space and closing brackets."""
        while True:
            rest = self.data[start:end].lstrip(b" \t\r\n}]);,")
            if not rest:
                return True
            start = self._comments.get(end - len(rest), -1)
            if start < 0:
                return False

    def _starts(self) -> Iterator[tuple[int, Heading]]:
        ordered = sorted(self.definitions, key=lambda item: (item.start, -item.end))
        edges: list[tuple[int, Heading]] = [(0, ())]
        stack: list[_Definition] = []
        for start, item in [*((item.start, item) for item in ordered), (len(self.data), None)]:
            while stack and stack[-1].end <= start:
                end = stack.pop().end
                edges.append((end, stack[-1].path if stack else ()))
            if item:
                edges.append((start, item.path))
                stack.append(item)
        edges.append((len(self.data), ()))
        tops = {item.start: item.body for item in ordered}
        statements = iter([*sorted(self.statements), len(self.data)])
        statement = next(statements)
        for (start, heading), (end, _) in itertools.pairwise(edges):
            if start == end:
                continue
            yield self._with_indentation(start), heading
            top = tops.get(start, start)
            while statement < end:
                if statement > top:
                    yield self._with_indentation(statement), heading
                statement = next(statements)

    def _first_of_line(self, position: int) -> int:
        """The first character of a position's line that is not white space; in a long line, the search is limited."""
        begin = self._line_start(position)
        before = self.data[begin:position]
        return begin + len(before) - len(before.lstrip())

    def _line_start(self, position: int) -> int:
        begin = max(0, position - _LINE)
        return max(begin, self.data.rfind(b"\n", begin, position) + 1)

    def _with_indentation(self, start: int) -> int:
        begin = self._line_start(start)
        return start if self.data[begin:start].strip() else begin

    def _above(self, start: int) -> int:
        """The start of the comments above a position, else the position."""
        return self._leading[0] if self._leads_to(start) else start

    def _leads_to(self, start: int) -> bool:
        """Whether the last comments stand just above a position, with at most a line between if they are a block."""
        first, end = self._leading
        if first < 0:
            return False
        is_block = first > 0 and self.data.startswith(b"/**", first) and not self.data.startswith(b"/**", start)
        gap = self.data[end - 1 : start]  # a comment may end with its newline
        return not gap[1:].strip() and 0 < gap.count(b"\n") <= 1 + is_block


def _outline(tree: Any, data: bytes, deadline: float) -> _Outline | None:
    """Go through a tree, without recursion since it may be deep; None if that takes too long."""
    outline = _Outline(data)
    cursor = tree.walk()
    divisible = [True]  # of each level: whether a cut may fall between its nodes
    wrapper = (0, 0)  # a decorator, until its definition is found
    for count in itertools.count(1):
        node = cursor.node
        kind, start, end = node.type, node.start_byte, node.end_byte
        if count % 1024 == 0 and time.process_time() > deadline:
            return None
        if kind in _LEADING:
            outline.comment(start, end, divisible=divisible[-1])
        elif divisible[-1]:
            outline.statement(start)
        if kind in _WRAPPERS and start >= wrapper[1]:
            wrapper = start, end
        if kind in _DEFINITIONS and end - start >= _MIN_NODE and (names := _names(node, data)):
            outline.definition(names, wrapper[0] if start < wrapper[1] else start, start, end)
            wrapper = 0, 0
        if end - start >= _MIN_NODE and cursor.goto_first_child():
            divisible.append(divisible[-1] and end - start > _LONG)
        elif not _go_on(cursor, divisible):
            break
    return outline


def _go_on(cursor: Any, levels: list[bool]) -> bool:
    """Move to the next node that is not below this one, and drop the levels in between; False at the end."""
    while not cursor.goto_next_sibling():
        levels.pop()
        if not cursor.goto_parent():
            return False
    return True


def _names(node: Any, data: bytes) -> Heading:
    """The names that a definition adds to the heading; none if it is none, or has no name."""
    if node.type in _ASSIGNED:
        return _assigned_names(node, data)
    if node.type in _WITH_BODY and not node.child_by_field_name("body"):
        return ()
    if node.type == "impl_item":
        match = _IMPL.match(_text(data, node.start_byte, node.end_byte))
        return (match[0].strip(),) if match else ()
    if node.type == "type_definition":
        struct, name = map(node.child_by_field_name, ("type", "declarator"))
        is_nameless = struct and struct.child_by_field_name("body") and not struct.child_by_field_name("name")
        return (_text_of(name, data),) if is_nameless and name else ()
    name = node.child_by_field_name("name") or _declared(node)
    receiver = node.child_by_field_name("receiver")
    match = _RECEIVER.match(_text_of(receiver, data)) if receiver else None
    return (*((match[1],) if match else ()), *_qualified(_text_of(name, data) if name else ""))


def _assigned_names(node: Any, data: bytes) -> Heading:
    """The names on the left of a function of JavaScript that is assigned; none of another value."""
    name, value = map(node.child_by_field_name, _ASSIGNED[node.type])
    if not name or not value or value.type not in _FUNCTIONS:
        return ()
    text = _text_of(name, data).strip("'\"`")
    return tuple(part for part in re.split(r"[.\s]+", text) if part not in _NO_NAMES) if node.type == _PATH else (text,)


def _declared(node: Any) -> Any:
    """The name in a declarator of C or C++, below pointers, references and parameters; None without one."""
    name = node.child_by_field_name("declarator")
    for _ in range(MAX_LEVEL if name else 0):
        inner = name.child_by_field_name("declarator")
        if inner is None and name.type.endswith("_declarator") and name.named_child_count:
            inner = name.named_child(0)
        if inner is None:
            break
        name = inner
    return name


def _qualified(name: str) -> Heading:
    """The parts of a name like space::Type<int>::method."""
    if "::" not in name:
        return (name,) if name else ()
    return tuple(part.strip() for part in re.sub(r"<[^<>]*>", "", name).split("::") if part.strip())


def _text_of(node: Any, data: bytes) -> str:
    return _text(data, node.start_byte, node.end_byte)


def _text(data: bytes, start: int, end: int) -> str:
    return collapse_spaces(data[start : min(end, start + 2 * MAX_TITLE)].decode("utf-8", "replace"))[:MAX_TITLE]


def _in_characters(data: bytes, starts: Iterable[tuple[int, Heading]]) -> Iterator[PartStart]:
    """Turn positions in bytes into positions in characters."""
    position = characters = 0
    for start, heading in starts:
        characters += len(data[position:start].decode("utf-8", "replace"))
        position = start
        yield PartStart(characters, heading, "code")


def _without_closers(text: str, starts: list[PartStart]) -> list[PartStart]:
    """Leave brackets that close a definition in the part before them."""
    ends = [following.start for following in starts[1:]] + [len(text)]
    return [
        part
        for number, (part, end) in enumerate(zip(starts, ends, strict=True))
        if number == 0 or not _CLOSERS.fullmatch(text, part.start, end)
    ]
