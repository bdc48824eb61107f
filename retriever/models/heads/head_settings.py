"""The kinds of head, and the settings of a model folder that decide its logits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ....core.checks import describe_first_wrong
from ....core.errors import InputError
from ....core.words import encodable
from ..model_files import Role
from ..settings import PADDED_POSITIONS, read_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SettingsT = TypeVar("SettingsT")
_POSITIONS = 512  # of a model that does not say


@dataclass(frozen=True, slots=True)
class HeadKind:
    """A kind of head, as transformers names it."""

    noun: str  # in messages, and of the command that trains it
    task: str  # transformers' class is `AutoModelFor{task}`
    layer: str  # the dense layer that gives the logits
    pooled: bool = False  # whether a text has one row of logits, and not each of its tokens
    publisher: str = ""  # of most such models on the hub

    @property
    def role(self) -> Role:
        """The role that `model_files.find` looks for."""
        return Role(self.noun, self.publisher)


READER = HeadKind("reader", "QuestionAnswering", "qa_outputs", publisher="deepset")
TAGGER = HeadKind("tagger", "TokenClassification", "classifier")
CLASSIFIER = HeadKind("classifier", "SequenceClassification", "classifier", pooled=True)


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """The settings that decide the logits, beside weights and tokenizer."""

    task: str
    labels: tuple[str, ...]  # names of the logits, in their order
    limit: int  # tokens of a text or pair, special ones included

    @classmethod
    def read(cls, folder: Path, kind: HeadKind) -> HeadSettings:
        """Read config.json of a folder as transformers saves it.

        :raises InputError: when the model has another head or none.
        """
        config = read_config(folder)
        architectures = config.get("architectures") or [""]
        if not str(architectures[0]).endswith(f"For{kind.task}"):
            raise InputError(
                f"{folder} is {architectures[0] or 'a model without a head'} and no {kind.noun}: expected one that "
                f"'binocle train {kind.noun}' wrote, or a model of the hub for {kind.task}"
            )
        return cls.of(folder, config, kind)

    @classmethod
    def of(cls, folder: Path, config: dict[str, Any], kind: HeadKind) -> HeadSettings:
        """Take the settings from a configuration of transformers, which has the right head."""
        return cls(kind.task, _labels(folder, config), _limit(config))


def _labels(folder: Path, config: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the logits by their numbers; transformers' default is two."""
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        by_number = {int(number): encodable(str(name)) for number, name in names.items()}
        return tuple(by_number[number] for number in range(len(names)))
    except (ValueError, KeyError, AttributeError):
        raise InputError(f"{folder / 'config.json'} has no names for the labels 0, 1, … in id2label") from None


def _limit(config: dict[str, Any]) -> int:
    positions = config.get("max_position_embeddings", _POSITIONS)
    if not isinstance(positions, int) or not 8 <= positions < 10**6:
        raise InputError(f"config.json has max_position_embeddings {positions!r}: expected a number of tokens from 8")
    return positions - 2 * (config.get("model_type") in PADDED_POSITIONS)


def read_settings(folder: Path, noun: str, build: Callable[..., SettingsT]) -> SettingsT:
    """Build the settings that `binocle.json` of a folder has for a kind of head; without the file, the defaults.

    :raises InputError: when the file has other ones.
    """
    file = folder / "binocle.json"
    try:
        facts = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        return build(**facts.get(noun, {}))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{file} does not describe a {noun}: copy the model folder again") from None


def check_settings(folder: Path, noun: str, settings: Any, rules: Mapping[str, tuple[bool, str]]) -> None:
    """Check the settings that came from a folder's `binocle.json`.

    :param rules: maps each setting to True if its value is right, and to the words for the expected value.
    :raises InputError: for the first wrong setting.
    """
    if wrong := describe_first_wrong(settings, rules):
        raise InputError(
            f"{folder / 'binocle.json'} has a wrong value in '{noun}': {wrong}; copy the model folder again"
        )
