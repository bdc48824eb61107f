"""The file inverter.json: which encoder a saved inverter belongs to, and how its decoder is built."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...core.checks import describe_first_wrong, is_real, is_whole
from ...core.errors import EncoderMismatchError, InputError, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..models.encoder import Encoder
    from .decoders.decoder_settings import TextDecoderSettings, TokenDecoderSettings

    Settings = TypeVar("Settings", TextDecoderSettings, TokenDecoderSettings)

FILE, WEIGHTS = "inverter.json", "inverter.safetensors"
FORMAT = 1
INVERTER_KINDS = ("embedding", "hidden")


@dataclass(frozen=True, slots=True)
class InverterInfo:
    """The facts in inverter.json."""

    kind: str  # "embedding" or "hidden"
    encoder: str  # a name or a folder
    fingerprint: str  # of the encoder
    dim: int
    decoder: dict[str, Any]  # the decoder's settings
    layer: int | None = None  # that hidden states are read from
    temperature: float = 1.0  # that divides the logits of tokens named from hidden states (arXiv:1706.04599)
    masked_temperature: float = 1.0  # the same where the state itself is masked
    threshold: float = 0.0  # minimum cosine of a recovered text, after a few rounds of correction
    control: dict[str, float] | None = None  # cosines of recovered texts, and of vectors of no text
    no_texts: Sequence[Sequence[float]] = ()  # rounds, threshold, and threshold for a vector with a text's shape
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> InverterInfo:
        """Read inverter.json.

        An earlier version measured thresholds by seconds, in `chance`. The highest of them becomes the threshold.

        :raises InputError: when the folder holds no inverter, a damaged one or one of another format.
        """
        file = folder / FILE
        if not file.is_file():
            raise InputError(f"{folder} is no inverter: expected a folder that 'binocle train inverter' made")
        try:
            facts = json.loads(file.read_text("utf-8"))
            _check_format(facts.get("format"), file)
            by_seconds = _earlier_thresholds(facts.pop("chance", ()))
            info = cls(**facts)
            _check(info)
            _check_thresholds(info)
            info = replace(info, threshold=max(info.threshold, *by_seconds)) if by_seconds else info
        except InputError:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{file} is damaged ({first_line(error)}): copy the inverter's folder again") from None
        return info

    def decoder_settings(self, settings: type[Settings], folder: Path) -> Settings:
        """Return the settings of the decoder in this folder.

        :raises InputError: for unknown or impossible settings.
        """
        try:
            sizes = settings(**self.decoder)
            sizes.check()
            if sizes.inputs != self.dim:
                raise InputError(f"dim is {self.dim}, but the decoder reads {sizes.inputs} numbers")
        except (TypeError, ValueError) as error:
            reason = first_line(error)
            raise InputError(f"{folder / FILE} is damaged ({reason}): copy the inverter's folder again") from None
        return sizes

    def minimum_cosine(self, rounds: int, *, of_text: bool = False) -> float:
        """The cosine that a recovered text reaches after these rounds of correction, and a vector of no text does not.

        It rises with the logarithm of the rounds; after the last measured ones at most halfway to the cosines of texts.

        :param of_text: whether the vector has the shape of a text's. Then a cosine suffices that 95 % of the vectors of
            no text stay below.
        """
        if len(self.no_texts) < 2:
            return self.threshold
        measured, thresholds, of_shape = np.array(self.no_texts).T
        cosines = of_shape if of_text else thresholds
        measured, now = np.log1p(measured), float(np.log1p(rounds))
        last, slope = float(cosines[-1]), float((cosines[-1] - cosines[-2]) / (measured[-1] - measured[-2]))
        if now <= measured[-1]:
            return float(np.interp(now, measured, cosines))
        texts = (self.control or {}).get("texts, 5th percentile", 1.0)
        return min(last + slope * (now - float(measured[-1])), max(last, (last + texts) / 2))

    def usual_cosine(self, rounds: int) -> float:
        """The cosine that 95 % of texts of the learned lengths reach; 0 if it is not known after so few rounds."""
        if len(self.no_texts) < 2 or rounds < self.no_texts[1][0]:
            return 0.0
        return (self.control or {}).get("texts, 5th percentile", 0.0)

    def write(self, folder: Path) -> None:
        """Write inverter.json into an existing folder, and replace an older one."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    def check_encoder(self, encoder: Encoder, folder: Path) -> Encoder:
        """:raises EncoderMismatchError: when the inverter in this folder was trained on another encoder."""
        if encoder.fingerprint != self.fingerprint:
            raise EncoderMismatchError(
                f"{folder} inverts the encoder {self.fingerprint[:8]} ({self.encoder}), but {encoder.name} is "
                f"{encoder.fingerprint[:8]}: train an inverter for that one"
            )
        return encoder


def _check_format(version: object, file: Path) -> None:
    """:raises InputError: for a later format, because this version may not know its other facts."""
    if is_whole(version, FORMAT + 1):
        raise InputError(f"{file} has format {version}, this version reads {FORMAT}")


def _earlier_thresholds(rows: Sequence[tuple[float, float]]) -> list[float]:
    """Return the thresholds of an earlier version: the cosines in its rows of (seconds, cosine)."""
    cosines = [cosine for _, cosine in rows]
    if not all(map(is_real, cosines)):
        raise ValueError("expected rows of two finite numbers in chance")
    return cosines


def _check(info: InverterInfo) -> None:
    """:raises ValueError: for the first fact of a wrong type."""
    control = info.control
    rules = {
        "format": (is_whole(info.format, FORMAT), f"{FORMAT}"),
        "kind": (info.kind in INVERTER_KINDS, f"one of {', '.join(INVERTER_KINDS)}"),
        "encoder": (_is_name(info.encoder), "a name or a folder"),
        "fingerprint": (_is_name(info.fingerprint), "the encoder's fingerprint"),
        "dim": (is_whole(info.dim, 1), "a whole number from 1"),
        "decoder": (isinstance(info.decoder, dict), "settings by name"),
        "layer": (info.layer is None or is_whole(info.layer, 0), "a whole number from 0, or null"),
        "temperature": (_is_positive(info.temperature), "a number above 0"),
        "masked_temperature": (_is_positive(info.masked_temperature), "a number above 0"),
        "threshold": (is_real(info.threshold), "a number"),
        "control": (
            control is None or (isinstance(control, dict) and all(map(is_real, control.values()))),
            "cosines by name, or null",
        ),
    }
    if wrong := describe_first_wrong(info, rules):
        raise ValueError(wrong)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_positive(value: Any) -> bool:
    return is_real(value) and value > 0


def _check_thresholds(info: InverterInfo) -> None:
    """:raises ValueError: for rows that are not numbers, or do not ascend by their rounds."""
    rows = np.array(info.no_texts)
    if rows.shape == (0,):
        return
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind not in "fiu" or not np.isfinite(rows).all():
        raise ValueError("expected rows of three finite numbers in no_texts")
    if rows[0, 0] < 0 or (rows[1:, 0] <= rows[:-1, 0]).any():
        raise ValueError("expected rows of no_texts by ascending rounds, from 0")
