"""Words that a PDF divides at the ends of its lines."""

from __future__ import annotations

import pytest

from binocle.retriever.readers import read
from binocle.retriever.readers.pdf.hyphens import MARK, joiner

from .test_fonts import pdf


@pytest.mark.parametrize(
    ("document", "first", "second", "joined"),
    [
        ("", "rea", "soning", "reasoning"),
        ("the overall plan, over all", "over", "all", "overall"),  # the same word elsewhere
        ("a multi-agent plan", "multi", "agent", "multi-agent"),
        ("the chat is optimized", "chat", "optimized", "chat-optimized"),  # two words of the document
        ("the conversation", "conversation", "centric", "conversation-centric"),
        ("the witness", "witness", "es", "witnesses"),  # an ending
        ("Haus, Verwaltung", "Haus", "verwaltung", "Hausverwaltung"),
        ("", "COVID", "19", "COVID-19"),
        ("", "Anglo", "Saxon", "Anglo-Saxon"),
        ("", "IBM", "owned", "IBM-owned"),
        ("", "SEQ", "UENCE", "SEQUENCE"),
        ("", "A", "merica", "America"),
        ("con firming con", "con", "firming", "con-firming"),
    ],
)  # fmt: skip
def test_a_divided_word_keeps_a_hyphen_that_belongs_to_it(document: str, first: str, second: str, joined: str) -> None:
    divided = f"{first}{MARK}{second}"
    assert joiner([document, divided])(f"({divided})") == f"({joined})"


def test_long_words_take_linear_time() -> None:
    text = "a" * 1_000_000 + f" rea{MARK}soning"
    assert joiner([text])(text).endswith(" reasoning")


def test_halves_of_divided_words_are_no_words() -> None:
    assert joiner([f"con{MARK}firming, con{MARK}text firm{MARK}ing"])(f"con{MARK}firming") == "confirming"


def test_a_pdf_has_its_words_joined_across_lines() -> None:
    lines = "the chat was optimized for reason, a chat-|optimized way of rea-|soning".split("|")
    shown = " ".join(f"BT /F1 12 Tf 72 {700 - 14 * number} Td ({line}) Tj ET" for number, line in enumerate(lines))
    assert "a chat-optimized way of reasoning" in read(pdf(shown), "a.pdf").text
