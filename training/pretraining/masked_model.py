"""Load an encoder with a head for masked words, or build a BERT with random weights."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM

from ...core.errors import InputError, first_line
from ...retriever.inversion.hidden_states import transformer_folder
from ...retriever.models import model_files
from ...retriever.models.settings import PADDED_POSITIONS
from ...retriever.models.torch_loading import loading_errors, require_safetensors
from .config import SIZES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

POSITIONS = 512  # tokens that a new BERT takes
_STEP = 64  # masked tokens are padded to a multiple: on a CPU each new size costs a kernel compiled for it


@dataclass(frozen=True, slots=True)
class MaskedModel:
    """A transformers model for masked language modelling, and its tokenizer."""

    model: Any
    tokenizer: Any
    new_head: bool = False  # whether the head is untrained

    @property
    def max_length(self) -> int:
        """Maximum number of tokens in a text, with special tokens."""
        positions = getattr(self.model.config, "max_position_embeddings", POSITIONS)
        if self.model.config.model_type in PADDED_POSITIONS:
            positions -= 2
        return int(min(positions, self.tokenizer.model_max_length))

    @property
    def has_types(self) -> bool:
        """Whether the model tells two segments apart by a token type."""
        takes = "token_type_ids" in inspect.signature(self.model.forward).parameters
        return takes and getattr(self.model.config, "type_vocab_size", 0) > 1

    @torch.no_grad()
    def mask_logits(self, encoded: Any) -> Tensor:
        """Predict the masked tokens of one text: logits (masks, vocabulary).

        :param encoded: the tokenizer's output for the text.
        """
        logits = self.model(**encoded).logits[0]
        masks = (encoded["input_ids"][0] == self.tokenizer.mask_token_id).nonzero()[:, 0]
        predicted: Tensor = logits[masks, : len(self.tokenizer)].float()
        return predicted


def load(name: str) -> MaskedModel:
    """Load an encoder by folder or name; one without a head gets a new one tied to its word embeddings.

    :raises InputError: when it is not an encoder with a mask token, or is damaged.
    """
    folder = transformer_folder(model_files.find(name))
    require_safetensors(folder)
    try:
        model, missing = _model(folder)
        tokenizer = read_tokenizer(folder)
    except loading_errors() as error:
        reason = first_line(error)
        raise InputError(f"{name} does not load as an encoder with masked words ({reason})") from error
    _check(name, model, tokenizer, missing)
    model.to(torch.float32)
    return MaskedModel(model, tokenizer, any(part.endswith(".weight") for part in missing))


def _model(folder: Path) -> tuple[Any, set[str]]:
    """Load the model; return it with the names of the weights that the folder lacks."""
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)

    def read() -> tuple[Any, set[str]]:
        model, info = AutoModelForMaskedLM.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
        return model, set(info["missing_keys"])

    model, missing = read()
    if missing and not config.tie_word_embeddings:
        config.tie_word_embeddings = True
        model, missing = read()
    return model, missing


def read_tokenizer(folder: Path) -> Any:
    """Load a tokenizer from local files alone, without the options that it must not save."""
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    for name in ("local_files_only", "is_local", "trust_remote_code"):  # or they are saved with the tokenizer
        tokenizer.init_kwargs.pop(name, None)
    return tokenizer


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


def new_bert(size: str, tokenizer: Any) -> MaskedModel:
    """A BERT with random weights from torch's generator.

    :param size: one of `SIZES`.
    """
    layers, width = SIZES[size]
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return MaskedModel(BertForMaskedLM(BertConfig(**settings)), tokenizer, new_head=True)


def masked_predictions(model: Any, positions: Tensor, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits of some tokens (tokens, vocabulary), and the last states of all (rows, width, dim).

    The vocabulary is half of a small model's work, and six of seven tokens are not masked.

    :param positions: of the tokens in the batch without rows.
    """
    padding = -len(positions) % _STEP  # repeats the first token; its logits are dropped
    states: list[Tensor] = []

    def select(_module: nn.Module, _arguments: Any, output: Any) -> Any:
        states.append(output[0])
        output["last_hidden_state"] = output[0].flatten(0, 1)[pad(positions, (0, padding))].unsqueeze(0)
        return output

    handle = model.base_model.register_forward_hook(select)
    try:
        logits: Tensor = model(**inputs).logits[0, : len(positions)]
    finally:
        handle.remove()
    return logits, states[0]
