"""Compare encoders' token boundaries on a sample, to see whether they cut texts into the same passages.

To compare the tokenizers' files is not enough: a trained model is saved with the same tokenizer in another form.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..encoder import Encoder

SAMPLES = (
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX; The  Quick\tBrown\n\n  Fox!?",
    "Immunohistochemistry of hyperparathyroidism; antidisestablishmentarianism, deoxyribonucleic electroencephalogram",
    "0 1 12 123 1,234.56 10^-9 3.14159265 2026-01-31T23:59:59Z 0xDEADBEEF v1.2.3-rc4 192.168.0.1 $9.99 50 % 1/2 E0382",
    "def read_json(file: Path) -> dict[str, Any]:\n    return {k: v for k, v in json.loads(x).items() if k != '_id'}\n",
    "std::vector<int>::iterator it = v.begin(); for (; it != v.end(); ++it) { *it <<= 2; } // a->b && c || !d",
    "https://example.org/a/b?c=d&e=%20f#g someone@example.com C:\\Users\\name /usr/lib/x86_64-linux-gnu/libc.so.6",
    "Crème brûlée, naïve façade, Übergröße, smörgåsbord, piñata, Łódź, Ærøskøbing, İstanbul, ﬁne e\u0301te\u0301",
    "Съешь ещё этих мягких булок. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดี",
    "敏捷的棕色狐狸跳过懒狗。色は匂へど散りぬるを 키스의 고유조건은 «quotes» “curly” ‘single’ — – … € £ ™ \U0001f600",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa !!!!!!!! -------- ======== ........ ________ \u00a0\u200b\u3000 end",
    "[CLS] [SEP] [MASK] [PAD] [UNK] <s> </s> <unk> <mask> <pad> query: passage: <|endoftext|> ##ing Ġthe ▁the",
)


_CACHE_SIZE = 256  # digests
_digests: dict[tuple[type, str, int], str] = {}


def token_boundary_digest(encoder: Encoder) -> str:
    """Return a digest of the token boundaries and the maximum length: with equal digests, passages are equal too.

    Encoders of one class with equal fingerprints have equal tokens, so a process computes their digest once.
    """
    key = (type(encoder), encoder.fingerprint, encoder.max_tokens)
    digest = _digests.get(key)
    if digest is None:
        tokens = encoder.offsets([*SAMPLES, " ".join(_words(2_000))])
        digest = hashlib.sha256(json.dumps([encoder.max_tokens, tokens]).encode()).hexdigest()[:32]
        if len(_digests) == _CACHE_SIZE:
            _digests.clear()
        _digests[key] = digest
    return digest


def same_boundaries(first: Encoder, second: Encoder) -> bool:
    """Whether two encoders split texts into the same tokens, whatever number of them each reads.

    The names of special tokens are left out: BERT's [SEP] is three tokens for an encoder that says </s>.
    """
    texts = [*SAMPLES[:-1], "query: passage: ##ing Ġthe ▁the", " ".join(_words(2_000))]
    return first.offsets(texts) == second.offsets(texts)


def _words(count: int) -> list[str]:
    """Return random words, always the same, which every vocabulary splits in its own way."""
    digits = hashlib.shake_256(b"words").digest(13 * count)
    letters = [chr(97 + byte % 26) for byte in digits]
    return ["".join(letters[13 * number : 13 * number + 2 + digits[13 * number + 12] % 11]) for number in range(count)]
