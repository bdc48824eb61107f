"""Several models or modes side by side on the same data: what each reaches, and which differences are real."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...retriever.models import files as model_folder
from ...retriever.models import settings as model_settings
from ...retriever.models.load import load_reranker
from ...retriever.search.query import check_reranking
from ..runs import plots
from ..runs.progress import within
from . import contenders as contending
from . import labelled, similarity
from .comparison import Cell, Column, Comparison
from .judged_rows import evaluate_rows
from .result import JudgedRowsResult
from .retrieval import Evaluation, evaluate, judged_queries, trec
from .scorers import load, reads_pairs
from .significance import LEVEL, aligned, difference, holm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..runs.plots import Verdict
    from .contenders import Contender
    from .scorers import Model
    from .significance import Difference

    Found = Evaluation | JudgedRowsResult
    Results = dict[tuple[str, str], Found]  # contender and data set

_SHOWN = {"retrieval": "nDCG@10", "similarity": "Spearman", "pairs": "AP", "reranking": "MAP"}


@dataclass(frozen=True, slots=True)
class _Data:
    """A test collection, or judged rows already read."""

    name: str
    path: Path
    rows: labelled.Pairs | labelled.Rankings | None


def compare(
    contenders: Sequence[str],
    data: Sequence[str | Path],
    *,
    modes: Sequence[str] = ("semantic",),
    baseline: str | None = None,
    measures: Sequence[str] = (),
    split: str = "test",
    rerank_depth: int = 50,
    indexes: str | Path | None = None,
    out: str | Path | None = None,
    picture: str | None = "svg",
    per_query: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Measure contenders on the same data, and test each difference to the baseline.

    :param contenders: "MODEL[@MODE][+RERANKER]" each, or "lexical" for BM25 alone: see `contenders`.
    :param data: test collections, and files of judged rows (see `labelled`).
    :param modes: of the models that name none; with several, each model stands once for each.
    :param baseline: the contender that others are compared to, as it is written; the first unless given.
    :param measures: those to compare; unless given one for each data set: nDCG@10, Spearman, AP or MAP.
    :param rerank_depth: how many passages a RERANKER reads.
    :param indexes: where to keep the indexes of collections for the next comparison; else they are made and removed.
    :param out: a folder for comparison.json and .txt, TREC runs, and plots.
    :param picture: "svg" or "png" for plots in `out`; None for none.
    :param per_query: keep the values of each query in comparison.json too.
    :raises InputError: before anything is measured, for whatever of this cannot be.
    """
    check_reranking(rerank_depth, None)
    parsed = contending.parse(contenders, modes)
    first = _baseline(parsed, baseline)
    sets = _read(data, split)
    columns = _columns(sets, measures)
    _check_models(parsed, collections=any(one.rows is None for one in sets))
    tell = progress or (lambda _: None)
    target = None if out is None else _prepared(Path(out), picture)
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        for one in sets:
            if one.rows is None:
                place = _Indexes(Path(indexes) if indexes else Path(temporary), one.path, parsed)
                results |= _on_collection(one, parsed, place, split, rerank_depth, target, tell)
    results |= _on_rows([one for one in sets if one.rows is not None], parsed, tell)
    found = _tested(parsed, first, columns, results)
    if target is not None:
        _write(found, target, picture, per_query=per_query)
    return found


def _baseline(parsed: Sequence[Contender], baseline: str | None) -> Contender:
    if baseline is None:
        return parsed[0]
    meant = [one for one in parsed if baseline in (one.name, one.written)]
    meant = meant or [one for one in parsed if baseline == one.model]
    if len(meant) != 1:
        names = ", ".join(one.name for one in parsed)
        raise InputError(f"the baseline {baseline!r} is not one of the contenders: expected one of {names}")
    return meant[0]


def _check_models(parsed: Sequence[Contender], *, collections: bool) -> None:
    """Raise what loading them would raise, as far as it is cheap to know."""
    for contender in parsed:
        if contender.reranker is not None:
            model_folder.find(contender.reranker, model_folder.RERANKER)
        if contender.model is not None and reads_pairs(model_folder.find(contender.model)) and collections:
            raise InputError(
                f"{contender.written} is a cross-encoder, which can only rerank what another finds: "
                f"write MODEL+{contender.model} or lexical+{contender.model}"
            )


def _read(data: Sequence[str | Path], split: str) -> list[_Data]:
    """The data sets, each checked or read whole, so that what is wrong with the last is told before the first."""
    if not data:
        raise InputError("a comparison needs data: test collections, or files of judged rows")
    paths = [Path(path).expanduser() for path in data]
    stems = [path.resolve().name if path.is_dir() else labelled.name_of(path) for path in paths]
    sets: list[_Data] = []
    for path, stem in zip(paths, stems, strict=True):
        name = stem if stems.count(stem) == 1 else str(path)
        if any(one.name == name for one in sets):
            raise InputError(f"{path} is given twice: expected different data")
        if path.is_dir():
            judged_queries(path, split, None, None)
        sets.append(_Data(name, path, None if path.is_dir() else labelled.read(path)))
    return sets


def _columns(sets: Sequence[_Data], measures: Sequence[str]) -> list[Column]:
    of_kind = {
        "retrieval": ("nDCG@10", "Recall@100", "MRR@10", "MAP"),
        "reranking": ("MAP", "MRR@10", "nDCG@10"),
        **{kind: tuple(of) for kind, of in similarity.MEASURES.items()},
    }
    known = {measure.lower(): measure for of in of_kind.values() for measure in of}
    for measure in measures:
        if measure.lower() not in known:
            raise InputError(f"there is no measure {measure!r}: expected one of {', '.join(known.values())}")
    asked = {known[measure.lower()]: None for measure in measures}
    unused = next((name for name in asked if not any(name in of_kind[_kind(one)] for one in sets)), None)
    if unused:
        raise InputError(f"{unused} is no measure of any of these data, which have {_listed(of_kind, sets)}")
    columns = []
    for one in sets:
        kind = _kind(one)
        chosen = [measure for measure in asked if measure in of_kind[kind]] or [_SHOWN[kind]]
        columns += [Column(one.name, measure) for measure in chosen]
    return columns


def _listed(of_kind: Mapping[str, Sequence[str]], sets: Sequence[_Data]) -> str:
    return ", ".join(dict.fromkeys(measure for one in sets for measure in of_kind[_kind(one)]))


def _kind(one: _Data) -> str:
    if one.rows is None:
        return "retrieval"
    return one.rows.kind if isinstance(one.rows, labelled.Pairs) else "reranking"


# Measuring


class _Indexes:
    """One index of a collection for each encoder, which serves all its modes; BM25 alone takes the first there is."""

    def __init__(self, root: Path, collection: Path, contenders: Sequence[Contender]) -> None:
        self._root = root
        self._collection = collection.resolve()
        self._any = next((one.model for one in contenders if one.model is not None), model_folder.DEFAULT_MODEL)

    def of(self, contender: Contender) -> tuple[Path, str]:
        """The index for a contender and the model that it is made with."""
        model = contender.model or self._any
        folder = model_folder.find(model)
        print_ = model_settings.fingerprint(folder, model_settings.ModelSettings.read(folder))
        place = hashlib.sha256(str(self._collection).encode()).hexdigest()[:8]
        return self._root / f"{_slug(self._collection.name)}-{place}-{print_[:12]}", model


def _on_collection(
    one: _Data,
    contenders: Sequence[Contender],
    indexes: _Indexes,
    split: str,
    rerank_depth: int,
    target: Path | None,
    tell: Callable[[str], None],
) -> Results:
    results: Results = {}
    for contender in contenders:
        tell(f"{contender.name} on {one.name}")
        index, model = indexes.of(contender)
        results[contender.name, one.name] = evaluate(
            one.path,
            mode=contender.mode,
            split=split,
            model=model,
            index=index,
            rerank=contender.reranker,
            rerank_depth=rerank_depth,
            run_file=None if target is None else target / f"{_slug(one.name)}.{_slug(contender.name)}.run",
            progress=within(tell, f"{contender.name} on {one.name}"),
        )
    return results


def _on_rows(sets: Sequence[_Data], contenders: Sequence[Contender], tell: Callable[[str], None]) -> Results:
    """Judged rows need no index: the encoder is the same in every mode that has one."""
    results: Results = {}
    for scorer in dict.fromkeys(map(_scorer, contenders)) if sets else ():
        if scorer is None:
            continue
        name, is_reranker = scorer
        model: Model = load_reranker(name) if is_reranker else load(name)
        for one in sets:
            tell(f"{name} on {one.name}")
            assert one.rows is not None
            found = evaluate_rows(one.rows, model)
            results |= {(who.name, one.name): found for who in contenders if _scorer(who) == scorer}
    return results


def _scorer(contender: Contender) -> tuple[str, bool] | None:
    """What gives pairs of texts their score, and whether it is a reranker; None where there is nothing."""
    if contender.reranker is not None:
        return contender.reranker, True
    return None if contender.mode == contending.BM25 or contender.model is None else (contender.model, False)


# Testing


def _tested(
    contenders: Sequence[Contender], baseline: Contender, columns: Sequence[Column], results: Results
) -> Comparison:
    cells: dict[tuple[str, Column], Cell | None] = {}
    for column in columns:
        found = {one.name: results.get((one.name, column.data)) for one in contenders}
        cells |= {(name, column): cell for name, cell in _column(column.measure, baseline.name, found).items()}
    modes = {one.mode for one in contenders}
    return Comparison(
        contenders=tuple(one.name for one in contenders),
        baseline=baseline.name,
        columns=tuple(columns),
        cells=cells,
        evaluations=results,
        mode=modes.pop() if len(modes) == 1 and any(isinstance(of, Evaluation) for of in results.values()) else None,
    )


def _column(measure: str, baseline: str, found: Mapping[str, Found | None]) -> dict[str, Cell | None]:
    """The cells of one column; p is corrected for the number of contenders that are tested in it."""
    base = found[baseline]
    gaps = {
        name: _difference(measure, other, base)
        for name, other in found.items()
        if other is not base and other is not None and base is not None  # one encoder is itself in every mode
    }
    tested = {name: gap for name, gap in gaps.items() if math.isfinite(gap.value)}
    corrected = dict(zip(tested, holm([gap.p for gap in tested.values()]), strict=True))
    cells: dict[str, Cell | None] = {}
    for name, one in found.items():
        if one is None:
            cells[name] = None
            continue
        verdict = _verdict(tested[name].value, corrected[name]) if name in tested else "same"
        low, high = one.intervals[measure]
        cells[name] = Cell(
            one.measures[measure],
            low,
            high,
            "baseline" if name == baseline else verdict,
            tested.get(name),
            corrected.get(name),
        )
    return cells


def _difference(measure: str, a: Found, b: Found) -> Difference:
    if a.per_query or isinstance(a, Evaluation):
        return difference(*aligned(a.per_query[measure], b.per_query[measure]))
    assert isinstance(b, JudgedRowsResult)
    return similarity.MEASURES[a.kind][measure].difference(a.scores, b.scores, a.gold)


def _verdict(value: float, p: float) -> Verdict:
    if p >= 1 - LEVEL:
        return "same"
    return "better" if value > 0 else "worse"


# Writing


def _prepared(out: Path, picture: str | None) -> Path:
    """The folder for what is written, made if there is none."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a folder to write the comparison into")
    out.mkdir(parents=True, exist_ok=True)
    if picture is not None:
        plots.check(out / f"comparison.{picture}")
    return out


def _write(found: Comparison, out: Path, picture: str | None, *, per_query: bool) -> None:
    (out / "comparison.json").write_text(json.dumps(found.as_dict(per_query=per_query), indent=1) + "\n", "utf-8")
    (out / "comparison.txt").write_text(found.text(), "utf-8")
    for (name, data), measured in found.evaluations.items():
        if isinstance(measured, JudgedRowsResult) and measured.run:
            lines = "".join(trec(measured.run, "reranking"))
            (out / f"{_slug(data)}.{_slug(name)}.run").write_text(lines, "utf-8")
    if picture is None:
        return
    if found.bars():
        plots.comparison(found.bars(), out / f"comparison.{picture}")
    for (name, data), scores in _distributions(found):
        plots.score_distributions(
            **scores, file=out / f"scores.{_slug(data)}.{_slug(name)}.{picture}", title=f"{name} on {data}"
        )


def _distributions(found: Comparison) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for key, measured in found.evaluations.items():
        if isinstance(measured, JudgedRowsResult) and measured.kind != "similarity":
            right = measured.gold > 0
            yield (
                key,
                {
                    "positives": measured.scores[right],
                    "negatives": measured.scores[~right],
                    "threshold": measured.thresholds.get("F1"),
                    "score": measured.score,
                },
            )


def _slug(name: str) -> str:
    return re.sub(r"[^\w.@+-]+", "-", name).strip("-.") or "data"
