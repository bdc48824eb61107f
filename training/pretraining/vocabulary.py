"""Learn a WordPiece vocabulary from texts, for a BERT trained from scratch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizer

from .masked_model import POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPECIAL: dict[str, Any] = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_LETTERS = 1_000  # of an alphabet; rarer ones are unknown


def learn_vocabulary(texts: Iterable[str], size: int) -> Any:
    """Learn BERT's lower-casing tokenizer from texts; the same texts give the same tokenizer.

    :param texts: iterated twice.
    :param size: maximum number of tokens.
    """
    normalizer, words = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    letters = _letters(texts, normalizer)
    # tokenizers would number letters inside words in random order, and break ties between merges by these numbers.
    inside = [f"##{letter}" for letter in letters if len(words.pre_tokenize_str(f"a{letter}a")) == 1]
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of text
    learner.normalizer, learner.pre_tokenizer = normalizer, words
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*_SPECIAL.values(), *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    numbers = learner.get_vocab()
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, words, decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, numbers[token]) for token in ("[CLS]", "[SEP]")],
    )
    return BertTokenizer(tokenizer_object=tokenizer, model_max_length=POSITIONS, do_lower_case=True, **_SPECIAL)


def _letters(texts: Iterable[str], normalizer: Any) -> list[str]:
    """The commonest characters of the texts, and all of ASCII, in order of their code."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    for space in [letter for letter in counts if letter.isspace()]:
        del counts[space]
    commonest = sorted(counts, key=lambda letter: (-counts[letter], letter))[:_LETTERS]
    return sorted({*commonest, *normalizer.normalize_str(_ASCII)})
