"""An encoder's hidden states: what it holds of each token, layer by layer, before pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, MissingExtraError, first_line
from ..models import files as model_folder
from ..models import settings as model_settings
from ..models.encoder import check_texts
from ..models.torch_loading import quiet_transformers
from .token_decoder import POSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOADING = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, ImportError)


def transformer_folder(folder: Path) -> Path:
    """The folder of the transformer itself, which in older sentence-transformers folders is one below."""
    below = folder / "0_Transformer"
    return below if not (folder / "config.json").is_file() and below.is_dir() else folder


class HiddenStates:
    """A transformer, frozen, that gives hidden states of texts.

    :param name: an encoder by folder or name.
    :param half: compute in bfloat16.
    """

    def __init__(self, name: str, *, device: str = "cpu", half: bool = False) -> None:
        try:
            import torch
            from transformers import AutoModel, AutoTokenizer
        except ImportError:
            raise MissingExtraError("torch", "train", "inverting hidden states") from None
        folder = transformer_folder(model_folder.find(name))
        if not any(folder.glob("*.safetensors")):
            raise InputError(f"{folder} has no .safetensors weights: other formats are pickles and are not loaded")
        try:
            with quiet_transformers():
                self.model: Any = AutoModel.from_pretrained(
                    str(folder),
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                    dtype=torch.bfloat16 if half else torch.float32,
                )
                self.tokenizer: Any = AutoTokenizer.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False
                )
        except _LOADING as error:
            reason = first_line(error)
            raise InputError(f"{name} does not load as an encoder with hidden states ({reason})") from error
        if not getattr(self.tokenizer, "is_fast", False):
            raise InputError(f"{name} has no tokenizer.json: expected a fast tokenizer")
        self.model.eval().requires_grad_(requires_grad=False).to(device)
        self.device = device
        settings = model_settings.ModelSettings.read(model_folder.find(name))
        self.lowercase = settings.lowercase
        positions = min(int(getattr(self.model.config, "max_position_embeddings", POSITIONS)), POSITIONS)
        self.max_length = min(positions, settings.max_tokens or positions)  # special tokens included

    @property
    def layers(self) -> int:
        """The number of the last layer; layer 0 is the embeddings."""
        return int(self.model.config.num_hidden_layers)

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def words(self) -> Any:
        """The input's word embeddings as float32 (vocabulary, their own width: ALBERT's are narrower than states)."""
        return self.model.get_input_embeddings().weight.detach().float()

    @property
    def room(self) -> int:
        """Tokens of a text that fit between the special ones."""
        return self.max_length - sum(map(len, self._around()))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, special ones left out."""
        given = [text.lower() if self.lowercase else text for text in check_texts(texts)]
        found: list[list[int]] = self.tokenizer(given, add_special_tokens=False, verbose=False)["input_ids"]
        return found

    def frame(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Rows of token ids, special ones put around each, padded: ids and mask, both (rows, tokens)."""
        import torch

        before, after = self._around()
        length = max(map(len, rows)) + len(before) + len(after)
        ids = torch.full((len(rows), length), self.tokenizer.pad_token_id or 0, dtype=torch.long)
        mask = torch.zeros((len(rows), length), dtype=torch.long)
        for place, row in enumerate(rows):
            whole = [*before, *row, *after]
            ids[place, : len(whole)] = torch.tensor(whole)
            mask[place, : len(whole)] = 1
        return ids.to(self.device), mask.to(self.device)

    def own(self, ids: Any, mask: Any) -> Any:
        """(rows, tokens): true where a token is of the text, and not a special one around it."""
        import torch

        special = torch.tensor(sorted(self.tokenizer.all_special_ids), device=ids.device)
        return (mask == 1) & ~torch.isin(ids, special)

    def at(self, ids: Any, mask: Any, layer: int | None = None) -> Any:
        """States (rows, tokens, width) as float32 after a layer; after the last unless given."""
        import torch

        with torch.no_grad():
            if layer is None or layer == self.layers:
                return self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            return (
                self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[layer].float()
            )

    def check_layer(self, layer: int | None) -> int:
        """The layer as a number from 0."""
        last = self.layers
        if layer is None:
            return last
        if not 0 <= layer <= last:
            raise InputError(f"the encoder has layers 0 (its embeddings) to {last}, not {layer}")
        return layer

    def _around(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        if not hasattr(self, "_frame"):
            inside = self.tokenizer("a", add_special_tokens=False)["input_ids"]
            whole = self.tokenizer("a")["input_ids"]
            start = next(place for place in range(len(whole)) if whole[place : place + len(inside)] == inside)
            self._frame = whole[:start], whole[start + len(inside) :]
        return self._frame
