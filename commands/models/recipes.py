"""Recipes: the options of a training run in a TOML file, which another run takes and which a trained model contains."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...core.files import write_atomic

NAME = "recipe.toml"
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
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)


def _read(context: click.Context, _option: click.Parameter, value: Path | None) -> Path | None:
    """Take the options of a recipe as defaults."""
    if value is None:
        return None
    recipe = BUILT_IN.get(str(context.command.name), {}).get(str(value)) or _load(value)
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
    """Refuse a value that click would convert to another one: 4.5 to 4, and true to 1."""
    is_whole = isinstance(parameter.type, click.types.IntParamType)
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    if (isinstance(value, bool) and not is_flag) or (isinstance(value, float) and is_whole):
        kind = "a whole number" if is_whole else "a number" if parameter.type is click.FLOAT else "a text"
        raise click.BadParameter(f"{file} has {parameter.name} = {json.dumps(value)}: expected {kind}")


def _load(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{file} is no recipe ({error}): expected TOML, with a name = value a line") from None


option = click.option(
    "--recipe",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="RECIPE",
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="Options in TOML, as in the recipe.toml of a trained model; for a reranker also the name 'general'. Options "
    "of the command come first.",
)


def write(folder: Path) -> None:
    """Write the options that this call was given, or took from a recipe, into the folder of the model."""
    context = click.get_current_context()
    options = {
        name: list(value) if name == "data" and isinstance(value, tuple) and len(value) > 1 else value
        for name, value in context.params.items()
        if name not in _OWN and context.get_parameter_source(name) in _GIVEN and value is not None
    }
    lines = [f"{name} = {json.dumps(_plain(value), ensure_ascii=False)}\n" for name, value in sorted(options.items())]
    write_atomic(folder / NAME, "".join(lines))


def _plain(value: Any) -> Any:
    """Return a value as an option takes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Path) else value
