"""An encoder in another pooling, untrained: a folder that shares its files and has settings of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....retriever.models import model_files
from ....retriever.models.settings import POOLING_FLAGS, read_config, read_modules, reads_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .contenders import Contender


def with_poolings(contenders: Sequence[Contender], folder: Path) -> list[Contender]:
    """Return the contenders; one in another pooling gets a folder of its own below `folder`.

    :raises InputError: when its model has no pooling.
    """
    variants: dict[str, str] = {}  # by the written model
    for contender in contenders:
        if contender.model and contender.pooling and contender.model not in variants:
            variants[contender.model] = _variant(contender.model, contender.pooling, folder / f"model-{len(variants)}")
    return [replace(contender, folder=variants.get(contender.model or "")) for contender in contenders]


def _variant(model: str, pooling: str, folder: Path) -> str:
    """Write a model in another pooling, which its name ends in; return the new name."""
    name, is_int8 = model_files.split_precision(model)
    name = name.removesuffix(f"@{pooling}")
    write_variant(name, model_files.find(name), pooling, folder)
    return str(folder) + model_files.INT8 * is_int8


def write_variant(name: str, base: Path, pooling: str, folder: Path) -> None:
    """Write a folder with links to the files of a model, and with another pooling.

    :param name: of the model, for messages.
    :raises InputError: when the model has no pooling.
    """
    adapts = any((base / part).is_file() for part in (model_files.DEFENCE, model_files.ADAPTER))
    modules = read_modules(base)
    path = next((module["path"] for module in modules if str(module["type"]).endswith(".Pooling")), None)
    if adapts or reads_pairs(base) or (modules and path is None):
        raise InputError(f"{name} has no pooling to change: expected a transformer that encodes texts")
    for file in filter(Path.is_file, base.rglob("*")):
        link = folder / file.relative_to(base)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    if path is None:
        path = "1_Pooling"
        paths = {"Transformer": "", "Pooling": path}
        modules = [
            {
                "idx": number,
                "name": str(number),
                "path": paths[module],
                "type": f"sentence_transformers.models.{module}",
            }
            for number, module in enumerate(paths)
        ]
        _write(folder / "modules.json", modules)
    _write(folder / path / "config.json", _settings(base, path, pooling))


def _settings(base: Path, path: str, pooling: str) -> dict[str, Any]:
    """Return the settings of the pooling, without the settings of the earlier pooling."""
    file = base / path / "config.json"
    config = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    settings = {key: value for key, value in config.items() if key not in (*POOLING_FLAGS, "pooling_mode")}
    if "embedding_dimension" not in settings:
        sizes = read_config(base)
        settings.setdefault("word_embedding_dimension", sizes.get("hidden_size") or sizes.get("dim"))
    return settings | {flag: mode == pooling for flag, mode in POOLING_FLAGS.items()}


def _write(file: Path, value: object) -> None:
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)  # a link to the model's own
    file.write_text(json.dumps(value), "utf-8")
