"""An untrained decoder of vectors: copied from the encoder's layers, with the vectors of single tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import BertModel

from ...core.progress import counted, ignore
from ...indexes.metric import normalized
from ...retriever.inversion.decoders.decoder_settings import TextDecoderSettings
from ...retriever.inversion.decoders.text_decoder import TextDecoder
from ...retriever.inversion.hidden_states import transformer_folder
from ...retriever.models.model_files import find
from ...retriever.models.settings import read_config
from ...retriever.models.torch_loading import quiet_transformers

if TYPE_CHECKING:
    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ...retriever.models.tokens.token_ids import EncoderTokens


def new_decoder(encoder: Encoder, tokens: EncoderTokens, longest: int, seed: int) -> TextDecoder:
    """An untrained decoder for an encoder, with a copy of its lower layers if it is a BERT."""
    torch.manual_seed(seed)
    bert = _bert(getattr(encoder, "base", encoder).name)
    if bert is None:
        return TextDecoder(TextDecoderSettings(encoder.dim, tokens.size, longest))
    settings = TextDecoderSettings.for_bert(bert.config, encoder.dim, longest)
    decoder = TextDecoder(replace(settings, vocabulary=max(settings.vocabulary, tokens.size)))
    decoder.copy_bert(bert)
    return decoder


def _bert(name: str) -> Any:
    """transformers' BertModel of an encoder; None if it is another kind of model."""
    folder = transformer_folder(find(name))
    if read_config(folder).get("model_type") != "bert" or not (folder / "model.safetensors").is_file():
        return None
    with quiet_transformers():
        model: Any = BertModel.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    return model.float()


def token_vectors(encoder: Encoder, tokens: EncoderTokens, vocabulary: int, progress: OnProgress = ignore) -> Floats:
    """Encode each token of the vocabulary alone: vectors (vocabulary, dim) of length 1, 0 for tokens without text."""
    vectors = np.zeros((vocabulary, encoder.dim), np.float32)
    names = [(token, tokens.text([token]).removeprefix("##")) for token in range(min(vocabulary, tokens.size))]
    named = [(token, name) for token, name in names if name.strip()]
    for start in counted(range(0, len(named), 4_096), progress, "encoding the vocabulary"):
        batch = named[start : start + 4_096]
        vectors[[token for token, _ in batch]] = normalized(encoder.encode([name for _, name in batch]))
    return vectors
