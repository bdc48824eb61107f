"""What a model's folder says of itself as sentence-transformers writes it, and the fingerprint of all that decides."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import known_sha256

if TYPE_CHECKING:
    from pathlib import Path

_BERT_TOKENIZERS = ("BertTokenizer", "BertTokenizerFast")
# Model types whose positions begin after the padding token's, so that they read two tokens fewer.
PADDED_POSITIONS = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "longformer",
    "data2vec-text",
    "roberta-prelayernorm",
}
_READ_AS_WRITTEN = ("PreTrainedTokenizerFast", "TokenizersBackend")  # by transformers, from tokenizer.json alone
_NORMALIZER = {  # what tokenizer_config.json calls the settings of the normalizer in tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_POOLING_FLAGS = {  # the booleans of folders written before sentence-transformers 5.5
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What, beside weights and tokenizer, decides a vector."""

    modules: tuple[str, ...]  # class names in order: Transformer, Pooling, Normalize, ...
    pooling: tuple[str, ...]
    include_prompt: bool  # whether the prompt's tokens are pooled
    max_tokens: int | None  # special tokens included; None: as the model says
    lowercase: bool
    unit: bool  # whether vectors are scaled to length 1: unless the model is made for unscaled dot products
    query_prompt: str
    document_prompt: str

    @classmethod
    def read(cls, folder: Path) -> ModelSettings:
        """Read `modules.json` and what it names; a bare Transformer is mean-pooled, as by sentence-transformers."""
        try:
            return cls._read(folder)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{folder} is not a sentence-transformers folder: a value in its JSON files is wrong ({error})"
            ) from None

    @classmethod
    def _read(cls, folder: Path) -> ModelSettings:
        modules = modules_of(folder) or [
            {"type": "Transformer", "path": ""},
            {"type": "Pooling", "path": ""},
        ]
        names = tuple(module["type"].rsplit(".", 1)[-1] for module in modules)
        paths = {name: folder / module["path"] for name, module in zip(names, modules, strict=True)}
        transformer = _json(paths.get("Transformer", folder) / "sentence_bert_config.json", dict)
        tokenizer = _json(paths.get("Transformer", folder) / "tokenizer_config.json", dict)
        pooling = _json(paths["Pooling"] / "config.json", dict) if "Pooling" in paths else {}
        whole = _json(folder / "config_sentence_transformers.json", dict)
        prompts = whole.get("prompts") or {}
        return cls(
            modules=names,
            pooling=_pooling(pooling) if "Pooling" in paths else (),
            include_prompt=bool(pooling.get("include_prompt", True)),
            max_tokens=_limit(transformer.get("max_seq_length") or tokenizer.get("model_max_length")),
            lowercase=bool(transformer.get("do_lower_case", False)),
            unit="Normalize" in names or whole.get("similarity_fn_name") != "dot",
            query_prompt=_text(prompts.get("query") or ""),
            document_prompt=_text(document_prompt(prompts)),
        )


def document_prompt(prompts: dict[str, Any]) -> Any:
    """What is put before a document: models have it under one of three names."""
    return next((prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name)), "")


@dataclass(frozen=True, slots=True)
class CrossEncoderSettings:
    """What, beside weights and tokenizer, decides the score of a pair."""

    modules: tuple[str, ...]  # class names in order: Transformer alone, unless it is a newer kind
    labels: int
    max_tokens: int | None  # of a pair, special tokens included; None: as the model says
    prompt: str  # put before every pair
    plain: bool  # whether nothing but the tokenizer of a BERT comes between texts and ids

    @classmethod
    def read(cls, folder: Path) -> CrossEncoderSettings:
        """Read a folder of `CrossEncoder` or of a sequence classifier of transformers.

        :raises InputError: when it is another kind of model, or a value in its JSON files is wrong.
        """
        try:
            return cls._read(folder)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{folder} is not a cross-encoder: a value in its JSON files is wrong ({error})") from None

    @classmethod
    def _read(cls, folder: Path) -> CrossEncoderSettings:
        modules = modules_of(folder) or [{"type": "Transformer", "path": ""}]
        names = tuple(module["type"].rsplit(".", 1)[-1] for module in modules)
        model, whole = config(folder), _json(folder / "config_sentence_transformers.json", dict)
        classifies = is_classifier(folder)
        if whole.get("model_type", "CrossEncoder" if classifies and "Pooling" not in names else "") != "CrossEncoder":
            kind = "an encoder" if "Pooling" in names or not classifies else _text(whole["model_type"])
            raise InputError(
                f"{folder} is {kind} and no cross-encoder: expected a folder that CrossEncoder saved, "
                "or a sequence classifier of transformers"
            )
        transformer = _json(folder / "sentence_bert_config.json", dict)
        tokenizer = _json(folder / "tokenizer_config.json", dict)
        sides = {tokenizer.get(side, "right") for side in ("truncation_side", "padding_side")}
        own = {key for key in ("do_lower_case", "processing_kwargs") if transformer.get(key)}
        return cls(
            modules=names,
            labels=int(model.get("num_labels", len(model.get("id2label", (0, 1))))),  # left out when they are two
            max_tokens=_limit(transformer.get("max_seq_length") or tokenizer.get("model_max_length")),
            prompt=_text((whole.get("prompts") or {}).get(whole.get("default_prompt_name")) or ""),
            plain=tokenizer.get("tokenizer_class") in _BERT_TOKENIZERS and sides == {"right"} and not own,
        )


def first_stage_weight(folder: Path) -> float:
    """What a reranker leaves to the stage before it, from 0 to 1, by its `binocle.json`; 0 where there is none."""
    file = folder / "binocle.json"
    weight = _json(file, dict).get("first_stage_weight", 0.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
        raise InputError(f"{file} has first_stage_weight {weight!r}: expected a number from 0 to 1")
    return float(weight)


def modules_of(folder: Path) -> list[Any]:
    """The modules that a model is made of, of its `modules.json`; none where it has none."""
    found: list[Any] = _json(folder / "modules.json", list)
    return found


def config(folder: Path) -> dict[str, Any]:
    """The model's `config.json`."""
    found: dict[str, Any] = _json(folder / "config.json", dict)
    return found


def is_classifier(folder: Path) -> bool:
    """Whether a model is a sequence classifier, as cross-encoders are."""
    named = config(folder).get("architectures") or ()
    return any(_text(name).endswith("ForSequenceClassification") for name in named)


def overruled(folder: Path) -> dict[str, Any]:
    """Of a BERT's tokenizer what tokenizer_config.json says otherwise than tokenizer.json, and transformers obeys."""
    said = _json(folder / "tokenizer_config.json", dict)
    if config(folder).get("model_type") != "bert" or not (folder / "tokenizer.json").is_file():
        return {}
    found = {"truncation_side": said["truncation_side"]} if said.get("truncation_side", "right") != "right" else {}
    written = re.search(
        rb'"normalizer"\s*:\s*(\{[^{}]*"BertNormalizer"[^{}]*\})', (folder / "tokenizer.json").read_bytes()
    )
    if written is None or said.get("tokenizer_class") in _READ_AS_WRITTEN:
        return found
    try:
        normalizer = json.loads(written[1])
    except ValueError:  # what is wrong with the file is said when it is read
        return found
    differing = (key for key, name in _NORMALIZER.items() if key in said and said[key] != normalizer.get(name))
    return found | {key: said[key] for key in differing}


def fingerprint(folder: Path, settings: ModelSettings | CrossEncoderSettings) -> str:
    """32 hex digits that change when anything that decides a vector or score does: weights, tokenizer, settings."""
    tokenizer = overruled(folder)
    decides = asdict(settings) | ({"tokenizer": tokenizer} if tokenizer else {})
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode())
    kinds = (
        *(".safetensors", "config.json", "tokenizer.json", "added_tokens.json", "vocab.txt", "vocab.json"),
        *("merges.txt", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"),
    )
    for file in sorted(folder.rglob("*")):
        if file.name.endswith(kinds) and not file.name.startswith("tokenizer_config"):
            digest.update(f"{file.relative_to(folder).as_posix()} {known_sha256(file)}\n".encode())
    return digest.hexdigest()[:32]


def _pooling(config: dict[str, Any]) -> tuple[str, ...]:
    mode = config.get("pooling_mode") or [name for flag, name in _POOLING_FLAGS.items() if config.get(flag)] or "mean"
    return (_text(mode),) if isinstance(mode, str) else tuple(map(_text, mode))


def _limit(value: Any) -> int | None:
    """A length in tokens; tokenizers without one say 10^30."""
    if value is None or (isinstance(value, (int, float)) and value > 10**6):
        return None
    if not isinstance(value, int) or value < 3:  # [CLS], [SEP] and something between
        raise TypeError(f"the length {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text was expected")
    return value


def _json(file: Path, kind: type) -> Any:
    """The JSON of a file, which must be a list or an object as `kind` says; an empty one if there is no file."""
    if not file.is_file():
        return kind()
    try:
        value = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON ({error}): copy the model folder again") from None
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "an array"
        raise InputError(f"{file} does not hold {expected} as it should: copy the model folder again")
    return value
