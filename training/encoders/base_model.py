"""Load the model that a run starts from, with its pooling, dropout and adapter; merge the adapter at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer, WeightedLayerPooling

from ...core.errors import InputError, MissingExtraError
from ...retriever.models import model_files
from ...retriever.models.prompts import prompts_of
from ...retriever.models.settings import PADDED_POSITIONS
from ...retriever.models.torch_loading import check_vocabulary, loading
from ..runs import attention, environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .config import EncoderConfig


def make_model(base: str, config: EncoderConfig) -> Any:
    """Load the `SentenceTransformer` to train, or a transformer with pooling and unit length on top.

    :raises ModelNotFoundError: if the base is neither on this machine nor available.
    """
    environment.silence()
    torch.manual_seed(config.seed)
    folder = model_files.find(base)
    with loading(base, "an encoder"):
        model = _load(folder)
    check_vocabulary(folder, model.tokenizer, model.transformers_model)
    if config.pooling is not None:
        words = model[0].get_embedding_dimension()
        modes = config.pooling if len(config.pooling) > 1 else config.pooling[0]
        model = SentenceTransformer(modules=[model[0], Pooling(words, modes), Normalize()], prompts=model.prompts)
    if config.pooling_layers:
        model = pool_layers(base, model, config.pooling_layers)
    query_prompt, document_prompt = prompts_of(folder, model.prompts)  # as in a search
    model.prompts |= {"query": query_prompt, "document": document_prompt}
    set_dropout(model, config.dropout)
    attention.speed_up(getattr(model[0], "auto_model", None))
    if config.lora:
        add_adapter(model, config)
    return model.to(environment.device())


def _load(folder: Path) -> Any:
    options: dict[str, Any] = {"use_safetensors": True}
    if (folder / "modules.json").is_file():
        return SentenceTransformer(str(folder), local_files_only=True, model_kwargs=options, trust_remote_code=False)
    words = Transformer(str(folder), model_kwargs={**options, "local_files_only": True})
    return SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension(), "mean"), Normalize()])


def save_model(model: Any, folder: Path) -> None:
    """Write a finished encoder or reranker, with a tokenizer that neither pads nor truncates.

    A fast tokenizer keeps and saves the padding and truncation of its last call. A resumed run ends with another call,
    which would change the fingerprint of the model.
    """
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
    model.eval().save_pretrained(str(folder), create_model_card=False)


def pool_layers(name: str, model: Any, numbers: Sequence[int]) -> Any:
    """Pool the states of one layer, or the mean over several layers, instead of the states of the last layer.

    Layers above the highest are left out. A model that pools one layer is an ordinary one with fewer layers.

    :param name: of the model, for messages.
    :param numbers: of layers, from 1.
    :raises InputError: when the model has no such layer.
    """
    words: Any = getattr(model[0], "auto_model", None)
    count, highest = layer_count(words) if words is not None else 0, max(numbers)
    if not count:
        raise InputError(f"{name} has no layers to choose from: leave the pooling layers out")
    if highest > count:
        raise InputError(f"{name} has {count} layers, not {highest}: pool layers from 1 to {count}")
    keep_layers(words, range(highest))
    rest = [module for module in list(model)[1:] if not isinstance(module, WeightedLayerPooling)]
    if len(numbers) > 1:
        words.config.output_hidden_states = True  # the configuration is saved with the model
        shares = torch.tensor([float(number in numbers) for number in range(min(numbers), highest + 1)])
        weights = torch.nn.Parameter(shares, requires_grad=False)
        width = model[0].get_embedding_dimension()
        rest.insert(0, WeightedLayerPooling(width, highest, min(numbers), weights))
    settings = {name: getattr(model, name) for name in ("prompts", "default_prompt_name", "similarity_fn_name")}
    return SentenceTransformer(modules=[model[0], *rest], **settings)


def shortest(max_length: int | None, model: Any) -> int | None:
    """Return the maximum of tokens, or the number of the model's positions if that is less."""
    config: Any = getattr(getattr(model[0], "auto_model", None), "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    if max_length is None or not isinstance(positions, int) or positions < 1:
        return max_length
    return min(max_length, positions - 2 * (config.model_type in PADDED_POSITIONS))


def set_dropout(model: Any, share: float) -> None:
    """Set the dropout of all modules, without a trace in the saved configuration."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        for name in ("dropout", "attention_dropout", "drop_prob", "hidden_dropout", "attention_probs_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, share)


def join_segments(model: Any) -> None:
    """Start the second segment's embedding as the first's: an encoder of single texts has not trained it."""
    for name, weight in model.named_parameters():
        if name.endswith("token_type_embeddings.weight") and len(weight) > 1:
            weight.data[1] = weight.data[0]


def layer_count(words: Any) -> int:
    """Return the number of a transformer's layers; 0 if the model has no list of modules."""
    return len(_layers(words))


def keep_layers(words: Any, numbers: Sequence[int]) -> None:
    """Leave out all layers of a transformer but these."""
    layers = _layers(words)
    selected = torch.nn.ModuleList([layers[number] for number in numbers])
    owner, name = next(
        (module, name) for module in words.modules() for name, child in module.named_children() if child is layers
    )
    setattr(owner, name, selected)
    if types := getattr(words.config, "layer_types", None):  # ModernBERT: local or global attention of each layer
        words.config.layer_types = [types[number] for number in numbers]
    words.config.num_hidden_layers = len(selected)


def keep_first_layers(name: str, model: Any, layers: int) -> None:
    """Keep the first layers of a transformer: they know most of a word's form (Tenney et al. 2019, arXiv:1905.05950).

    :param name: of the model, for messages.
    :raises InputError: when the model has fewer layers, or its layers share their weights.
    """
    count = layer_count(model)
    if count != model.config.num_hidden_layers or layers > count:
        have = count if count == model.config.num_hidden_layers else "no"
        raise InputError(f"{name} has {have} separate layers: it cannot keep the first {layers}")
    keep_layers(model, range(layers))


def keep_spread_layers(name: str, words: Any, layers: int) -> None:
    """Leave out layers, so that some remain, evenly spread from the first to the last (Sanh et al. 2019).

    Six of twelve layers are 0, 2, 4, 7, 9 and 11, as DistilBERT's were (arXiv:1910.01108).

    :param name: of the model, for messages.
    :raises InputError: when the model does not have more layers.
    """
    count = layer_count(words)
    if not 0 < layers < count:
        have = count or "none that can be left out"
        raise InputError(f"{name} has {have} layers: a student of {layers} would not be smaller")
    step = (count - 1) / (layers - 1) if layers > 1 else 0.0
    keep_layers(words, [round(count - 1 - number * step) for number in reversed(range(layers))])


def _layers(words: Any) -> Any:
    """Return the layers: the longest module list of the model."""
    lists = [module for module in words.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=())


def add_adapter(model: Any, config: EncoderConfig) -> None:
    """Train low-rank additions to the weights instead of the weights (LoRA, Hu et al. 2021, arXiv:2106.09685)."""
    try:
        from peft import LoraConfig
    except ImportError:
        raise MissingExtraError("peft", "train", "LoRA") from None
    assert config.lora is not None
    model.add_adapter(
        LoraConfig(r=config.lora, lora_alpha=2 * config.lora, lora_dropout=config.dropout, target_modules="all-linear")
    )


def merge_adapter(model: Any) -> None:
    """Add the low-rank parts to the weights, so that the saved folder needs no adapter."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    words = model[0].auto_model
    for name, module in list(words.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            parent = words.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module.get_base_layer())
    words._hf_peft_config_loaded = False  # noqa: SLF001 - transformers would save the adapter alone
    if hasattr(words, "peft_config"):
        del words.peft_config
