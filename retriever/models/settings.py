"""Read the settings in a model's folder, as sentence-transformers writes them, and compute its fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import known_sha256
from .bert.families import FAMILIES
from .prompts import known_prompts, prompts_of

if TYPE_CHECKING:
    from pathlib import Path

_TOKENIZERS = {  # that read a pair as their tokenizer.json says
    f"{name}{ending}"
    for name in (
        *("BertTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "MPNetTokenizer"),
        "DistilBertTokenizer",
    )
    for ending in ("", "Fast")
}
# In these model types positions begin after the padding token's, so they read two tokens fewer.
PADDED_POSITIONS = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "longformer",
    "data2vec-text",
    "roberta-prelayernorm",
}
_READ_AS_WRITTEN = (
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
)  # classes for which transformers reads tokenizer.json alone
_NORMALIZER = {  # names in tokenizer_config.json and in the normalizer of tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_BERT_NORMALIZER = re.compile(rb'"normalizer"\s*:\s*(\{[^{}]*"BertNormalizer"[^{}]*\})')
_PREFIX_SPACE = re.compile(rb'"pre_tokenizer"\s*:\s*\{[^{}]*"add_prefix_space"\s*:\s*(true|false)')
POOLING_FLAGS = {  # the booleans of folders written before sentence-transformers 5.5
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings that decide a vector, beside weights and tokenizer."""

    modules: tuple[str, ...]  # class names in order: Transformer, Pooling, Normalize, ...
    pooling: tuple[str, ...]
    include_prompt: bool  # whether the prompt's tokens are pooled
    max_tokens: int | None  # special tokens included; None: the model's own limit
    lowercase: bool
    unit: bool  # whether vectors are scaled to length 1; not if the model is trained for dot products
    query_prompt: str
    document_prompt: str

    @classmethod
    def read(cls, folder: Path) -> ModelSettings:
        """Read `modules.json` and the files that it names.

        A bare Transformer is mean-pooled, as by sentence-transformers.

        :raises InputError: when a value in a JSON file is wrong.
        """
        try:
            return cls._read(folder)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{folder} is not a sentence-transformers folder: a value in its JSON files is wrong ({error})"
            ) from None

    @classmethod
    def _read(cls, folder: Path) -> ModelSettings:
        modules = read_modules(folder)
        if not modules:
            _refuse_heads(folder)
            modules = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": ""}]
        names = tuple(module["type"].rsplit(".", 1)[-1] for module in modules)
        paths = {name: folder / module["path"] for name, module in zip(names, modules, strict=True)}
        transformer = _json(paths.get("Transformer", folder) / "sentence_bert_config.json", dict)
        tokenizer = _json(paths.get("Transformer", folder) / "tokenizer_config.json", dict)
        pooling = _json(paths["Pooling"] / "config.json", dict) if "Pooling" in paths else {}
        whole = _json(folder / "config_sentence_transformers.json", dict)
        query_prompt, document_prompt = prompts_of(folder, whole.get("prompts"))
        return cls(
            modules=names,
            pooling=_pooling(pooling) if "Pooling" in paths else (),
            include_prompt=bool(pooling.get("include_prompt", True)),
            max_tokens=_limit(transformer.get("max_seq_length") or tokenizer.get("model_max_length")),
            lowercase=bool(transformer.get("do_lower_case", False)),
            unit="Normalize" in names or whole.get("similarity_fn_name") != "dot",
            query_prompt=_text(query_prompt),
            document_prompt=_text(document_prompt),
        )


def _refuse_heads(folder: Path) -> None:
    """:raises InputError: for a reader or a tagger: its states were not trained to be pooled."""
    for architecture in read_config(folder).get("architectures") or ():
        for ending, noun in (("ForQuestionAnswering", "a reader"), ("ForTokenClassification", "a tagger")):
            if _text(architecture).endswith(ending):
                raise InputError(
                    f"{folder} is {noun} and no encoder: expected a sentence-transformers folder, or an encoder "
                    "without a head"
                )


def truncated_dim(folder: Path, dim: int) -> int | None:
    """Return the number of dimensions to keep, as `truncate_dim` of a Matryoshka model says; None for all of them.

    :param dim: of whole vectors.
    :raises InputError: when it is no positive number.
    """
    file = folder / "config_sentence_transformers.json"
    length = _json(file, dict).get("truncate_dim")
    if length is not None and (type(length) is not int or length < 1):
        raise InputError(f"{file} has truncate_dim {length!r}: expected a positive number")
    return length if length is not None and length < dim else None


def assumed_prompts(folder: Path) -> tuple[str, str]:
    """Return the prompts for queries and for documents if they are known of the model's name alone; else empty ones."""
    prompts = _json(folder / "config_sentence_transformers.json", dict).get("prompts") or {}
    return ("", "") if any(prompts.values()) else known_prompts(folder)


@dataclass(frozen=True, slots=True)
class CrossEncoderSettings:
    """The settings that decide the score of a pair, beside weights and tokenizer."""

    modules: tuple[str, ...]  # class names in order: a classic cross-encoder has Transformer alone
    labels: int
    max_tokens: int | None  # of a pair, special tokens included; None: the model's own limit
    prompt: str  # put before every pair
    plain: bool  # whether tokenizer.json alone decides the ids of a pair

    @classmethod
    def read(cls, folder: Path) -> CrossEncoderSettings:
        """Read a folder that `CrossEncoder` saved, or a sequence classifier of transformers.

        :raises InputError: when it is another kind of model, or a value in its JSON files is wrong.
        """
        try:
            return cls._read(folder)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{folder} is not a cross-encoder: a value in its JSON files is wrong ({error})") from None

    @classmethod
    def _read(cls, folder: Path) -> CrossEncoderSettings:
        modules = read_modules(folder) or [{"type": "Transformer", "path": ""}]
        names = tuple(module["type"].rsplit(".", 1)[-1] for module in modules)
        model, whole = read_config(folder), _json(folder / "config_sentence_transformers.json", dict)
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
        names_of_tokenizers = _READ_AS_WRITTEN if model.get("model_type") == "modernbert" else _TOKENIZERS
        own = {key for key in ("do_lower_case", "processing_kwargs") if transformer.get(key)}
        return cls(
            modules=names,
            labels=int(
                model.get("num_labels", len(model.get("id2label", (0, 1))))
            ),  # the field is missing for two labels
            max_tokens=_limit(transformer.get("max_seq_length") or tokenizer.get("model_max_length")),
            prompt=_text((whole.get("prompts") or {}).get(whole.get("default_prompt_name")) or ""),
            plain=tokenizer.get("tokenizer_class") in names_of_tokenizers and sides == {"right"} and not own,
        )


def reads_pairs(folder: Path) -> bool:
    """Whether a model is a cross-encoder: it scores pairs but has no vectors for texts."""
    return _cross_encoder(folder) is not None


def is_reranker(folder: Path) -> bool:
    """Whether a model is a cross-encoder with one score. The states of a fine-tuned classifier serve as vectors."""
    settings = _cross_encoder(folder)
    if settings is None or "problem_type" in read_config(folder):
        return False
    return settings.labels == 1 or settings.modules != ("Transformer",)


def _cross_encoder(folder: Path) -> CrossEncoderSettings | None:
    try:
        return CrossEncoderSettings.read(folder)
    except InputError:
        return None


def first_stage_weight(folder: Path) -> float:
    """Return the weight of the first stage in a reranker's order, from 0 to 1: `binocle.json` has it, else 0."""
    file = folder / "binocle.json"
    weight = _json(file, dict).get("first_stage_weight", 0.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
        raise InputError(f"{file} has first_stage_weight {weight!r}: expected a number from 0 to 1")
    return float(weight)


def read_modules(folder: Path) -> list[Any]:
    """Return the list in `modules.json`; empty if there is no such file."""
    modules: list[Any] = _json(folder / "modules.json", list)
    return modules


def read_config(folder: Path) -> dict[str, Any]:
    """Return the object in `config.json`; empty if there is no such file."""
    config: dict[str, Any] = _json(folder / "config.json", dict)
    return config


def is_classifier(folder: Path) -> bool:
    """Whether the model is a sequence classifier, as cross-encoders are."""
    architectures = read_config(folder).get("architectures") or ()
    return any(_text(name).endswith("ForSequenceClassification") for name in architectures)


def tokenizer_overrides(folder: Path) -> dict[str, Any]:
    """Return the settings of the tokenizer of a BERT or its kin that tokenizer_config.json overrides.

    transformers obeys these overrides; the tokenizers library does not know them.
    """
    options = _json(folder / "tokenizer_config.json", dict)
    model_type = read_config(folder).get("model_type")
    if model_type not in tuple(FAMILIES) or not (folder / "tokenizer.json").is_file():
        return {}
    side = options.get("truncation_side", "right")
    overrides = {"truncation_side": side} if side != "right" else {}
    if options.get("tokenizer_class") in _READ_AS_WRITTEN:
        return overrides
    written = (folder / "tokenizer.json").read_bytes()
    if model_type == "roberta" and (match := _PREFIX_SPACE.search(written)):
        adds_space = options.get("add_prefix_space", False)
        return overrides if adds_space == (match[1] == b"true") else overrides | {"add_prefix_space": adds_space}
    match = _BERT_NORMALIZER.search(written)
    if match is None:
        return overrides
    try:
        normalizer = json.loads(match[1])
    except ValueError:  # loading the tokenizer will report the damage
        return overrides
    differing = (key for key, name in _NORMALIZER.items() if key in options and options[key] != normalizer.get(name))
    return overrides | {key: options[key] for key in differing}


def fingerprint(folder: Path, settings: Any) -> str:
    """Return 32 hex digits that change with everything that decides a vector or score: weights, tokenizer, settings.

    :param settings: a dataclass.
    """
    tokenizer = tokenizer_overrides(folder)
    decisive = asdict(settings) | ({"tokenizer": tokenizer} if tokenizer else {})
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
    kinds = (
        *(".safetensors", "config.json", "tokenizer.json", "added_tokens.json", "vocab.txt", "vocab.json"),
        *("merges.txt", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"),
    )
    for file in sorted(folder.rglob("*")):
        if file.name.endswith(kinds) and not file.name.startswith("tokenizer_config"):
            digest.update(f"{file.relative_to(folder).as_posix()} {known_sha256(file)}\n".encode())
    return digest.hexdigest()[:32]


def int8_fingerprint(fingerprint: str) -> str:
    """Derive the int8 fingerprint from a model's own. Raise its number when the rounding changes."""
    return hashlib.sha256(f"{fingerprint} int8 1".encode()).hexdigest()[:32]


def _pooling(config: dict[str, Any]) -> tuple[str, ...]:
    mode = config.get("pooling_mode") or [name for flag, name in POOLING_FLAGS.items() if config.get(flag)] or "mean"
    return (_text(mode),) if isinstance(mode, str) else tuple(map(_text, mode))


def _limit(value: object) -> int | None:
    """Return a length in tokens; None for tokenizers without a limit, which write 10^30."""
    if value is None or (isinstance(value, (int, float)) and value > 10**6):
        return None
    if not isinstance(value, int) or value < 3:  # [CLS], [SEP] and a token between
        raise TypeError(f"the length {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text was expected")
    return value


def _json(file: Path, kind: type) -> Any:
    """Return the list or object in a JSON file, as `kind` says; an empty one if there is no file.

    :raises InputError: when the file holds anything else.
    """
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
