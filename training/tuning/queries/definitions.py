"""Find the terms that a passage explains, and the question for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...mining.bm25 import split_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .term_weights import TermWeights

# "X is a …" in a few languages, with the question for it. A term is at most six words after its article.
_COPULA = re.compile(
    r"(?:(?:an?|the|ein|eine|der|die|das|une?|le|la|l['’]|el|los|las|il|lo|um|uma|o)\s+)?"
    r"(?P<term>[^\s,;:.()]+(?:\s[^\s,;:.()]+){0,5}?)\s(?:\([^()]{1,40}\)\s)?"
    r"(?P<verb>is|are|ist|sind|est|sont|es|son|è|sono|é|são)\s"
    r"(?:an?|the|one|ein|eine|der|die|das|une?|des|les?|la|el|una?|los|il|lo|uno|uma?|o)\s",
    re.IGNORECASE,
)
_QUESTIONS = {
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


def questions(text: str, sentences: Iterable[str], weights: TermWeights) -> Iterator[str]:
    """Yield a question for each sentence "X is a …", and each term that is bold or opens a line of a glossary.

    Such a term has no question around it, since that would need the language of the text.
    """
    for sentence in sentences:
        match = _COPULA.match(sentence)
        if match and _is_term(match["term"], weights):
            yield _QUESTIONS[match["verb"].casefold()].format(" ".join(match["term"].split()))
    for pattern in (_GLOSSARY, _BOLD):
        for match in pattern.finditer(text):
            if _is_term(match["term"], weights):
                yield match["term"]


_CODE = re.compile(r"[<>(){}\[\]=;$\\]|::|\d[.)]")
# Words before the verb that it does not explain, in the languages of `_COPULA`.
_PRONOUNS = frozenset(
    re.findall(
        r"\w+",
        "it this that these those there here he she they we you one which what who es dies das dort hier er sie wir "
        "man ce cela il elle ils elles nous on ella ellos esto eso este questo quello isto isso ele ela",
    )
)


def _is_term(term: str, weights: TermWeights) -> bool:
    """Check for few words, mostly content words, and one of these first."""
    terms = split_terms(term)
    content = weights.content(terms)
    if _CODE.search(term):
        return False
    has_content = 2 * len(content) > len(terms) and terms[0] in content if terms else False
    return has_content and len(terms) <= 6 and terms[0] not in _PRONOUNS
