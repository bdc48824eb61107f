"""The layers of a transformer of another family than BERT, by torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, MissingExtraError
from ..models.torch_loading import loading, refuse_pickles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

    from ...core.arrays import Floats
    from ..models.settings import ModelSettings


class TorchLayers:
    """A model of transformers, with attention computed in the plain way, which alone gives the weights."""

    def __init__(self, model: Any, tokenizer: Any, settings: ModelSettings) -> None:
        self._model, self._tokenizer = model, tokenizer
        self.tokenizer: Tokenizer = tokenizer.backend_tokenizer
        self._limit = settings.max_tokens or min(tokenizer.model_max_length, 512)

    @classmethod
    def load(cls, name: str, folder: Path, settings: ModelSettings) -> TorchLayers:
        """Load the model from a folder.

        :raises InputError: when it does not load, or has no fast tokenizer.
        """
        refuse_pickles(folder)
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError:
            raise MissingExtraError("torch", "torch", f"the encoder {name}") from None
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        with loading(folder, "a transformer"):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), **local)
            model = AutoModel.from_pretrained(
                str(folder), attn_implementation="eager", use_safetensors=True, **local
            ).eval()
        if not tokenizer.is_fast:
            raise InputError(f"{folder} has no tokenizer.json: save the model with a fast tokenizer")
        return cls(model, tokenizer, settings)

    def encoding(self, text: str, pair: str | None) -> Encoding:
        """Tokenize a text or a pair, truncated at the model's limit."""
        encoded = self._tokenizer(text, pair, truncation=True, max_length=self._limit, verbose=False)
        encoding: Encoding = encoded.encodings[0]
        return encoding

    def layers(self, encoding: Encoding) -> Iterator[tuple[Floats, Floats | None]]:
        """Yield the states (tokens, dim) of the embeddings and of each layer, with its attention."""
        import torch

        inputs = {"input_ids": torch.tensor([encoding.ids]), "attention_mask": torch.ones(1, len(encoding.ids)).long()}
        if "token_type_ids" in self._tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.tensor([encoding.type_ids])
        with torch.no_grad():
            output = self._model(**inputs, output_hidden_states=True, output_attentions=True)
        if not output.attentions:
            raise InputError(f"{self._model.config.model_type} gives no attention: there is nothing to look into")
        yield output.hidden_states[0][0].float().numpy(), None
        for hidden, attention in zip(output.hidden_states[1:], output.attentions, strict=True):
            yield hidden[0].float().numpy(), attention[0].float().numpy()
