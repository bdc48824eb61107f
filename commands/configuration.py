"""The user's configuration file: defaults for the options of commands.

    collection = "all"          # searched where no index is above the current folder

    [search]                    # a table a command, a key an option without its "--"
    k = 5
    rerank = "~/models/reranker"

Only the file of the user is read. A folder of documents may come from a stranger, and defaults choose models and paths.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from ..core.files import expand_home, user_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

COLLECTION = "collection"  # the only key that is no table; click's `meta` has its value under the same key
_INDEXED_BY = {"search": ["index"], "pick": ["index"]}  # commands that offer to index a folder
FILE = "configuration"  # the key of click's `meta` for the file in force


def configuration_file() -> Path | None:
    """The path of the configuration file, which may be missing; `BINOCLE_CONFIG` names another, which may not.

    None if this user has no home folder.
    """
    if named := os.environ.get("BINOCLE_CONFIG"):
        return expand_home(named)
    try:
        return user_folder("CONFIG", "~/.config") / "binocle" / "config.toml"
    except InputError:
        return None


def configure(context: click.Context, group: click.Group) -> None:
    """Read the file, if there is one: set the defaults of the running command, and keep the rest in click's `meta`.

    :raises InputError: with the line of the file, for a key that is unknown or a value of another type; as `_text`.
    """
    text, file = _text(), configuration_file()
    if text is None or file is None:
        return
    content = _parse(file, text)
    context.meta[FILE], context.meta[COLLECTION] = str(file), _collection(file, text, content)
    name = context.invoked_subcommand
    _check_names(file, text, [], content, [COLLECTION, *group.commands])
    names = {name, *_INDEXED_BY.get(str(name), ())} & content.keys()
    context.default_map = {name: _defaults(file, text, [name], content[name], group.commands[name]) for name in names}


def check_all(group: click.Group) -> str:
    """Check the tables of all commands; returns the file, or says that there is none.

    :raises InputError: as `configure`.
    """
    text, file = _text(), configuration_file()
    if text is None or file is None:
        return f"none: {file or 'this user has no home folder'}"
    content = _parse(file, text)
    _collection(file, text, content)
    _check_names(file, text, [], content, [COLLECTION, *group.commands])
    for name in content.keys() - {COLLECTION}:
        _defaults(file, text, [name], content[name], group.commands[name])
    return str(file)


def _text() -> str | None:
    """The text of the file; None if there is no file, or `BINOCLE_CONFIG` is empty.

    :raises InputError: when it cannot be read, or `BINOCLE_CONFIG` names a missing file.
    """
    file = configuration_file()
    if file is None or os.environ.get("BINOCLE_CONFIG") == "":
        return None
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError:
        if os.environ.get("BINOCLE_CONFIG"):
            raise InputError(f"BINOCLE_CONFIG names {file}, which is not there: expected a file, or nothing") from None
        return None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start:,}): expected a TOML file") from None
    except OSError as error:
        raise InputError(f"the configuration {file} cannot be read: {error.strerror}") from None


def _parse(file: Path, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a ValueError also for an integer of thousands of digits
        reason = re.split(r" \(at |: value has", str(error))[0]
        line = re.search(r"\(at line (\d+)", str(error))
        raise InputError(f"{file}{f':{line[1]}' if line else ''}: not TOML: {reason or 'too deep'}") from None


def _collection(file: Path, text: str, content: Mapping[str, Any]) -> str | None:
    value = content.get(COLLECTION)
    if value is not None and not isinstance(value, str):
        raise _error(file, text, [], COLLECTION, f"the name of a collection is a text, not {_shown(value)}")
    return value


def _defaults(file: Path, text: str, path: list[str], table: Any, command: click.Command) -> dict[str, Any]:
    """The default of each option in a table, as click wants them: by the name of the parameter."""
    if not isinstance(table, dict):
        problem = f"{path[-1]!r} is a table of options, such as [{'.'.join(path)}], not {_shown(table)}"
        raise _error(file, text, path[:-1], path[-1], problem)
    if isinstance(command, click.Group):
        _check_names(file, text, path, table, list(command.commands))
        return {name: _defaults(file, text, [*path, name], table[name], command.commands[name]) for name in table}
    options = _options(command)
    names = {key.replace("_", "-"): key for key in table}
    if "name" in table and "name" not in options and any("--name" in option.opts for option in command.params):
        problem = f'a collection is named above all tables, by {COLLECTION} = "NAME", not by an option'
        raise _error(file, text, path, "name", problem)
    _check_names(file, text, path, table, list(options), known=[names[name] for name in names.keys() & options.keys()])
    context = click.Context(command, info_name=path[-1])
    values = {}
    for name, key in names.items():
        option = options[name]
        try:
            values[str(option.name)] = _value(option, table[key], context)
        except (InputError, click.BadParameter) as error:
            message = error.message if isinstance(error, click.BadParameter) else str(error)
            raise _error(file, text, path, key, f"{key}: {message}") from None
    return values


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their long name, or else by the short one."""
    options = [option for option in command.params if isinstance(option, click.Option) and option.expose_value]
    return {max(option.opts, key=len).lstrip("-"): option for option in options}


def _value(option: click.Option, value: Any, context: click.Context) -> Any:
    """Check a value as the option does, and return it as a default of click.

    :raises InputError: when it has the wrong type.
    :raises click.BadParameter: when it is out of range.
    """
    if option.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"expected true or false, not {_shown(value)}")
        return value == bool(option.flag_value)
    if option.multiple != isinstance(value, list):
        raise InputError(f"expected {'a list' if option.multiple else 'one value'}, not {_shown(value)}")
    kinds, expected = _KINDS.get(option.type.name.split(" ")[0], ((str,), "a text"))
    for item in value if option.multiple else [value]:
        if isinstance(item, bool) or not isinstance(item, kinds):
            raise InputError(f"expected {expected}, not {_shown(item)}")
    if isinstance(value, str) and value.startswith("~/"):  # a shell would expand it
        value = str(expand_home(value))
    option.type_cast_value(context, value)
    return value


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "integer": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
}


def _check_names(
    file: Path,
    text: str,
    path: list[str],
    table: Mapping[str, Any],
    allowed: list[str],
    *,
    known: Iterable[str] | None = None,
) -> None:
    """Refuse a key that is not allowed, and name the nearest one."""
    from difflib import get_close_matches

    for key in table:
        if key in (allowed if known is None else known):
            continue
        near = get_close_matches(key.replace("_", "-"), allowed, 1, 0.5)
        where = f"[{'.'.join(path)}] has no option" if path else "there is no command"
        raise _error(file, text, path, key, f"{where} {key!r}{f', is it {near[0]!r}?' if near else ''}")


def _error(file: Path, text: str, path: list[str], key: str, problem: str) -> InputError:
    return InputError(f"{file}:{_line(text, path, key)}: {problem}")


def _line(text: str, path: list[str], key: str) -> int:
    """The line of a key, or of its table; TOML's reader keeps no lines. The first line if neither is found."""
    table: list[str] = []
    best = 1
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[+([^\[\]]*)\]", line):
            table = [part.strip(" \t\"'") for part in header[1].split(".")]
            best = number if table in (path, [*path, key]) else best
        elif table == path and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*[.=]""", line):
            return number
    return best


def _shown(value: Any) -> str:
    """A value for a message: its text, or its kind if that is no single value."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)[:100]
