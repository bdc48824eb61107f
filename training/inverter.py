"""Train an inverter: what an encoder's hidden states, or its vectors, give away of the texts behind them."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..indexes.errors import BinocleError, InputError
from ..indexes.metric import normalized
from ..retriever import encoder as encoders
from ..retriever.encoder_tokens import EncoderTokens
from ..retriever.inverter import WEIGHTS, About, EmbeddingInverter, bag_of, proposing_with
from ..retriever.model_folder import DEFAULT_MODEL
from ..retriever.states import States, transformer_folder
from ..retriever.text_decoder import TextDecoderSettings, settings_of, text_decoder
from ..retriever.token_decoder import TokenDecoderSettings
from . import inversion_rows, limits, loop, pretraining_rows, significance
from .card import Card
from .checkpoints import last_checkpoint
from .inversion_rows import Stretches
from .learning import Learned, Plan, learn
from .overlaps import Known
from .pretraining_rows import parted
from .progress import counted
from .run import RunFolder, check_out
from .text_inversion import BagInversion, TextInversion, Texts
from .texts import check as check_texts
from .texts import documents
from .token_inversion import TokenInversion
from .tokenized import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..retriever.correction import Corrected
    from ..retriever.encoder import Encoder
    from .progress import Progress, Tell

    Floats = NDArray[np.float32]

KINDS = ("embedding", "hidden")
_LENGTHS = {"embedding": 32, "hidden": 126}  # tokens of a text, unless told
_BAG = 0.5  # share of the time that the bag has, at most
_PASSES = 2.0  # over the texts that it makes, at most: with more it learns them by heart, and others the less
_FEW = 200_000  # texts that it learns from in any case, however often it meets each
_JUDGED = 64  # held-out texts that recovery is measured on
_CONTROLS = 24  # vectors of no text that the threshold is taken from
_CONTROL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class InverterConfig:
    """Settings of a run."""

    kind: str = "embedding"  # what is inverted: "embedding" or "hidden"
    decoder: str = "transformer"  # of hidden states: linear, lstm or transformer
    layers: int | None = None  # of an LSTM (1) or a Transformer (4) that reads hidden states
    bidirectional: bool = True
    layer: int | None = None  # whose states are read; the last unless given
    masked: float = 0.0  # share of the states that the decoder must do without
    max_length: int | None = None  # tokens of a text: 32 for embeddings, 126 for hidden states
    texts: int = 200_000  # stretches of documents to learn from, at most
    minutes: float = 30.0  # of learning
    steps: int | None = None  # instead of minutes
    batch_size: int | None = None  # texts: 128 for embeddings, 32 for hidden states
    learning_rate: float | None = None  # 5e-4 for embeddings and a Transformer, 1e-3 for other decoders
    bf16: bool | None = None  # None: where the hardware has it
    held_out: float = 0.02  # share of the documents
    evaluations: int = 4
    seed: int = 0

    def check(self) -> None:
        """:raises InputError: for the first setting that cannot be."""
        if self.kind not in KINDS:
            raise InputError(f"there is no kind {self.kind!r}: expected one of {', '.join(KINDS)}")
        TokenDecoderSettings(kind=self.decoder, layers=self.depth).check()
        limits.above_0(self, "minutes", "steps", "batch_size", "learning_rate", "evaluations", "texts", "held_out")
        limits.share(self, "held_out", "masked")
        limits.seed(self)
        if self.max_length is not None and self.max_length < inversion_rows.SHORTEST:
            raise InputError(f"max length is in tokens, at least {inversion_rows.SHORTEST}, not {self.max_length}")
        self._check_uses()

    def _check_uses(self) -> None:
        if self.kind == "embedding":
            states = ("decoder", "layers", "layer", "bidirectional", "masked")
            limits.left_out(self, states, "of hidden states: leave it out, or give --from hidden")
            return
        limits.left_out(self, ("texts",), "of embeddings: leave it out, or give --from embedding")
        if self.decoder == "linear":
            limits.left_out(self, ("layers",), "of an LSTM or a Transformer: leave it out, or take such a decoder")
        if self.decoder != "lstm":
            limits.left_out(self, ("bidirectional",), "of an LSTM: leave it out, or take that decoder")

    @property
    def depth(self) -> int:
        """Layers of an LSTM or a Transformer."""
        return (4 if self.decoder == "transformer" else 1) if self.layers is None else self.layers

    @property
    def length(self) -> int:
        return self.max_length or _LENGTHS[self.kind]


@dataclass(slots=True)
class TrainedInverter:
    """What a run made."""

    folder: str
    kind: str
    encoder: str
    counts: dict[str, int]
    steps: int
    seconds: float
    texts_per_second: float
    measures: list[dict[str, Any]]  # name, value, interval, rows
    threshold: float = 0.0
    resumed_from: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "history"}


def train_inverter(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    encoder: str | None = None,
    config: InverterConfig | None = None,
    column: str | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> TrainedInverter:
    """Train an inverter on texts and write its folder, which `EmbeddingInverter` or `StateInverter` loads.

    Killed, the same call goes on from its last checkpoint and takes the steps that it would have taken.

    :param texts: one or more of what `texts.documents` reads.
    :param encoder: by folder or name; all-MiniLM-L6-v2 unless given.
    :raises InputError: before the first step, for texts or settings that do not fit.
    """
    loop.require("training an inverter")
    config = config or InverterConfig()
    config.check()
    sources = [texts] if isinstance(texts, (str, Path)) else list(texts)
    if not sources:
        raise InputError("expected texts: a folder, a file or an index")
    check_texts(sources, column)
    check_out(Path(out), "inverter")
    name = encoder or DEFAULT_MODEL
    loaded = encoders.load(name)
    asked = {
        "texts": list(map(str, sources)),
        "encoder": name,
        "fingerprint": loaded.fingerprint,
        "column": column,
        "config": asdict(config),
    }
    run = RunFolder(Path(out), asked, kind="inverter")
    run.open()
    loop.silence()
    tell = tell or (lambda _: None)
    session = (_Embedding if config.kind == "embedding" else _Hidden)(run, loaded, config, progress, tell)
    try:
        session.read(lambda: parted(documents(sources, column, tell), config.held_out, seed=config.seed, needed=True))
    except BinocleError:
        run.forget()
        raise
    return session.train()


class _Session:
    """One run: its encoder, what is read for it, what is learned and measured."""

    def __init__(
        self, run: RunFolder, encoder: Encoder, config: InverterConfig, progress: Progress | None, tell: Tell
    ) -> None:
        self.run, self.encoder, self.config, self.progress, self.tell = run, encoder, config, progress, tell
        self.rows = run.folder / "rows"
        self.counts: dict[str, int] = {}
        self.bf16 = loop.bf16(config)

    def plan(self, share: float, rate: float, batch: int, rows: int) -> Plan:
        config = self.config
        return Plan(
            learning_rate=config.learning_rate or rate,
            batch_size=batch,
            steps=None if config.steps is None else max(1, round(config.steps * share)),
            seconds=60 * config.minutes * share,
            seed=config.seed,
            bf16=self.bf16,
            evaluations=config.evaluations,
            rows=rows,
        )

    def finish(self, module: Any, about: About, learned: Learned, measures: list[dict[str, Any]]) -> TrainedInverter:
        """Write the folder, and put it in the run's place."""
        from safetensors.torch import save_model

        ready = self.run.ready
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir()
        save_model(module.cpu(), str(ready / WEIGHTS))
        about.write(ready)
        made = TrainedInverter(
            folder=str(self.run.out),
            kind=self.config.kind,
            encoder=about.encoder,
            counts=self.counts,
            steps=learned.steps,
            seconds=learned.seconds,
            texts_per_second=learned.texts_per_second,
            measures=measures,
            threshold=about.threshold,
            resumed_from=learned.resumed_from,
            history=learned.history,
        )
        metric = next((name[5:] for row in learned.history for name in row if name.startswith("eval_")), None)
        self.run.finish(self._card(made), learned.history, metric)
        return made

    def _card(self, made: TrainedInverter) -> Card:
        what = {
            "embedding": "masked diffusion from the vector of a text (arXiv:2406.07524, corrected as in 2310.06816)",
            "hidden": f"{self.config.decoder} decoder of hidden states (arXiv:2109.10104)",
        }
        return Card(
            kind="inverter",
            base=made.encoder,
            objective=what[made.kind],
            data=dict(made.counts),
            config=asdict(self.config),
            measures=made.measures,
            seconds=made.seconds,
            steps=made.steps,
            texts_per_second=made.texts_per_second,
            fingerprint=self.encoder.fingerprint,
            device=loop.device(),
            bf16=self.bf16,
        )


class _Hidden(_Session):
    """From hidden states."""

    def read(self, texts: Callable[[], Any]) -> None:
        self.states = States(self.run.asked["encoder"], device=loop.device(), half=self.bf16)
        self.layer = self.states.check_layer(self.config.layer)
        self.tell("reading and tokenizing the texts")
        room = min(self.config.length, self.states.room)
        counts = pretraining_rows.prepare(texts(), self.rows, self.states.tokenizer, room=room)
        if not counts.rows or not counts.held_out_rows:
            raise InputError("the texts hold too few words to learn from and to hold some out: expected more documents")
        self.counts = {name: value for name, value in counts.as_dict().items() if name != "pairs"}
        self.train_rows, self.held_out = Rows(self.rows / "train.arrow"), Rows(self.rows / "held_out.arrow")

    def train(self) -> TrainedInverter:
        config, words = self.config, self.states.words
        settings = TokenDecoderSettings(
            config.decoder,
            self.states.width,
            len(words),
            words.shape[1],
            config.depth,
            config.bidirectional,
            **_like(self.states.model.config),
        )
        batch = config.batch_size or 32
        inversion = TokenInversion(
            self.states,
            settings,
            self.train_rows,
            layer=self.layer,
            batch_size=batch,
            masked=config.masked,
            seed=config.seed,
        )
        if last_checkpoint(self.run.checkpoints) is None:
            self.tell("fitting the linear part")
            inversion.begin()
        learned = learn(
            inversion.decoder,
            inversion.loss,
            self.plan(1.0, 5e-4 if config.decoder == "transformer" else 1e-3, batch, len(self.train_rows)),
            folder=self.run.checkpoints,
            measure=lambda: inversion.accuracy(self.held_out, most=50),
            progress=self.progress,
        )
        self.tell("measuring on held-out texts")
        measures = [_row("token accuracy", [right.mean() for right in inversion.right(self.held_out, most=400)])]
        if config.masked and (right := inversion.right(self.held_out, most=400, masked=config.masked)):
            measures.append(_row("token accuracy, masked states", [one.mean() for one in right]))
        about = About(
            "hidden", self.encoder.name, self.encoder.fingerprint, settings.width, asdict(settings), self.layer
        )
        return self.finish(inversion.decoder, about, learned, measures)


def _like(config: Any) -> dict[str, int]:
    """The sizes of a BERT's layers, for a Transformer that can begin as they are."""
    if config.model_type != "bert":
        return {}
    return {"heads": config.num_attention_heads, "inner": config.intermediate_size}


class _Embedding(_Session):
    """From the vectors of texts."""

    def read(self, texts: Callable[[], Any]) -> None:
        self.tokens = EncoderTokens(self.encoder)
        self.tell("cutting the documents and encoding the stretches")
        counts = inversion_rows.prepare(
            texts(),
            self.rows,
            self.encoder,
            self.tokens,
            longest=min(self.config.length, self.encoder.max_tokens),
            most=self.config.texts,
            seed=self.config.seed,
        )
        if not counts.rows or not counts.held_out_rows:
            raise InputError("the texts hold too few words to learn from and to hold some out: expected more documents")
        self.counts = asdict(counts)
        self.train_rows = Stretches.read(self.rows, "train", self.encoder.dim)
        self.held_out = Stretches.read(self.rows, "held_out", self.encoder.dim)

    def train(self) -> TrainedInverter:
        config = self.config
        decoder = begin(self.encoder, self.tokens, config.length, config.seed).to(loop.device())
        rows = self.train_rows
        texts = Texts(rows.tokens, rows.tokens.lengths, rows.vectors, config.length, device=loop.device())
        words = None
        if last_checkpoint(self.run.checkpoints / "bag") is None:
            self.tell("encoding the vocabulary")
            words = alone(self.encoder, self.tokens, decoder.settings.vocabulary, self.tell)
        learned = learn_text(
            decoder,
            texts,
            self.tokens,
            self.plan,
            words=words,
            batch_size=config.batch_size or 128,
            seed=config.seed,
            folder=self.run.checkpoints,
            progress=self.progress,
            tell=self.tell,
        )
        about = About(
            "embedding",
            self.encoder.name,
            self.encoder.fingerprint,
            self.encoder.dim,
            asdict(decoder.settings),
        )
        self.tell("comparing held-out texts with those learned from")
        inverter = EmbeddingInverter(
            about, proposing_with(decoder, self.tokens, half=self.bf16), self.encoder, self.tokens
        )
        measures, own = self._measures(inverter)
        about = with_threshold(about, inverter, self.held_out.vectors, own, config.seed, self.tell)
        return self.finish(decoder, about, learned, measures)

    def _apart(self) -> NDArray[np.int64]:
        """Numbers of held-out stretches, from all over them, of which most does not stand in what was learned from."""
        known = Known(self.train_rows.tokens[number].tokens for number in range(len(self.train_rows)))
        tried = np.unique(np.linspace(0, len(self.held_out) - 1, min(4 * _JUDGED, len(self.held_out))).astype(np.int64))
        apart = [number for number in tried.tolist() if not known.holds(self.held_out.tokens[number].tokens)]
        if not apart:
            self.tell("all held-out texts stand for the most part in those that were learned from")
            apart = tried.tolist()
        return np.array(apart)[np.unique(np.linspace(0, len(apart) - 1, min(_JUDGED, len(apart))).astype(np.int64))]

    def _measures(self, inverter: EmbeddingInverter) -> tuple[list[dict[str, Any]], list[float]]:
        """Recovery of held-out texts, and the cosines of what was recovered."""
        from .recovered import overlap

        chosen = self._apart()
        true = [self.held_out.tokens[int(number)].tokens.tolist() for number in chosen]
        vectors = inverter.check(self.held_out.vectors[chosen])
        shares, counts = inverter.proposing.bag(vectors)
        bags = [[token for token, _ in bag_of(*one, 0.2)] for one in zip(shares, counts.tolist(), strict=True)]
        proposals = inverter.proposals(vectors)
        proposed = [inverter.nearest(*one) for one in zip(vectors, proposals, strict=True)]
        corrected = _corrected(inverter, vectors, "held-out texts", self.tell)
        rows = [
            _row("token F1, bag", [overlap(*both)[2] for both in zip(true, bags, strict=True)]),
            _row("token F1, proposed text", [overlap(t, p.ids)[2] for t, p in zip(true, proposed, strict=True)]),
            _row("token F1, corrected 1 s", [overlap(t, c.ids)[2] for t, c in zip(true, corrected, strict=True)]),
            _row("cosine, corrected 1 s", [one.cosine for one in corrected]),
        ]
        return rows, [one.cosine for one in corrected]


def begin(encoder: Encoder, tokens: EncoderTokens, longest: int, seed: int) -> Any:
    """An untrained `TextDecoder` for an encoder: a copy of its lower layers where it is a BERT."""
    import torch

    torch.manual_seed(seed)
    bert = _bert(getattr(encoder, "base", encoder).name)
    if bert is None:
        return text_decoder(TextDecoderSettings(encoder.dim, tokens.size, longest))
    sizes = settings_of(bert.config, encoder.dim, longest)
    sizes = TextDecoderSettings(**{**asdict(sizes), "vocabulary": max(sizes.vocabulary, tokens.size)})
    return text_decoder(sizes, bert)


def _bert(name: str) -> Any:
    """transformers' BertModel of an encoder, or None where it is another kind of model."""
    from transformers import BertModel

    from ..retriever.model_folder import find
    from ..retriever.model_settings import config
    from ..retriever.torch_encoder import quiet

    folder = transformer_folder(find(name))
    if config(folder).get("model_type") != "bert" or not (folder / "model.safetensors").is_file():
        return None
    with quiet():
        found: Any = BertModel.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    return found.float()


def alone(encoder: Encoder, tokens: EncoderTokens, vocabulary: int, tell: Tell = lambda _: None) -> Floats:
    """The vectors that the encoder gives each token of its vocabulary alone (vocabulary, dim), of length 1."""
    found = np.zeros((vocabulary, encoder.dim), np.float32)
    names = [(token, tokens.text([token]).removeprefix("##")) for token in range(min(vocabulary, tokens.size))]
    named = [(token, name) for token, name in names if name.strip()]
    for start in counted(range(0, len(named), 4_096), tell, f"encoding {len(named):,} words"):
        some = named[start : start + 4_096]
        found[[token for token, _ in some]] = normalized(encoder.encode([name for _, name in some]))
    return found


def learn_text(
    decoder: Any,
    texts: Texts,
    tokens: EncoderTokens,
    plan: Callable[[float, float, int, int], Plan],
    *,
    words: Floats | None = None,
    batch_size: int = 128,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> Learned:
    """Teach a `TextDecoder` its bag, then its texts.

    :param plan: what to plan for a share of the time: (share, learning rate, batch size, rows).
    :param words: the vectors of tokens alone (vocabulary, dim), for a decoder that has learned nothing yet.
    """
    tell = tell or (lambda _: None)
    bag = BagInversion(decoder, texts, batch_size=4 * batch_size, seed=seed)
    places = (folder / "bag", folder / "text") if folder else (None, None)
    if words is not None:
        bag.begin(words)
    tell("learning which words a vector holds")
    planned = replace(plan(_BAG, 1e-3, 4 * batch_size, len(texts)), passes=max(_PASSES, _FEW / len(texts)))
    first = learn(decoder.bag, bag.loss, planned, folder=places[0], progress=progress)
    spent = _BAG
    if planned.steps is None and planned.seconds:  # the text has what the bag left of its time
        spent *= min(1.0, first.seconds / planned.seconds)
    decoder.bag.requires_grad_(requires_grad=False)
    tell("learning to put them into texts")
    inversion = TextInversion(decoder, texts, tokens.special, batch_size=batch_size, seed=seed)
    rest = plan(1 - spent, 5e-4, batch_size, len(texts))
    made = learn(decoder, inversion.loss, rest, folder=places[1], progress=progress)
    decoder.bag.requires_grad_(requires_grad=True)
    made.resumed_from = first.resumed_from if made.resumed_from is None else first.steps + made.resumed_from
    made.seconds += first.seconds
    made.steps += first.steps
    return made


def with_threshold(
    about: About,
    inverter: EmbeddingInverter,
    vectors: Floats,
    own: Sequence[float],
    seed: int,
    tell: Tell = lambda _: None,
) -> About:
    """The cosine from which a text counts as recovered: between what texts reach and what vectors of no text do.

    These are random directions, and the held-out vectors with their dimensions in another order, as another encoder's
    are.
    """
    random = np.random.default_rng(seed)
    some = np.asarray(vectors[: _CONTROLS // 2], np.float32)[:, random.permutation(about.dim)]
    none = np.concatenate([random.standard_normal((_CONTROLS - len(some), about.dim)).astype(np.float32), some])
    reached = [one.cosine for one in _corrected(inverter, inverter.check(none), "vectors of no text", tell)]
    low, high = float(np.quantile(own, 0.05)), float(max(reached))
    threshold = (low + high) / 2 if low > high else high
    control = {"texts, 5th percentile": round(low, 4), "no texts, highest": round(high, 4)}
    return About(**{**asdict(about), "threshold": round(threshold, 4), "control": control})


def _corrected(inverter: EmbeddingInverter, vectors: Floats, what: str, tell: Tell) -> list[Corrected]:
    """The nearest texts that are found in a second each."""
    told = f"correcting {len(vectors)} {what} for {_CONTROL_SECONDS:g} s each"
    tell(told)
    return [inverter.corrected(vector, _CONTROL_SECONDS) for vector in counted(vectors, tell, told)]


def _row(name: str, values: Sequence[float]) -> dict[str, Any]:
    low, high = significance.interval(values)
    return {
        "name": name,
        "value": round(float(np.mean(values)), 4),
        "interval": [round(low, 4), round(high, 4)],
        "rows": len(values),
    }
