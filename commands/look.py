"""`binocle look`: show the tokens, the attention and the vectors of texts in an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..core.errors import InputError
from .options import FilePath, json_option, print_note, text_argument
from .output import echo, echo_json

if TYPE_CHECKING:
    from pathlib import Path

    from ..retriever.inspection.heat_map import Matrix
    from ..retriever.inspection.token_states import Inspector, TokenStates
    from ..retriever.models.encoder import Kind

_SHADES = " ░▒▓█"
_STRONGEST = 10  # pairs of tokens that are printed
_WIDEST = 100  # tokens that a row of shades has room for
_VIEWS = ["tokens", "attention", "similarity", "layers", "masked", "word"]
_QUOTED = 30  # characters of a text in a note
_EPOCHS, _COUNTED = 3, 1_000  # of a masked text: printed, and counted


class _Options(NamedTuple):
    layer: int | None
    head: int | None
    word: str | None
    all_heads: bool  # whether a page shows them


class _View(NamedTuple):
    """A view to print as JSON or as lines, and perhaps to draw."""

    records: list[dict[str, Any]]
    lines: list[str]
    matrices: list[Matrix]
    note: str = ""  # how to read the values
    picture: str = ""  # an SVG; by default the heat map of the first matrix


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--show",
    type=click.Choice(_VIEWS[:-1]),
    help="Default: tokens of one TEXT, similarity of two, attention with --layer.",
)
@click.option("--layer", metavar="N", type=click.IntRange(min=0), help="Default: all for attention, last for --word.")
@click.option("--head", metavar="N", type=click.IntRange(min=1), help="Head of --layer. Default: the mean of all.")
@click.option("--word", metavar="WORD", help="Compare this word in each TEXT.")
@click.option(
    "--out",
    metavar="FILE",
    type=FilePath(dir_okay=False),
    help="Draw it too: .svg for a picture, .html for a page to move over.",
)
@click.option("--model", metavar="NAME", help="Encoder, reranker or masked language model. Default: all-MiniLM-L6-v2.")
@json_option
def look(
    texts: tuple[str, ...],
    show: str | None,
    layer: int | None,
    head: int | None,
    word: str | None,
    out: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Show the tokens, attention and vectors of each TEXT.

    Tokens: the pieces of the vocabulary, with [CLS] and [SEP]. Attention: how much each token takes from each, in one
    head, in the mean of a layer's heads, or rolled out over all layers; two TEXTs are read as one pair. Similarity: the
    share of each pair of tokens in the cosine of a query and a passage. Layers: [CLS] against the mean, layer by layer.
    Masked: what a masked language model reads of TEXT in training. The TEXT "-" is read from standard input.

    \b
    binocle look "tokenization of rare words"
    binocle look "cancel a task" "Call cancel() on the task."
    binocle look "cancel a task" "Call cancel() on the task." --show layers
    binocle look "The cat sat on the mat." --layer 1 --head 2 --out attention.html
    binocle look --word bank "a bank of the river" "the bank is due" "the client of a bank"
    """
    from ..retriever.inspection.token_states import Inspector
    from ..retriever.models.model_files import DEFAULT_MODEL

    texts = tuple(map(text_argument, texts))
    show = _chosen_view(texts, show, word, drawn=layer is not None or head is not None)
    _check_options(show, layer, head, out)
    page = out is not None and out.suffix == ".html"
    view = _VIEW_OF[show](Inspector.load(model or DEFAULT_MODEL), texts, _Options(layer, head, word, page))
    for record in view.records if as_json else ():
        echo_json(record)
    if not as_json:
        echo("\n".join(view.lines))
    if out is not None:
        _draw(out, f"{show} of {' and '.join(texts)}", view)


def _read_states(inspector: Inspector, text: str, pair: str | None = None, *, kind: Kind = "document") -> TokenStates:
    """Compute the states of a text, and note that it is truncated if it is."""
    states = inspector.read(text, pair, kind=kind)
    if states.truncated:
        print_note(
            f"binocle: the text {text[:_QUOTED]!r}… is longer than the encoder reads: only its first "
            f"{len(states.ids):,} tokens count"
        )
    return states


def _chosen_view(texts: tuple[str, ...], show: str | None, word: str | None, *, drawn: bool) -> str:
    """Return the view that the options name, or the view for this number of texts."""
    if word is not None:
        if show is not None:
            raise click.UsageError(f"--word is a view of its own: it does not go with --show {show}")
        return "word"
    show = show or ("attention" if drawn else "tokens" if len(texts) == 1 else "similarity")
    numbers = (1,) if show == "masked" else (2,) if show == "similarity" else (1, 2)
    if len(texts) not in numbers:
        expected = " or ".join(map(str, numbers))
        raise click.UsageError(f"{show} takes {expected} TEXT{'s' * (expected != '1')}, but {len(texts)} came")
    return show


def _check_options(show: str, layer: int | None, head: int | None, out: Path | None) -> None:
    if layer is not None and show not in ("attention", "word"):
        raise click.UsageError(f"--layer goes with attention or --word, not with {show}")
    if head is not None and show != "attention":
        raise click.UsageError(f"--head goes with attention, not with {show}")
    if out is not None and (out.suffix not in (".svg", ".html") or show in ("tokens", "layers", "masked")):
        raise click.UsageError(f"--out draws attention, similarity or words as .svg or .html, not {show} as {out.name}")


def _tokens(inspector: Inspector, texts: tuple[str, ...], _: _Options) -> _View:
    text = _read_states(inspector, *texts)
    rows = zip(text.pieces, text.ids, text.spans, text.word_numbers, strict=True)
    records = [
        {"position": position, "token": piece, "id": token, "start": start, "end": end, "word": word}
        for position, (piece, token, (start, end), word) in enumerate(rows)
    ]
    width = max(map(len, text.pieces))
    words = {positions[0]: word for word, positions in text.words()}
    lines = [
        f"{position:>3}  {piece:<{width}} {token:>6}  {words.get(position, '')}".rstrip()
        for position, (piece, token) in enumerate(zip(text.pieces, text.ids, strict=True))
    ]
    return _View(records, lines, [])


def _attention(inspector: Inspector, texts: tuple[str, ...], options: _Options) -> _View:
    from ..retriever.inspection.views import attention_matrices, attention_matrix

    text = _read_states(inspector, *texts)
    matrix = attention_matrix(text, options.layer, options.head)
    heads = attention_matrices(text) if options.all_heads else []
    note = "Move over a token. Rows take, columns give: how much of each token it takes, or gives to each."
    matrices = [matrix, *(head for head in heads if head.title != matrix.title)]
    return _View([_record(matrix)], [matrix.title, *_shades(matrix)], matrices, note)


def _shades(matrix: Matrix) -> list[str]:
    """Return a line for each row: its values as shades, and the column of the largest."""
    width = max(map(len, matrix.rows))
    largest = max(float(matrix.values.max()), 1e-12)
    lines = []
    for number, (name, values) in enumerate(zip(matrix.rows, matrix.values.tolist(), strict=True)):
        levels = (min(4, round(max(0.0, value) / largest * 4 + 0.25)) for value in values)
        shades = "".join(_SHADES[level] for level in levels) if len(values) <= _WIDEST else ""
        best = max(range(len(values)), key=values.__getitem__)
        lines.append(f"{number:>3}  {name:<{width}}  {shades}  {values[best]:.2f} from {best} {matrix.columns[best]}")
    return lines


def _similarity(inspector: Inspector, texts: tuple[str, ...], _: _Options) -> _View:
    from ..retriever.inspection.views import similarity_matrix

    query, passage = _read_states(inspector, texts[0], kind="query"), _read_states(inspector, texts[1])
    matrix = similarity_matrix(query, passage)
    shares = matrix.values
    lines = [f"cosine {shares.sum():.4f}, the sum over {shares.shape[0]} × {shares.shape[1]} pairs of tokens"]
    if query.pooling == ("cls",):
        lines.append("This encoder's vector is the state of [CLS] alone: the cosine is not a sum over other tokens.")
    pairs = [(share, row, column) for row, line in enumerate(shares.tolist()) for column, share in enumerate(line)]
    for share, row, column in sorted(pairs, reverse=True)[:_STRONGEST]:
        lines.append(f"{share:8.4f}  {matrix.rows[row]}  {matrix.columns[column]}")
    lines += ["by token of the query:", *_sums(matrix.rows, shares.sum(1))]
    note = (
        "Move over a token: its share in the cosine with each token of the other text. Shares add up to the cosine. "
        "A token stands for its state in its text, not for the word alone."
    )
    return _View([{"cosine": float(shares.sum()), **_record(matrix)}], lines, [matrix], note)


def _sums(names: tuple[str, ...], sums: Any) -> list[str]:
    return [f"{total:8.4f}  {name}" for name, total in zip(names, sums.tolist(), strict=True)]


def _layers(inspector: Inspector, texts: tuple[str, ...], _: _Options) -> _View:
    from ..retriever.inspection.views import layer_rows

    rows = layer_rows(*(_read_states(inspector, text) for text in texts))
    names = list(rows[0].values)
    lines = ["layer  " + "  ".join(names)]
    lines += [f"{row.layer:>5}  " + "  ".join(f"{row.values[name]:>{len(name)}.4f}" for name in names) for row in rows]
    return _View([{"layer": row.layer, **row.values} for row in rows], lines, [])


def _masked(inspector: Inspector, texts: tuple[str, ...], _: _Options) -> _View:
    from ..training.pretraining.data.masked_view import masked_epochs

    epochs = masked_epochs(_read_states(inspector, *texts), inspector.tokenizer, _COUNTED)
    lines = [" ".join(epoch.pieces) for epoch in epochs[:_EPOCHS]]
    total = sum(epoch.targets for epoch in epochs)
    shares = [sum(getattr(epoch, fate) for epoch in epochs) / total for fate in ("masked", "replaced", "unchanged")]
    masked, replaced, unchanged = shares
    lines.append(
        f"{total / len(epochs):.1f} tokens are chosen in an epoch; in {len(epochs):,} epochs {masked:.0%} become "
        f"[MASK], {replaced:.0%} another token, and {unchanged:.0%} stay"
    )
    shown = {"masked": masked, "replaced": replaced, "unchanged": unchanged, "chosen": total / len(epochs)}
    return _View([shown], lines, [])


def _word(inspector: Inspector, texts: tuple[str, ...], options: _Options) -> _View:
    from ..retriever.inspection.plane import plane_map
    from ..retriever.inspection.views import word_matrix
    from ..retriever.inspection.word_contexts import word_contexts

    layer = -1 if options.layer is None else options.layer
    contexts = word_contexts([_read_states(inspector, text) for text in texts], options.word or "", layer)
    matrix, plane = word_matrix(contexts), contexts.plane()
    width = max(map(len, contexts.labels))
    lines = [
        f"{label:<{width}}  {'  '.join(f'{value:5.2f}' for value in row)}"
        for label, row in zip(contexts.labels, matrix.values.tolist(), strict=True)
    ]
    record = {**_record(matrix), "plane": plane.round(5).tolist()}
    note = "Move over an occurrence: its cosine to each other."
    picture = plane_map(f"{options.word} in {len(contexts.labels)} contexts, by two components", contexts.labels, plane)
    return _View([record], lines, [matrix], note, picture)


_VIEW_OF = dict(zip(_VIEWS, (_tokens, _attention, _similarity, _layers, _masked, _word), strict=True))


def _record(matrix: Matrix) -> dict[str, Any]:
    return {
        "title": matrix.title,
        "rows": list(matrix.rows),
        "columns": list(matrix.columns),
        "values": matrix.values.astype(float).round(7).tolist(),
    }


def _draw(out: Path, title: str, view: _View) -> None:
    from ..retriever.inspection.heat_map import heat_map
    from ..retriever.inspection.matrix_page import page

    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}")
    if out.suffix == ".html":
        out.write_text(page(title, view.note, view.matrices), "utf-8")
    else:
        out.write_text(view.picture or heat_map(view.matrices[0]), "utf-8")
