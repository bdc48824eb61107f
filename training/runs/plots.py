"""Plots of measurements: curves of a run, distributions of scores, comparisons with their intervals.

SVG or PNG, by the ending of the file's name, at the width of a README. The same data give the same bytes. The colours,
by Okabe and Ito (jfly.uni-koeln.de/color), are distinct for colour-blind people, and nothing depends on colour alone.
"""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from ...core.arrays import Doubles


_BLUE, _ORANGE, _GREEN, _RED, _GREY, _INK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#9AA0A6", "#303030"
_WIDTH = 7.4  # inches: 740 pixels of an SVG
_LOCK = threading.Lock()  # matplotlib's settings are global
_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E8E8E8",
    "text.color": _INK,
    "text.parse_math": False,  # a dollar sign in a name is one
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "svg.hashsalt": "binocle",
    "svg.fonttype": "path",
    "hatch.linewidth": 0.6,
}

Verdict = Literal["baseline", "better", "worse", "same"]
_VERDICTS: dict[Verdict, tuple[str, str, str]] = {  # colour, hatching, text of the legend
    "baseline": (_GREY, "", "baseline"),
    "better": (_BLUE, "", "better than the baseline"),
    "worse": (_RED, "////", "worse than the baseline"),
    "same": ("#FFFFFF", "", "no real difference"),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval. Bars of one `panel`, such as a measure, share an axis."""

    panel: str
    label: str
    value: float
    low: float
    high: float
    verdict: Verdict = "same"


def curves(
    log: Sequence[Mapping[str, Any]],
    file: str | Path,
    *,
    metric: str = "metric",
    kept_step: int | None = None,
    note: str = "",
    title: str = "",
) -> Path:
    """Draw loss and held-out metric, with its 95 % interval, over the steps of a training run.

    :param log: rows with `step` and, where they were taken, `loss` and the metric as `metric`, or by its name, or by
        its name after "eval_"; as in a run's log.jsonl.
    :param metric: the metric's name.
    :param kept_step: the step of the weights that were kept; the last by default.
    :param note: a few words about the run, such as why it stopped.
    """
    losses = _points(log, ["loss"])
    metrics = _points(log, [metric, f"eval_{metric}", "metric"])
    if not len(losses) and not len(metrics):
        raise InputError("the log has nothing to draw: expected rows with 'step' and 'loss' or a metric")
    epochs = max((float(row["epoch"]) for row in log if _is_number(row.get("epoch"))), default=0.0)
    steps = f"training step ({epochs:.3g} epochs in all)" if epochs else "training step"
    margins = dict(_points(log, [f"eval_{metric} margin"]).tolist())
    with _drawing(file, height=2.9) as figure:
        panels = [len(losses) > 0, len(metrics) > 0]
        all_axes = iter(figure.subplots(1, sum(panels), squeeze=False)[0])
        if panels[0]:
            axes = next(all_axes)
            _loss(axes, losses)
            _label(axes, steps)
        if panels[1]:
            axes = next(all_axes)
            _metric(axes, metrics, margins, kept_step)
            axes.set_title("held-out metric")
            axes.set_ylabel(metric)
            _label(axes, steps)
        if note:
            figure.supxlabel(note, fontsize=8.5, x=0.01, horizontalalignment="left")
        _title(figure, title)
    return Path(file)


def _points(log: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Doubles:
    """Return steps and values, shape (points, 2), by step; a resumed run repeats steps, so the last value counts."""
    values: dict[float, float] = {}
    for row in log:
        value = next((row[name] for name in names if _is_number(row.get(name))), None)
        if value is not None and _is_number(row.get("step")):
            values[float(row["step"])] = float(value)
    return np.array(sorted(values.items())).reshape(-1, 2)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _loss(axes: Axes, points: Doubles) -> None:
    steps, losses = points.T
    width = len(losses) // 20
    marker = "o" if len(losses) < 12 else None
    if width < 2:
        axes.plot(steps, losses, color=_BLUE, marker=marker, markersize=3)
    else:
        axes.plot(steps, losses, color=_BLUE, alpha=0.25, linewidth=0.8, label="each reading")
        axes.plot(steps, _smooth(losses, width), color=_BLUE, label=f"mean of {2 * width + 1}")
        axes.legend()
    axes.set_title("training loss")
    axes.set_ylabel("loss")


def _smooth(values: Doubles, width: int) -> Doubles:
    """Return the mean of each value and up to `width` neighbours on either side."""
    sums = np.concatenate([[0], values.cumsum()])
    positions = np.arange(len(values))
    low, high = np.maximum(positions - width, 0), np.minimum(positions + width + 1, len(values))
    means: Doubles = (sums[high] - sums[low]) / (high - low)
    return means


def _label(axes: Axes, steps: str) -> None:
    axes.set_xlabel(steps)
    axes.margins(x=0.02)


def _metric(axes: Axes, points: Doubles, margins: Mapping[float, float], kept_step: int | None) -> None:
    """Draw the values, a band of their intervals, and a circle around the value of the weights that were kept."""
    steps, values = points.T
    axes.plot(steps, values, color=_GREEN, marker="o", markersize=3.5)
    if margins:
        half = np.array([margins.get(step, 0.0) for step in steps])
        axes.fill_between(steps, values - half, values + half, color=_GREEN, alpha=0.15, linewidth=0)
    row = len(steps) - 1 if kept_step is None else int(np.abs(steps - kept_step).argmin())
    axes.plot(steps[row], values[row], "o", markersize=8, markerfacecolor="none", markeredgecolor=_RED)
    left = steps[row] > (steps[0] + steps[-1]) / 2
    axes.annotate(
        f"kept {values[row]:.4f}",
        (steps[row], values[row]),
        xytext=(-8 if left else 8, 8),
        textcoords="offset points",
        horizontalalignment="right" if left else "left",
    )
    axes.margins(y=0.18)


def score_distributions(
    positives: ArrayLike,
    negatives: ArrayLike,
    file: str | Path,
    *,
    threshold: float | None = None,
    title: str = "",
    score: str = "cosine similarity",
) -> Path:
    """Draw the distributions of a model's scores for positives and for negatives.

    :param threshold: minimum score of a positive, drawn as a line.
    :param score: name of the scores, with their unit if they have one.
    """
    classes = [np.asarray(scores, np.float64).ravel() for scores in (positives, negatives)]
    both = np.concatenate(classes)
    if not all(len(scores) for scores in classes) or not np.isfinite(both).all():
        raise InputError("a distribution needs scores of positives and of negatives, all of them numbers")
    edges = np.histogram_bin_edges(both, bins=min(50, max(10, round(len(both) ** 0.5))))
    looks = (("positive", _BLUE, "", 0.55), ("negative", _ORANGE, "////", 0.35))
    with _drawing(file, height=3.1) as figure:
        axes = figure.subplots()
        for scores, (name, colour, hatch, alpha) in zip(classes, looks, strict=True):
            shares = 100 * np.histogram(scores, edges)[0] / len(scores)
            axes.stairs(shares, edges, fill=True, facecolor=colour, alpha=alpha, hatch=hatch, edgecolor=colour)
            axes.stairs(shares, edges, color=colour, linewidth=1.4, label=f"{name} ({len(scores):,})")
        if threshold is not None:
            axes.axvline(threshold, color=_INK, linestyle="--", linewidth=1.2, label=f"threshold {threshold:.3f}")
        axes.set_xlabel(score)
        axes.set_ylabel("share of the class (%)")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        axes.legend()
        _title(figure, title)
    return Path(file)


def comparison(bars: Sequence[Bar], file: str | Path, *, title: str = "") -> Path:
    """Draw one panel for each measure, one bar for each system, with the interval of its value."""
    if not bars:
        raise InputError("a comparison needs at least one value to draw")
    panels = list(dict.fromkeys(bar.panel for bar in bars))
    labels = list(dict.fromkeys(bar.label for bar in bars))
    columns = min(2 if max(map(len, labels)) > 24 else 3, len(panels))
    rows = -(-len(panels) // columns)
    with _drawing(file, height=0.7 + rows * (0.85 + 0.3 * len(labels))) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, panel in zip(grid.ravel(), panels, strict=False):
            _panel(axes, [bar for bar in bars if bar.panel == panel], labels)
            axes.set_title(_short(panel, 72 // columns))
            axes.set_xlabel("value, 95 % interval")
        for axes in grid.ravel()[len(panels) :]:
            axes.set_visible(False)
        _legend(figure, [bar.verdict for bar in bars])
        _title(figure, title)
    return Path(file)


def _panel(axes: Axes, bars: Sequence[Bar], labels: Sequence[str]) -> None:
    for bar in bars:
        row = labels.index(bar.label)
        colour, hatch, _ = _VERDICTS[bar.verdict]
        edge = _INK if bar.verdict == "same" else colour
        axes.barh(row, bar.value, height=0.62, color=colour, edgecolor=edge, linewidth=0.8, hatch=hatch, alpha=0.75)
        if math.isfinite(bar.low) and math.isfinite(bar.high):
            reach = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
            axes.errorbar(bar.value, row, xerr=reach, color=_INK, capsize=3, linewidth=1.2)
        end = max(bar.value, bar.high) if math.isfinite(bar.high) else bar.value
        axes.annotate(f" {bar.value:.3f}", (max(end, 0), row), verticalalignment="center", fontsize=8.5)
    axes.set_yticks(range(len(labels)), [_short(label, 34) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)  # the first on top
    axes.grid(visible=False, axis="y")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0), high + 0.2 * (high - low))


def _legend(figure: Figure, verdicts: Sequence[Verdict]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=colour, hatch=hatch, edgecolor=_INK if verdict == "same" else colour, alpha=0.75, label=says)
        for verdict, (colour, hatch, says) in _VERDICTS.items()
        if verdict in verdicts
    ]
    if len(patches) > 1:
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8.5)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2 - 1]}…{text[-(limit - limit // 2) :]}"


def _title(figure: Figure, title: str) -> None:
    if title:
        figure.suptitle(_short(title, 90), fontsize=11.5, x=0.01, horizontalalignment="left")


def check(file: str | Path) -> None:
    """Raise the errors of drawing into a file, before there is anything to draw.

    :raises MissingExtraError: when matplotlib is not installed.
    """
    file = Path(file)
    if file.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"{file} is no picture that can be drawn: expected a name that ends in .svg or .png")
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {file.parent} to draw into")
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        raise MissingExtraError("matplotlib", "train", "drawing a plot") from None


@contextlib.contextmanager
def _drawing(file: str | Path, *, height: float) -> Iterator[Figure]:
    """Yield a figure in our style, and save it. The user's own style does not change."""
    check(file)
    file = Path(file)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    kind = file.suffix.lower()[1:]
    metadata: dict[str, Any] = {"Date": None, "Creator": "Binocle"} if kind == "svg" else {"Software": None}
    with _LOCK, mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", r"Glyph .* missing", UserWarning)  # names in any alphabet get boxes
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure
        figure.savefig(file, format=kind, dpi=144, metadata=metadata)
