"""Train an inverter: what an encoder's hidden states, or its vectors, give away of the texts behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import checks as limits
from ...core.errors import BinocleError, InputError
from ...retriever.inversion.hidden_states import HiddenStates
from ...retriever.inversion.inverter import WEIGHTS, EmbeddingInverter, InverterInfo, proposing_with
from ...retriever.inversion.token_decoder import TokenDecoderSettings
from ...retriever.models.files import DEFAULT_MODEL
from ...retriever.models.load import load_encoder
from ...retriever.models.token_ids import EncoderTokens
from ..data.texts import check as check_texts
from ..data.texts import documents
from ..data.tokenized import Rows
from ..pretraining import rows as pretraining_rows
from ..pretraining.rows import parted
from ..runs import environment
from ..runs.checkpoints import last_checkpoint
from ..runs.loop import Schedule, run_loop
from ..runs.progress import lines
from ..runs.run_folder import check_out
from ..runs.training_run import TrainingRun
from . import rows as inversion_rows
from .evaluation import measured, recovery, with_threshold
from .rows import TokenSpans
from .text import Texts, alone, begin, learn_text
from .tokens import TokenInversion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.progress import OnProgress, Progress
    from ...retriever.models.encoder import Encoder
    from ..runs.model_card import Card
    from ..runs.progress import Tell
    from ..runs.training_run import LoopResult

KINDS = ("embedding", "hidden")
_LENGTHS = {"embedding": 32, "hidden": 126}  # tokens of a text, unless told


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
    progress: OnProgress | None = None,
    tell: Tell | None = None,
) -> TrainedInverter:
    """Train an inverter on texts and write its folder, which `EmbeddingInverter` or `StateInverter` loads.

    Killed, the same call goes on from its last checkpoint and takes the steps that it would have taken.

    :param texts: one or more of what `texts.documents` reads.
    :param encoder: by folder or name; all-MiniLM-L6-v2 unless given.
    :raises InputError: before the first step, for texts or settings that do not fit.
    """
    environment.require("training an inverter")
    config = config or InverterConfig()
    config.check()
    sources = [texts] if isinstance(texts, (str, Path)) else list(texts)
    if not sources:
        raise InputError("expected texts: a folder, a file or an index")
    check_texts(sources, column)
    check_out(Path(out), "inverter")
    name = encoder or DEFAULT_MODEL
    loaded = load_encoder(name)
    run = TrainingRun(out, name, config, progress)
    run.open({"texts": list(map(str, sources)), "fingerprint": loaded.fingerprint, "column": column}, kind="inverter")
    environment.silence()
    tell = tell or lines(run.progress)
    session = (_Embedding if config.kind == "embedding" else _Hidden)(run, loaded, tell)

    def on_progress(event: Progress) -> None:
        tell(event.message or event.stage)

    try:
        session.read(
            lambda: parted(documents(sources, column, on_progress), config.held_out, seed=config.seed, needed=True)
        )
    except BinocleError:
        run.discard()
        raise
    return session.train()


class _Session:
    """One run: its encoder, what is read for it, what is learned and measured."""

    def __init__(self, run: TrainingRun[InverterConfig], encoder: Encoder, tell: Tell) -> None:
        self.run, self.encoder, self.config, self.tell = run, encoder, run.config, tell
        self.rows = run.folder / "rows"
        self.counts: dict[str, int] = {}
        self.bf16 = run.bf16

    def plan(self, share: float, rate: float, batch: int, rows: int) -> Schedule:
        config = self.config
        return Schedule(
            learning_rate=config.learning_rate or rate,
            batch_size=batch,
            steps=None if config.steps is None else max(1, round(config.steps * share)),
            seconds=60 * config.minutes * share,
            seed=config.seed,
            bf16=self.bf16,
            evaluations=config.evaluations,
            rows=rows,
        )

    def finish(
        self, module: Any, about: InverterInfo, learned: LoopResult, measures: list[dict[str, Any]]
    ) -> TrainedInverter:
        """Write the folder, and put it in the run's place."""
        from safetensors.torch import save_model

        ready = self.run.new_model_folder()
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
        self.run.finish(self._card(made, learned), learned.history, metric)
        return made

    def _card(self, made: TrainedInverter, learned: LoopResult) -> Card:
        what = {
            "embedding": "masked diffusion from the vector of a text (arXiv:2406.07524, corrected as in 2310.06816)",
            "hidden": f"{self.config.decoder} decoder of hidden states (arXiv:2109.10104)",
        }
        card = self.run.card(
            kind="inverter",
            objective=what[made.kind],
            data=dict(made.counts),
            measures=made.measures,
            loop=learned,
            fingerprint=self.encoder.fingerprint,
        )
        return replace(card, base=made.encoder)


class _Hidden(_Session):
    """From hidden states."""

    def read(self, texts: Callable[[], Any]) -> None:
        self.states = HiddenStates(self.run.base, device=environment.device(), half=self.bf16)
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
        learned = run_loop(
            inversion.decoder,
            inversion.loss,
            self.plan(1.0, 5e-4 if config.decoder == "transformer" else 1e-3, batch, len(self.train_rows)),
            folder=self.run.checkpoints,
            measure=lambda: inversion.accuracy(self.held_out, most=50),
            progress=self.run.progress,
        )
        self.tell("measuring on held-out texts")
        measures = [measured("token accuracy", [right.mean() for right in inversion.right(self.held_out, most=400)])]
        if config.masked and (right := inversion.right(self.held_out, most=400, masked=config.masked)):
            measures.append(measured("token accuracy, masked states", [one.mean() for one in right]))
        about = InverterInfo(
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
        self.train_rows = TokenSpans.read(self.rows, "train", self.encoder.dim)
        self.held_out = TokenSpans.read(self.rows, "held_out", self.encoder.dim)

    def train(self) -> TrainedInverter:
        config = self.config
        decoder = begin(self.encoder, self.tokens, config.length, config.seed).to(environment.device())
        rows = self.train_rows
        texts = Texts(rows.tokens, rows.tokens.lengths, rows.vectors, config.length, device=environment.device())
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
            progress=self.run.progress,
            tell=self.tell,
        )
        about = InverterInfo(
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
        measures, own = recovery(inverter, self.train_rows, self.held_out, self.tell)
        about = with_threshold(about, inverter, self.held_out.vectors, own, config.seed, self.tell)
        return self.finish(decoder, about, learned, measures)
