"""Encoders with a masked language modelling head: loaded, begun anew, and what they are trained towards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, first_line
from ...retriever.inversion.hidden_states import transformer_folder
from ...retriever.models import files as model_folder
from ...retriever.models.settings import PADDED_POSITIONS
from .masking import IGNORED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SIZES = {  # layers and width of Turc et al. 2019 (arXiv:1908.08962)
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
}
_SPECIAL: dict[str, Any] = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_POSITIONS = 512
_STEP = 64  # tokens asked for are a multiple: on CPU each new number costs a kernel made for it
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_LETTERS = 1_000  # of an alphabet; rarer ones are unknown
_LOADING = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    AttributeError,
    ImportError,
)  # what transformers raises


@dataclass(frozen=True, slots=True)
class MaskedModel:
    """A transformers model for masked language modelling, and its tokenizer."""

    model: Any
    tokenizer: Any
    new_head: bool = False  # whether the head is untrained

    @property
    def max_length(self) -> int:
        """Tokens of a text, special ones included."""
        positions = getattr(self.model.config, "max_position_embeddings", _POSITIONS)
        if self.model.config.model_type in PADDED_POSITIONS:
            positions -= 2
        return int(min(positions, self.tokenizer.model_max_length))

    @property
    def has_types(self) -> bool:
        """Whether it tells the second of two segments by a token type."""
        import inspect

        takes = "token_type_ids" in inspect.signature(self.model.forward).parameters
        return takes and getattr(self.model.config, "type_vocab_size", 0) > 1


def load(name: str, *, attention: str = "sdpa") -> MaskedModel:
    """An encoder by folder or name; where it has no head, a new one whose output is tied to the word embeddings.

    :param attention: how attention is computed, where the model knows that way.
    :raises InputError: when it is no encoder that words can be masked for.
    """
    import torch
    from safetensors import SafetensorError

    folder = transformer_folder(model_folder.find(name))
    if not any(folder.glob("*.safetensors")):
        raise InputError(f"{folder} has no .safetensors weights: other formats are pickles and are not loaded")
    try:
        model, missing = _model(folder, attention)
        tokenizer = read_tokenizer(folder)
    except (*_LOADING, SafetensorError) as error:
        reason = first_line(error)
        raise InputError(f"{name} does not load as an encoder with masked words ({reason})") from error
    _check(name, model, tokenizer, missing)
    model.to(torch.float32)
    return MaskedModel(model, tokenizer, any(part.endswith(".weight") for part in missing))


def _model(folder: Path, attention: str) -> tuple[Any, set[str]]:
    """The model, and the names of those of its weights that the folder does not have."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)

    def read(**options: Any) -> tuple[Any, set[str]]:
        model, told = AutoModelForMaskedLM.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
        return model, set(told["missing_keys"])

    try:
        model, missing = read(attn_implementation=attention)
    except ValueError as error:
        if "attention" not in str(error):
            raise
        model, missing = read()
    if missing and not config.tie_word_embeddings:
        config.tie_word_embeddings = True
        model, missing = read()
    return model, missing


def read_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    for name in ("local_files_only", "is_local", "trust_remote_code"):  # else saved with it
        found.init_kwargs.pop(name, None)
    return found


def _check(name: str, model: Any, tokenizer: Any, missing: Iterable[str]) -> None:
    body = sorted(part for part in missing if part.startswith(f"{model.base_model_prefix}."))
    if body:
        raise InputError(f"{name} lacks weights of its own, such as {body[0]}: copy the model folder again")
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{name} has no tokenizer.json: expected a fast tokenizer, which knows where words begin")
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise InputError(f"{name} has a tokenizer without a mask token and padding: expected an encoder's")
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise InputError(f"{name} has {len(tokenizer):,} tokens but embeddings for {rows:,}: they are not of one model")


def begin(size: str, tokenizer: Any, *, attention: str = "sdpa") -> MaskedModel:
    """A BERT of a size in `SIZES` with random weights, drawn from torch's generator."""
    from transformers import BertConfig, BertForMaskedLM

    layers, width = SIZES[size]
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "max_position_embeddings": _POSITIONS,
        "pad_token_id": tokenizer.pad_token_id,
        "attn_implementation": attention,
    }
    config = BertConfig(**settings)
    return MaskedModel(BertForMaskedLM(config), tokenizer, new_head=True)


def learn_vocabulary(texts: Iterable[str], size: int) -> Any:
    """BERT's tokenizer, lower-casing, with WordPiece's vocabulary for these texts; the same for the same texts.

    :param texts: gone through twice.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertTokenizer

    normalizer, words = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    letters = _letters(texts, normalizer)
    # tokenizers would number letters inside words in no fixed order, and break ties between merges by these numbers.
    inside = [f"##{letter}" for letter in letters if len(words.pre_tokenize_str(f"a{letter}a")) == 1]
    learning = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of text
    learning.normalizer, learning.pre_tokenizer = normalizer, words
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*_SPECIAL.values(), *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learning.train_from_iterator(texts, trainer)
    places = learning.get_vocab()
    made = Tokenizer(models.WordPiece(places, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, words, decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, places[token]) for token in ("[CLS]", "[SEP]")],
    )
    return BertTokenizer(tokenizer_object=made, model_max_length=_POSITIONS, do_lower_case=True, **_SPECIAL)


def _letters(texts: Iterable[str], normalizer: Any) -> list[str]:
    """The commonest characters of the texts, and all of ASCII, in order of their code."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    for space in [letter for letter in counts if letter.isspace()]:
        del counts[space]
    commonest = sorted(counts, key=lambda letter: (-counts[letter], letter))[:_LETTERS]
    return sorted({*commonest, *normalizer.normalize_str(_ASCII)})


@cache
def _learner() -> type[Any]:
    """`Learner`, made when torch is first needed."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, pad

    class PairHead(nn.Module):
        """Two logits out of the state of a pair's first token: BERT's pooler and next-sentence classifier."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.dense, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
            for layer in (self.dense, self.classifier):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

        def forward(self, state: Any) -> Any:
            return self.classifier(torch.tanh(self.dense(state)))

    class Learner(nn.Module):
        """A masked model with its loss.

        Logits are computed where a token is asked for, and nowhere else: the vocabulary is half of a small model's
        work, and six of seven tokens are not asked for.
        """

        def __init__(self, model: Any, *, pairs: bool) -> None:
            super().__init__()
            self.model = model
            self.pair_head = PairHead(model.config.hidden_size) if pairs else None

        def forward(self, labels: Any, pair_labels: Any = None, **inputs: Any) -> dict[str, Any]:  # noqa: ARG002
            """`tokens`: the loss of each token asked for, in order; `pairs`: two logits for each row."""
            places = (labels.flatten() != IGNORED).nonzero()[:, 0]
            more = -len(places) % _STEP  # the first token stands in
            kept: dict[str, Any] = {}

            def keep(_module: Any, _arguments: Any, output: Any) -> Any:
                states = output[0]
                kept["first"] = states[:, 0]
                output["last_hidden_state"] = states.flatten(0, 1)[pad(places, (0, more))].unsqueeze(0)
                return output

            handle = self.model.base_model.register_forward_hook(keep)
            try:
                logits = self.model(**inputs).logits[0, : len(places)]
            finally:
                handle.remove()
            losses = cross_entropy(logits.float(), labels.flatten()[places], reduction="none")
            pairs = None if self.pair_head is None else self.pair_head(kept["first"]).float()
            return {"tokens": losses, "pairs": pairs}

    return Learner


def learner(model: Any, *, pairs: bool) -> Any:
    """The module to train: `model` with its loss and, for pairs of segments, one more head."""
    return _learner()(model, pairs=pairs)
