"""What a passage explains, and how one would ask for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .term_weights import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .term_weights import Salience

# "X is a …" in a few languages, with the question that it answers. A term is at most six words after its article.
_COPULA = re.compile(
    r"(?:(?:an?|the|ein|eine|der|die|das|une?|le|la|l['’]|el|los|las|il|lo|um|uma|o)\s+)?"
    r"(?P<term>[^\s,;:.()]+(?:\s[^\s,;:.()]+){0,5}?)\s(?:\([^()]{1,40}\)\s)?"
    r"(?P<verb>is|are|ist|sind|est|sont|es|son|è|sono|é|são)\s"
    r"(?:an?|the|one|ein|eine|der|die|das|une?|des|les?|la|el|una?|los|il|lo|uno|uma?|o)\s",
    re.IGNORECASE,
)
_ASKED = {
    "is": "what is {}",
    "are": "what are {}",
    "ist": "was ist {}",
    "sind": "was sind {}",
    "est": "qu'est-ce que {}",
    "sont": "que sont {}",
    "es": "qué es {}",
    "son": "qué son {}",
    "è": "cos'è {}",
    "sono": "cosa sono {}",
    "é": "o que é {}",
    "são": "o que são {}",
}
_GLOSSARY = re.compile(
    r"^[ \t]*(?:[-*+•][ \t]+)?(?P<term>[^\n:|]{3,60}?)[ \t]*(?::|[ \t][–—-])[ \t]+[^\n]{30,}", re.MULTILINE
)
_BOLD = re.compile(r"(?<![\w*])(\*\*|__)(?P<term>[^\s*_][^*_\n]{1,58}[^\s*_])\1(?![\w*])")


def asked(text: str, sentences: Iterable[str], salience: Salience) -> Iterator[str]:
    """A question for each sentence "X is a …", and each term that is bold or opens a line of a glossary, alone.

    Alone because it stands in any language, while a question must be put in the text's.
    """
    for sentence in sentences:
        found = _COPULA.match(sentence)
        if found and _is_term(found["term"], salience):
            yield _ASKED[found["verb"].casefold()].format(" ".join(found["term"].split()))
    for pattern in (_GLOSSARY, _BOLD):
        for found in pattern.finditer(text):
            if _is_term(found["term"], salience):
                yield found["term"]


_CODE = re.compile(r"[<>(){}\[\]=;$\\]|::|\d[.)]")
# What stands before a verb without being explained by it, in the languages of `_COPULA`.
_PRONOUNS = frozenset(
    re.findall(
        r"\w+",
        "it this that these those there here he she they we you one which what who es dies das dort hier er sie wir "
        "man ce cela il elle ils elles nous on ella ellos esto eso este questo quello isto isso ele ela",
    )
)


def _is_term(term: str, salience: Salience) -> bool:
    """Few words, most of them telling, the first one too."""
    found = words(term)
    content = salience.content(found)
    if _CODE.search(term):
        return False
    telling = 2 * len(content) > len(found) and found[0] in content if found else False
    return telling and len(found) <= 6 and found[0] not in _PRONOUNS
