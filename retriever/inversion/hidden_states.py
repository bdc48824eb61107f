"""An encoder's hidden states: its vector for each token, layer by layer, before pooling."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from ...core.errors import InputError
from ..models import model_files
from ..models import settings as model_settings
from ..models.encoder import check_texts
from ..models.torch_loading import loading, require_safetensors
from .decoders.token_decoder import POSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def transformer_folder(folder: Path) -> Path:
    """The folder of the transformer itself: a subfolder in older sentence-transformers folders."""
    below = folder / "0_Transformer"
    return below if not (folder / "config.json").is_file() and below.is_dir() else folder


class HiddenStates:
    """A frozen transformer that computes the hidden states of texts."""

    def __init__(self, model: Any, tokenizer: Any, settings: model_settings.ModelSettings, device: str) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self.lowercase = settings.lowercase
        positions = min(int(getattr(model.config, "max_position_embeddings", POSITIONS)), POSITIONS)
        self.max_length = min(positions, settings.max_tokens or positions)  # with special tokens

    @classmethod
    def load(cls, name: str, *, device: str = "cpu", half: bool = False) -> HiddenStates:
        """Load an encoder by folder or name.

        :param half: compute in bfloat16.
        :raises InputError: when it does not load, or has no fast tokenizer.
        """
        folder = transformer_folder(model_files.find(name))
        require_safetensors(folder)
        with loading(name, "an encoder with hidden states"):
            model = AutoModel.from_pretrained(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.bfloat16 if half else torch.float32,
            )
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        if not getattr(tokenizer, "is_fast", False):
            raise InputError(f"{name} has no tokenizer.json: expected a fast tokenizer")
        model.eval().requires_grad_(requires_grad=False).to(device)
        return cls(model, tokenizer, model_settings.ModelSettings.read(model_files.find(name)), device)

    @property
    def layers(self) -> int:
        """The number of the last layer; layer 0 is the embeddings."""
        return int(self.model.config.num_hidden_layers)

    @property
    def width(self) -> int:
        """The dimension of a hidden state, equal in all layers."""
        return int(self.model.config.hidden_size)

    @property
    def words(self) -> Tensor:
        """The input's word embeddings in float32 (vocabulary, width); ALBERT's are narrower than its states."""
        vectors: Tensor = self.model.get_input_embeddings().weight.detach().float()
        return vectors

    @property
    def room(self) -> int:
        """Maximum number of tokens in a text, without the special ones."""
        return self.max_length - sum(map(len, self._special))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens."""
        cased = [text.lower() if self.lowercase else text for text in check_texts(texts)]
        ids: list[list[int]] = self.tokenizer(cased, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def frame(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Put special tokens around rows of token ids, and pad them.

        :return: ids and mask, both (rows, tokens).
        """
        before, after = self._special
        length = max(map(len, rows)) + len(before) + len(after)
        ids = np.full((len(rows), length), self.tokenizer.pad_token_id or 0, np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for number, row in enumerate(rows):
            framed = [*before, *row, *after]
            ids[number, : len(framed)] = framed
            mask[number, : len(framed)] = 1
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)

    def inside(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(rows, tokens): true for the text's own tokens, false for special ones and padding."""
        return (mask == 1) & ~torch.isin(ids, self._special_ids)

    def at(self, ids: Tensor, mask: Tensor, layer: int | None = None) -> Tensor:
        """Compute the states after a layer, by default the last: float32 (rows, tokens, width)."""
        with torch.no_grad():
            if layer is None or layer == self.layers:
                states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            else:
                states = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[layer]
            return states.float()

    def check_layer(self, layer: int | None) -> int:
        """Return the layer's number, the last by default.

        :raises InputError: when the encoder has no such layer.
        """
        last = self.layers
        if layer is None:
            return last
        if not 0 <= layer <= last:
            raise InputError(f"the encoder has layers 0 (its embeddings) to {last}, not {layer}")
        return layer

    @cached_property
    def _special_ids(self) -> Tensor:
        return torch.tensor(sorted(self.tokenizer.all_special_ids), device=self.device)

    @cached_property
    def _special(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        inside = self.tokenizer("a", add_special_tokens=False)["input_ids"]
        framed = self.tokenizer("a")["input_ids"]
        start = next(n for n in range(len(framed)) if framed[n : n + len(inside)] == inside)
        return framed[:start], framed[start + len(inside) :]
