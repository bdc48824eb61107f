"""Words are folded: without case and accents."""

from __future__ import annotations

import unicodedata

from binocle.core.words import folded


def test_text_in_ascii_is_folded_as_any_other():
    text = "".join(map(chr, range(128)))
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text)).casefold()
    assert folded(text) == plain and folded(text + "É") == plain + "e"
