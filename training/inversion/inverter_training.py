"""Train an inverter of hidden states, or of vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...retriever.inversion.decoders.decoder_settings import TokenDecoderSettings
from ...retriever.inversion.decoders.decoder_weights import save_weights
from ...retriever.inversion.hidden_states import HiddenStates
from ...retriever.inversion.inverter import EmbeddingInverter
from ...retriever.inversion.inverter_info import InverterInfo
from ...retriever.inversion.proposals import TokenProposer
from ...retriever.inversion.text_shape import TextShape
from ...retriever.models.tokens.token_ids import EncoderTokens
from ..data.tokenized import TokenRows
from ..pretraining.data import token_rows as pretraining_rows
from ..runs import environment
from ..runs.checkpoints import last_checkpoint
from ..runs.loop import Schedule, run_loop
from ..runs.trainers import trackers
from . import rows as inversion_rows
from .evaluation import measure_recovery, summarize, with_threshold
from .result import TrainedInverter
from .rows import TokenSpans
from .text import train_decoder
from .text_batches import TextBatches
from .token_calibration import calibrate
from .tokens import TokenInversion
from .untrained_decoder import new_decoder, token_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from ...retriever.models.encoder import Encoder
    from ..runs.model_card import Card
    from ..runs.training_run import LoopResult, TrainingRun
    from .config import InverterConfig

_CALIBRATED = 64  # held-out texts that the temperature is fitted on
_SHAPED = 20_000  # texts that the shape of their vectors is measured on
_TOO_SHORT = "the texts hold too few words to learn from and to hold some out: expected more documents"


class InverterTraining(ABC):
    """The training of one inverter: read the texts, train a decoder, measure it and write the folder."""

    def __init__(self, run: TrainingRun[InverterConfig], encoder: Encoder) -> None:
        self.run, self.encoder, self.config = run, encoder, run.config
        self.rows_folder = run.folder / "rows"
        self.counts: dict[str, int] = {}

    @abstractmethod
    def read(self, texts: Iterable[tuple[str, bool]]) -> None:
        """Tokenize the texts, and write rows to train on and rows held out.

        :param texts: each text with whether it is held out.
        :raises InputError: for too few texts.
        """

    @abstractmethod
    def train(self) -> TrainedInverter:
        """Train on the rows that `read` wrote, measure on the others, and write the inverter's folder."""

    def schedule(self, share: float, rate: float, batch: int, rows: int) -> Schedule:
        """The schedule of a part that has this share of the run's time or steps."""
        config = self.config
        return Schedule(
            learning_rate=config.learning_rate or rate,
            batch_size=batch,
            steps=None if config.steps is None else max(1, round(config.steps * share)),
            seconds=60 * config.minutes * share,
            seed=config.seed,
            bf16=self.run.bf16,
            evaluations=config.evaluations,
            rows=rows,
        )

    def finish(
        self,
        decoder: nn.Module,
        info: InverterInfo,
        loop: LoopResult,
        measures: list[dict[str, Any]],
        shape: TextShape | None = None,
    ) -> TrainedInverter:
        """Write the inverter's folder, and move it to where the run was."""
        folder = self.run.new_model_folder()
        folder.mkdir()
        save_weights(folder, decoder)
        info.write(folder)
        if shape:
            shape.write(folder)
        result = TrainedInverter(
            folder=str(self.run.out),
            kind=self.config.kind,
            encoder=info.encoder,
            counts=self.counts,
            steps=loop.steps,
            seconds=loop.seconds,
            texts_per_second=loop.texts_per_second,
            measures=measures,
            threshold=info.threshold,
            resumed_from=loop.resumed_from,
            history=loop.history,
        )
        metric = next((name[5:] for row in loop.history for name in row if name.startswith("eval_")), None)
        self.run.finish(self._card(result, loop), loop.history, metric)
        return result

    def _card(self, result: TrainedInverter, loop: LoopResult) -> Card:
        objectives = {
            "embedding": "masked diffusion from the vector of a text (arXiv:2406.07524, corrected as in 2310.06816)",
            "hidden": f"{self.config.decoder} decoder of hidden states (arXiv:2109.10104)",
        }
        card = self.run.card(
            "inverter",
            objectives[result.kind],
            dict(result.counts),
            result.measures,
            loop,
            self.encoder.fingerprint,
        )
        return replace(card, base=result.encoder)


class StateInverterTraining(InverterTraining):
    """Train an inverter of hidden states."""

    def read(self, texts: Iterable[tuple[str, bool]]) -> None:
        """Load the transformer, check the layer and tokenize; a killed run's rows are used again."""
        self.states = HiddenStates.load(self.run.base, device=environment.device(), half=self.run.bf16)
        self.layer = self.states.check_layer(self.config.layer)
        self.run.report("reading and tokenizing the texts")
        room = min(self.config.length, self.states.room)
        counts = pretraining_rows.prepare(texts, self.rows_folder, self.states.tokenizer, room=room)
        if not counts.rows or not counts.held_out_rows:
            raise InputError(_TOO_SHORT)
        self.counts = {name: value for name, value in counts.as_dict().items() if name != "pairs"}
        self.train_rows = TokenRows(self.rows_folder / "train.arrow")
        self.held_out = TokenRows(self.rows_folder / "held_out.arrow")

    def train(self) -> TrainedInverter:
        """Fit the linear part in a new run, train by steps, then measure the accuracy of tokens."""
        config = self.config
        settings = self._settings()
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
            self.run.report("fitting the linear part")
            inversion.begin()
        result = self._take_steps(inversion, batch)
        self.run.report("measuring on held-out texts")
        temperature, measures = self._measure(inversion)
        masked_temperature, masked_measures = self._measure(inversion, config.masked) if config.masked else (1.0, [])
        info = InverterInfo(
            "hidden",
            self.encoder.name,
            self.encoder.fingerprint,
            settings.width,
            asdict(settings),
            self.layer,
            temperature=temperature,
            masked_temperature=masked_temperature,
        )
        return self.finish(inversion.decoder, info, result, measures + masked_measures)

    def _take_steps(self, inversion: TokenInversion, batch: int) -> LoopResult:
        rate = 5e-4 if self.config.decoder == "transformer" else 1e-3
        with trackers.reporting(self.run.report_to, self.run.out) as report:
            return run_loop(
                inversion.decoder,
                inversion.loss,
                self.schedule(1.0, rate, batch, len(self.train_rows)),
                folder=self.run.checkpoints,
                measure=lambda: inversion.accuracy(self.held_out, limit=50),
                progress=self.run.progress,
                report=report,
            )

    def _measure(self, inversion: TokenInversion, masked: float = 0.0) -> tuple[float, list[dict[str, Any]]]:
        """Return the temperature of the decoder's logits, with the accuracy and the calibration of named tokens."""
        states = ", masked states" if masked else ""
        correct = inversion.correct(self.held_out, limit=400, masked=masked)
        if not correct:
            return 1.0, []
        accuracy = summarize(f"token accuracy{states}", [float(row.mean()) for row in correct])
        predicted = inversion.predict(self.held_out, limit=_CALIBRATED, masked=masked)
        temperature, errors = calibrate(predicted, self.config.seed, states=states)
        return temperature, [accuracy, *errors]

    def _settings(self) -> TokenDecoderSettings:
        """The decoder's sizes; a Transformer gets the sizes of a BERT encoder, to start as a copy of its layers."""
        words, bert = self.states.words, self.states.model.config
        is_bert = bert.model_type == "bert"
        return TokenDecoderSettings(
            self.config.decoder,
            self.states.width,
            len(words),
            words.shape[1],
            self.config.depth,
            self.config.bidirectional,
            heads=bert.num_attention_heads if is_bert else 0,
            inner=bert.intermediate_size if is_bert else 0,
        )


class EmbeddingInverterTraining(InverterTraining):
    """Train an inverter of vectors."""

    def read(self, texts: Iterable[tuple[str, bool]]) -> None:
        """Cut the texts into spans and encode each; a killed run's spans are used again."""
        self.tokens = EncoderTokens.of(self.encoder)
        self.run.report("cutting the documents and encoding the stretches")
        counts = inversion_rows.prepare(
            texts,
            self.rows_folder,
            self.encoder,
            self.tokens,
            longest=min(self.config.length, self.encoder.max_tokens),
            limit=self.config.texts,
            seed=self.config.seed,
        )
        if not counts.rows or not counts.held_out_rows:
            raise InputError(_TOO_SHORT)
        self.counts = asdict(counts)
        self.train_rows = TokenSpans.read(self.rows_folder, "train", self.encoder.dim)
        self.held_out = TokenSpans.read(self.rows_folder, "held_out", self.encoder.dim)

    def train(self) -> TrainedInverter:
        """Train the decoder, measure the recovered texts, and set the threshold by a control."""
        config, rows, device = self.config, self.train_rows, environment.device()
        decoder = new_decoder(self.encoder, self.tokens, config.length, config.seed).to(device)
        texts = TextBatches(rows.tokens, rows.tokens.lengths, rows.vectors, config.length, device=device)
        words = None
        if last_checkpoint(self.run.checkpoints / "bag") is None:
            words = token_vectors(self.encoder, self.tokens, decoder.settings.vocabulary, self.run.progress)
        with trackers.reporting(self.run.report_to, self.run.out) as report:
            result = train_decoder(
                decoder,
                texts,
                self.tokens,
                self.schedule,
                words=words,
                batch_size=config.batch_size or 128,
                seed=config.seed,
                folder=self.run.checkpoints,
                progress=self.run.progress,
                report=report,
            )
        encoder = self.encoder
        info = InverterInfo("embedding", encoder.name, encoder.fingerprint, encoder.dim, asdict(decoder.settings))
        self.run.report("comparing held-out texts with those learned from")
        proposer = TokenProposer.of(decoder, self.tokens, half=self.run.bf16)
        inverter = EmbeddingInverter(info, proposer, encoder, self.tokens)
        measures, cosines = measure_recovery(inverter, self.train_rows, self.held_out, self.run.progress)
        info = with_threshold(info, inverter, self.held_out.vectors, cosines, config.seed, self.run.progress)
        return self.finish(decoder, info, result, measures, TextShape.of(rows.vectors[:: max(1, len(rows) // _SHAPED)]))
