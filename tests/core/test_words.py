"""Words are folded: without case and accents."""

from __future__ import annotations

import unicodedata

from binocle.core.words import folded


def test_ascii_text_is_folded_like_other_text():
    text = "".join(map(chr, range(128)))
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text)).casefold()
    assert folded(text) == plain and folded(text + "É") == plain + "e"
