"""Recipes: the options of a training run in a TOML file, which another run takes and which a trained model contains."""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..options import FilePath

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATHS = ("data", "texts", "base", "encoder", "teacher", "guide", "index", "development", "unlabelled")  # or names
_RELATIVE = ("./", "../")  # a path that begins so counts from the recipe's folder
_OWN = ("recipe", "out", "as_json")  # of a call, not of the recipe
BUILT_IN: dict[str, dict[str, dict[str, Any]]] = {  # command -> name of the recipe -> options
    "reranker": {
        "general": {
            "batch_size": 8,
            "learning_rate": 1e-4,
            "max_length": 192,
            "negatives": 5,
            "held_out": 0.03,
        }
    }
}
_EXPLICIT = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)


def _read(context: click.Context, _option: click.Parameter, value: Path | None) -> Path | None:
    """Take the options of a recipe as defaults."""
    if value is None:
        return None
    recipe = BUILT_IN.get(str(context.command.name), {}).get(str(value)) or _load(value)
    recipe = {name: _from_here(each, value.parent) if name in _PATHS else each for name, each in recipe.items()}
    parameters = {str(each.name): each for each in context.command.params if each.name not in _OWN}
    unknown = next((name for name in recipe if name not in parameters), None)
    if unknown is not None:
        raise click.BadParameter(f"{value} has {unknown!r}: expected some of {', '.join(parameters)}")
    for name, setting in recipe.items():
        _check_kind(value, parameters[name], setting)
    several = [parameter.name for parameter in context.command.params if parameter.nargs == -1]
    context.default_map = {
        name: [text] if name in several and isinstance(text, str) else text for name, text in recipe.items()
    }
    return value


def _check_kind(file: Path, parameter: click.Parameter, value: Any) -> None:
    """Refuse a value that click would convert to another one: 4.5 to 4, true to 1, and a list to a text."""
    values = value if parameter.nargs == -1 and isinstance(value, list) and value else [value]
    kind, types = _kind(parameter)
    if not all(type(each) in types for each in values):
        shown = json.dumps(value, default=str, ensure_ascii=False)
        raise click.BadParameter(f"{file} has {parameter.name} = {shown:.60}: expected {kind}")


def _kind(parameter: click.Parameter) -> tuple[str, tuple[type, ...]]:
    """Return the value that an option takes, described in words and as types of TOML."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "true or false", (bool,)
    if isinstance(parameter.type, click.types.IntParamType):
        return "a whole number", (int,)
    if isinstance(parameter.type, click.types.FloatParamType):
        return "a number", (int, float)
    return "a list of texts" if parameter.nargs == -1 else "a text", (str,)


def _load(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{file} is no recipe ({error}): expected TOML, with a name = value a line") from None


option = click.option(
    "--recipe",
    type=FilePath(dir_okay=False),
    metavar="RECIPE",
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="Options in TOML, as in the recipe.toml of a trained model; for a reranker also the name 'general'. Options "
    "of the command come first.",
)


@contextlib.contextmanager
def saved_with(folder: Path) -> Iterator[None]:
    """Keep the options of this call, from the command line or a recipe, in the model that it trains.

    The training writes them together with the model, so that no model lacks its recipe if the process is killed.

    :param folder: the folder of the model.
    """
    from ...training.runs.run_folder import RECIPE

    context = click.get_current_context()
    options = {
        name: _from_recipe(value, folder) if name in _PATHS else _plain(value)
        for name, value in context.params.items()
        if name not in _OWN and context.get_parameter_source(name) in _EXPLICIT and value is not None
    }
    lines = [f"{name} = {_toml(value)}\n" for name, value in sorted(options.items())]
    token = RECIPE.set("".join(lines))
    try:
        yield
    finally:
        RECIPE.reset(token)


def _toml(value: Any) -> str:
    """Write a value as TOML. TOML has the texts of JSON, but demands an escape for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    """Return a value as an option takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def _from_here(value: Any, folder: Path) -> Any:
    """Return a path of a recipe in this folder as one from the current folder."""
    if isinstance(value, list):
        return [_from_here(each, folder) for each in value]
    return os.path.relpath(folder / value) if isinstance(value, str) and value.startswith(_RELATIVE) else value


def _from_recipe(value: Any, folder: Path) -> Any:
    """Make a relative path of a file or folder start at the recipe's folder. Other values are returned unchanged."""
    if isinstance(value, tuple):
        names = [_from_recipe(each, folder) for each in value]
        return names[0] if len(names) == 1 else names
    name = str(value)
    path = name if Path(name).exists() else name.rpartition(":")[0]  # DATA:OBJECTIVE
    if not path or Path(path).is_absolute() or not Path(path).exists():
        return name
    relative = os.path.relpath(path, folder)
    return (relative if relative.startswith(_RELATIVE[1]) else f"./{relative}") + name[len(path) :]
