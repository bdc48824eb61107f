"""Exact parts of a query: quoted phrases, required and excluded words, and tokens that look like identifiers.

    find "borrowed value" in Cargo.toml +lifetime -python
         a phrase             a token    required  excluded

Passages that lack a phrase or a required word, or hold an excluded word, are no hits. Passages with a token come first,
definitions before uses. An ordinary sentence has no exact part.

Names of genes and brands look like names in code (mRNA, IL-10, GitHub). In a sentence of many words, a passage that
treats the subject in other words is often better than one with the name. So only the definition of such a name comes
first: with all passages that hold the name first, nDCG@10 on scifact fell from .739 to .730.

If a query is a single word, such as Table, its definition comes first too. A number as the whole query is a token. So
are signs, such as => or an emoji, and names like C++ or C#: the encoder knows few signs, full-text search none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ....core.terms import query_whole
from ....core.words import UNSPACED, composed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Pattern = re.Pattern[str]

# The rank of a passage that holds a token: the definition, the section or function below it, or another use.
DEFINITION, UNDER_ITS_NAME, USE = 6, 5, 4
DEFINITION_IN_OTHER_CASE, UNDER_ITS_NAME_IN_OTHER_CASE, USE_IN_OTHER_CASE = 3, 2, 1

_MAX_TOKENS = 8  # of a query: each costs a look-up
_LOOKED_UP = 1_000  # passages with all words of an exact part, to be searched for it
_LOOKED_UP_OF_NAME = 250  # of a name in a sentence: in more passages, it is a word such as JavaScript
_MAX_CHARACTERS = 200  # of a token

# An operator stands at the start of a word. So 5" is no quote, and C++ and well-known have no operator.
_QUOTED = r"\"(?P<straight>\s*[^\"\s][^\"]*)\"|“(?P<curved>\s*[^“”\s][^“”]*)”|„(?P<low>\s*[^„“”\s][^„“”]*)[“”]"
_OPERATOR = re.compile(
    rf"(?<![^\s(])(?P<sign>(?<!\S)-|\+)?(?:{_QUOTED})(?![^\s.,;:!?)])"
    r"|(?<=\s)-(?P<excluded>[^\W\d_][^\s\"“”„]{2,})(?!\S)"  # -l and -rf are options
    r"|(?<!\S)\+(?P<required>[^\W\d_][^\s\"“”„]*)(?!\S)"
)
_SIGNS_BEFORE, _SIGNS_AFTER = "([{<'`‘*,;", ")]}>'`’*,;:.!?"  # punctuation around a word

_NAME = r"[A-Za-z_]\w*"
_SENTENCE = 4  # a query of this many words is a sentence: a name in it is one word among many
_PROSE = 6  # with more words outside of quotes, a query is prose, and its quotes demand nothing
_PLAIN_NAME = re.compile(  # an identifier that may be a word of a text: no sign of code in it
    r"(?!v\d+\Z)[^\W_]+(?:-\d\w*)?|\d+\.\d+"
)
_SOLE_NAME = re.compile(
    r"(?:(?:class|def|enum|fn|func|function|interface|struct|trait|type)\s+)?([^\W\d](?:[\w-]*\w)?)"
)  # a query
_SOLE_TOKEN = re.compile(r"\d+|\w+(?:\+\+|#)|\W+")  # a query
_CODE = re.compile(r"[A-Z]{1,4}-?\d{4,}|0[xX]\w+")  # E0382
_IDENTIFIER = re.compile(
    rf"""
      (?=.*[A-Za-z0-9])\w*_\w*                          # snake_case, __init__
    | [a-z][a-z0-9]*[A-Z][A-Za-z0-9]*                   # camelCase
    | (?:[A-Z]+[a-z0-9]+){{2,}}[A-Z]*                   # PascalCase
    | {_NAME}(?:::{_NAME})+ | ::{_NAME}(?:::{_NAME})*   # std::vec::Vec
    | (?=.*\w\w)\.?{_NAME}(?:[.]{_NAME})+               # np.linalg.norm, guide.md
    | [\w.~-]*(?:[/\\][\w.~@+-]+)+\.\w+                 # src/main.rs
    | (?:~|\.{{1,2}})(?:/[\w.~@+-]+)+/? | (?:/[\w.~@+-]+){{2,}}  # ./run, /etc/hosts
    | v?\d+(?:\.\d+)+(?:[-+.]?[A-Za-z]+\d*)*       # 1.2.3, v1.0-rc1
    | v\d+
    | \#\w*\d\w*                                        # #2809
    | 0[xX][0-9A-Fa-f]+                                 # 0x1F
    | \d+(?:-\d+){{2,}}                                 # 2024-01-31
    | [A-Z][A-Za-z]*(?:-\d[\dA-Za-z]*)+ | [a-z]+[A-Z]+-\d\w*  # CVE-2024-1234, miR-155
    | (?=.*\d)[A-Z][A-Z0-9]{{2,}}                       # E0382
    | --[A-Za-z][\w-]*                                  # --flag
    """,
    re.VERBOSE | re.ASCII,
)

_MODIFIER = (
    r"(?:export|default|declare|static|async|suspend|inline|unsafe|external|operator|infix|tailrec|mutating"
    r"|(?:pub|public|private|protected|internal|fileprivate)(?:\([a-z]+\)|\[\w+\])?|abstract|virtual|open|override|final"
    r"|sealed|partial|readonly|volatile|transient|implicit|case|data|value|inner|companion|enum|annotation|actual|expect"
    r"|lateinit|lazy|weak|const(?=[ \t]+(?:val|fn|fun)\b)|local(?=[ \t]+function\b))"
)
# Annotations and modifiers do not run on to the next line, since a definition below them begins a line of its own. The
# time for a hostile text would grow with the square of its lines.
_ANNOTATIONS = r"(?:@[\w.]+(?:\([^()\n]*\))?[ \t]+)*+"
_KEYWORDS = (
    r"(?:defp?|defmodule|defmacrop?|class|fn|fun|func(?:\s*\([^)\n]*\))?|function|sub|subroutine|procedure|proc|rpc"
    r"|struct|enum|record|trait|interface|protocol|actor|object|message|service|type|typealias|union|module|mod)"
)
_RECEIVER = r"(?:<[^()\n]*>\s*)?(?:[\w.<>?*:]+[.:])?"  # fun <T> List<T>.name, def self.name, function M.name
_TYPE = r"(?:[\w.<>\[\],?|&*]+[ \t]+){0,3}"
_ASSIGNED = r"(?:(?:export|pub|const|let|var|val|static|final)[ \t]+)*"
_BLOCK_OF_TERRAFORM = r"(?:variable|output|module|provider|resource|data)(?:[ \t]+\"[\w.-]+\")?[ \t]+\""
_CREATE = (  # SQL
    r"(?i:create[ \t]+(?:or[ \t]+replace[ \t]+)?(?:[a-z]+[ \t]+)?(?:table|view|index|function|procedure|trigger|type"
    r"|sequence|schema|domain)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+)?)(?:[\[\"`]?\w+[\]\"`]?\.)?[\[\"`]?"
)

_STAND_IN = "\ua7ff"  # a letter of Latin inscriptions, in place of a literal

# In a manual, an option at the start of a line or of an item is explained there: -n, --dry-run::
_BEFORE_OPTION = (
    r"(?:[-*+|•][ \t]+|\.\.[ \t]+option::[ \t]+)?[`*_\"]*(?:-[^\s,|/`*_]+[`*_]*(?:,|[ \t]*[|/])[ \t]*[`*_\"]*){0,3}"
)
_AFTER_OPTION = (
    r"(?![\w-])(?:\[?=?[ \t]?[<\[{(][^\n`]*?[>\]})]+|[= ][A-Z][A-Z_|-]*)?[`*_\"]*"
    r"(?:::?(?!\w)|;;|[ \t]*$|[ \t]{2}|\t|[ \t]+[-–—|][ \t]|(?:,|[ \t]*[|/])[ \t]*[`*_\"]*-)"
)

# Functions of C, Java or JavaScript have no keyword: a name, parameters and a block, unless the line is a statement.
_PARAMETERS = r"\((?:[^;{}()]++|\((?:[^;{}()]++|\([^;{}()]*+\))*+\))*+\)"  # closed before the block, as no callback is
_NO_STATEMENT = r"(?![ \t]*(?:if|else|for|while|switch|match|return|case|await|new|throw|yield|do|in|and|or|not)\b)"


@dataclass(frozen=True, slots=True)
class ExactQuery:
    """A query and its exact parts; false if it has none."""

    text: str  # for the encoder, BM25 and a reranker: without operators and excluded words
    required: tuple[str, ...] = ()  # phrases in quotes, and words after +
    excluded: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()  # they look like identifiers
    names: tuple[str, ...] = ()  # perhaps an identifier: only its definition counts

    def __bool__(self) -> bool:
        return bool(self.required or self.excluded or self.tokens or self.names)

    @property
    def literals(self) -> tuple[str, ...]:
        """The literals that decide the order: tokens and required words."""
        return tuple(dict.fromkeys((*self.required, *self.tokens, *self.names)))

    @property
    def lookups(self) -> dict[str, int]:
        """Texts to look up with all their words, and the maximum number of passages to read for each.

        The texts are the required words, alone and with each token.
        """
        required = " ".join(self.required)
        limits = {required: _LOOKED_UP}
        limits |= {f"{required} {token}".strip(): _LOOKED_UP for token in self.tokens}
        of_name = _LOOKED_UP if len(self.text.split()) < _SENTENCE else _LOOKED_UP_OF_NAME
        limits |= {f"{required} {name}".strip(): of_name for name in self.names}
        return {text: limit for text, limit in limits.items() if re.search(r"\w", text)}

    @property
    def have_tokens(self) -> bool:
        """Whether each literal has whole tokens in an index of words, so that a passage without them lacks it."""
        return bool(self.literals) and all(literal.isascii() and query_whole(literal) for literal in self.literals)

    @property
    def signs(self) -> str | None:
        """A literal to look for in all texts, since no exact part has a letter or digit; None if there is none."""
        literals = [] if self.lookups else [*self.required, *self.tokens]
        return literals[0] if literals else None

    def passes(self, passage: str) -> bool:
        """Whether a passage holds all required parts, in any case, and no excluded one."""
        if not (self.required or self.excluded):
            return True
        passage = composed(passage)
        folded = passage.casefold()
        return all(_holds(literal, passage, folded) for literal in self.required) and not any(
            _holds(literal, passage, folded) for literal in self.excluded
        )

    def level(self, passage: str, headings: Sequence[str] = ()) -> tuple[int, int]:
        """How many literals a passage holds, and how well: more is better."""
        [level] = self.levels([passage], [headings])
        return level

    def levels(self, passages: Iterable[str], headings: Iterable[Sequence[str]]) -> list[tuple[int, int]]:
        """The level of each passage."""
        literals = [_folded_words(literal) for literal in self.literals]
        levels = []
        for passage, path in zip(map(composed, passages), headings, strict=True):
            folded = passage.casefold()
            may_hold = any(_has_all(words, folded) for words in literals)
            levels.append(self._level(passage, path, folded) if may_hold else (0, 0))
        return levels

    def _level(self, passage: str, headings: Sequence[str], folded: str) -> tuple[int, int]:
        grades = [grade(literal, passage, headings, folded) for literal in (*self.required, *self.tokens)]
        of_names = [grade(name, passage, headings, folded) for name in self.names]
        grades += [level if level in (DEFINITION, UNDER_ITS_NAME) else 0 for level in of_names]
        return sum(map(bool, grades)), sum(grades)

    def matches(self, passage: str, headings: Sequence[str] = ()) -> dict[str, str]:
        """Map each literal that counts for a passage to "definition" or "use"."""
        passage = composed(passage)
        grades = {literal: grade(literal, passage, headings) for literal in self.literals}
        grades |= {name: 0 for name in self.names if grades[name] not in (DEFINITION, UNDER_ITS_NAME)}
        return {
            literal: "use" if level in (USE, USE_IN_OTHER_CASE) else "definition"
            for literal, level in grades.items()
            if level
        }


def parse(query: str) -> ExactQuery:
    """Take a query apart. The text of a query without operators is unchanged, in Unicode form NFC."""
    query = composed(query)
    required: list[str] = []
    excluded: list[str] = []
    tokens: list[str] = []
    pieces = []
    position = 0
    for match in _operators(query):
        literal, is_excluded = _operand(match)
        (excluded if is_excluded else required).append(literal)
        before = query[position : match.start()]
        tokens += _tokens(before)
        pieces += [before, "" if is_excluded else literal]
        position = match.end()
    tokens += _tokens(query[position:])
    if not pieces and len(query) <= _MAX_CHARACTERS and _SOLE_TOKEN.fullmatch(sole := query.strip()):
        tokens = [sole]
    text = " ".join("".join([*pieces, query[position:]]).split()) if pieces else query
    if not text:
        return ExactQuery(query)  # it says only what not to find
    distinct = [token for token in dict.fromkeys(tokens) if token not in required][:_MAX_TOKENS]
    is_sentence = bool(distinct) and len(text.split()) >= _SENTENCE
    names = [token for token in distinct if is_sentence and _PLAIN_NAME.fullmatch(token) and not _CODE.fullmatch(token)]
    if not distinct and not pieces and len(text) <= _MAX_CHARACTERS and (name := _SOLE_NAME.fullmatch(text)):
        names = [name[1]]
    return ExactQuery(
        text,
        tuple(dict.fromkeys(required)),
        tuple(dict.fromkeys(excluded)),
        tuple(token for token in distinct if token not in names),
        tuple(names),
    )


def _operators(query: str) -> list[re.Match[str]]:
    """The operators of a query. A minus word before an ordinary one is text, as in: what does tar -czf do.

    In doubt a word is text: users notice a hit too many, but not a passage that was excluded by mistake. For the same
    reason, quotes in a long question or a paragraph are text.
    """
    operators = []
    is_prose = len(_OPERATOR.sub(" ", query).split()) > _PROSE
    position, is_end = len(query), True
    for match in reversed(list(_OPERATOR.finditer(query))):
        is_end = is_end and not query[match.end() : position].strip()
        position = match.start()
        demands = is_end if match["excluded"] else not is_prose or match["sign"] or match["required"]
        if demands:
            operators.append(match)
    return operators[::-1]


def _operand(match: re.Match[str]) -> tuple[str, bool]:
    """The literal of an operator, and whether it is excluded."""
    quoted = match["straight"] or match["curved"] or match["low"]
    if quoted:
        phrase = " ".join(quoted.split())
        ends = " " in phrase and phrase.rstrip(".,")  # a sentence's sign inside the quotes is none of the phrase
        return ends or phrase, match["sign"] == "-"
    word = match["excluded"] or match["required"]
    return word.rstrip(_SIGNS_AFTER) or word, match["excluded"] is not None


def _tokens(text: str) -> list[str]:
    return [token for word in text.split() if (token := _identifier(word))]


def _identifier(word: str) -> str | None:
    """The identifier in a word with punctuation around it; None if it does not look like one."""
    bare = word.lstrip(_SIGNS_BEFORE).rstrip(_SIGNS_AFTER)
    bare = bare.removesuffix("()").removesuffix("(")
    return bare if len(bare) <= _MAX_CHARACTERS and _IDENTIFIER.fullmatch(bare) else None


def grade(literal: str, passage: str, headings: Sequence[str] = (), folded: str | None = None) -> int:
    """How well a passage holds a literal: `DEFINITION` the best, 0 if it does not.

    :param folded: the passage, case folded.
    """
    if not _may_hold(literal, passage.casefold() if folded is None else folded):
        return 0
    for any_case, definition, under_its_name, use in (
        (False, DEFINITION, UNDER_ITS_NAME, USE),
        (True, DEFINITION_IN_OTHER_CASE, UNDER_ITS_NAME_IN_OTHER_CASE, USE_IN_OTHER_CASE),
    ):
        if _pattern(literal, any_case=any_case).search(passage):
            if _is_defined(literal, passage, any_case=any_case):
                return definition
            return under_its_name if _is_heading(literal, headings, any_case=any_case) else use
    return 0


def _holds(literal: str, passage: str, folded: str) -> bool:
    return _may_hold(literal, folded) and _pattern(literal, any_case=True).search(passage) is not None


def _may_hold(literal: str, folded: str) -> bool:
    """Whether a folded passage has the words of a literal anywhere: much faster than a regular expression."""
    return _has_all(_folded_words(literal), folded)


def _has_all(words: Sequence[str], folded: str) -> bool:
    return all(word in folded for word in words)


@lru_cache(256)
def _folded_words(literal: str) -> list[str]:
    return literal.casefold().split()


def _is_heading(literal: str, headings: Sequence[str], *, any_case: bool) -> bool:
    heading = composed(headings[-1]).strip("`() \t") if headings else ""
    return heading == literal or (any_case and heading.casefold() == literal.casefold())


@lru_cache(256)
def _pattern(literal: str, *, any_case: bool) -> Pattern:
    """Match a literal as a whole token: 1.2.3 is not in 1.2.3.4, nor --flag in --flags. White space is folded."""
    before, after = "", ""
    if re.match(r"\w", literal) and not UNSPACED.match(literal):
        before = r"(?<!\w)(?<!\d\.)" if literal[0].isdigit() else r"(?<!\w)"
    elif literal[0] in "-#":
        before = r"(?<![\w#-])"
    if re.search(r"\w\Z", literal) and not UNSPACED.match(literal[-1]):
        after = r"(?!\w)(?!\.\d)" if literal[-1].isdigit() else r"(?!\w)"
        after += r"(?!-)" if literal.startswith("--") else ""
    body = r"\s+".join(re.escape(part) for part in literal.split())
    return re.compile(before + body + after, re.IGNORECASE if any_case else 0)


def _is_defined(literal: str, passage: str, *, any_case: bool) -> bool:
    """Whether a line of a passage defines a name or explains an option."""
    is_option = literal.startswith("-")
    if not is_option and literal.casefold() in _words_of_definitions():
        return _definition(rf"{re.escape(literal)}(?!\w)", any_case=any_case).search(passage) is not None
    passage = _occurrence(literal, any_case=any_case).sub(_STAND_IN, passage)
    pattern = _explanation(any_case=any_case) if is_option else _definition(_STAND_IN, any_case=any_case)
    return pattern.search(passage) is not None


@lru_cache(256)
def _occurrence(literal: str, *, any_case: bool) -> Pattern:
    """Match what `_STAND_IN` replaces."""
    before, after = (r"", r"(?![\w-])") if literal.startswith("-") else (r"(?<!\w)" * literal[0].isalnum(), r"(?!\w)")
    return re.compile(before + re.escape(literal) + after, re.IGNORECASE if any_case else 0)


@cache
def _explanation(*, any_case: bool) -> Pattern:
    """Match a line that explains the option `_STAND_IN`."""
    flags = re.MULTILINE | (re.IGNORECASE if any_case else 0)
    return re.compile(rf"^[ \t]*{_BEFORE_OPTION}{_STAND_IN}{_AFTER_OPTION}", flags)


@cache
def _words_of_definitions() -> frozenset[str]:
    """The keywords of definitions, which nothing may stand in for."""
    return frozenset(re.findall(r"[a-z]{2,}", _definition(_STAND_IN, any_case=False).pattern))


@lru_cache(64)
def _definition(name: str, *, any_case: bool) -> Pattern:
    """Match a line that defines a name. A pattern takes 3 ms to compile, so all literals but keywords share one.

    :param name: as a pattern.
    """
    flags = re.MULTILINE | (re.IGNORECASE if any_case else 0)
    lines = (
        rf"[ \t]*{_ANNOTATIONS}(?:{_MODIFIER}[ \t]+)*{_KEYWORDS}\s++{_RECEIVER}{name}",
        rf"{_ASSIGNED}{name}[ \t]*(?::[^=\n]+)?=(?!=)",
        rf"[ \t]*{_ANNOTATIONS}(?:{_MODIFIER}[ \t]+)+{_TYPE}\$?{name}[ \t]*(?:[:;{{]|=(?!=)|by\b)",  # a field
        rf"[ \t]*(?:val|var|let)[ \t]+{_RECEIVER}{name}[ \t]*:(?!:)",
        rf"[ \t]*\#[ \t]*define[ \t]+{name}",
        rf"[ \t]*\((?:[\w-]+[:/])?def[\w-]*\*?[ \t]+\(?{name}(?!-)",
        rf"{_BLOCK_OF_TERRAFORM}{name}\"",
        rf"[ \t]*{_CREATE}{name}",
        rf"{_NO_STATEMENT}(?:[\w \t:<>,*&\[\]~]*[ \t:*&])?{name}[ \t]*{_PARAMETERS}[^;{{}}()]*\{{",
    )
    return re.compile(rf"^(?:{'|'.join(lines)})", flags)
