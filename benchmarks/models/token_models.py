"""Two models that keep more of a text than one vector, with their losses and their training; plain torch.

`TokenVectors`  late interaction (ColBERT: Khattab and Zaharia 2020, arXiv:2004.12832). A text is one unit vector a
                token; a passage's score is the mean over the query's tokens of their highest cosine (MaxSim).
`SparseTerms`   learned sparse vectors (SPLADE: Formal et al. 2021, arXiv:2107.05720). A text is a weight for each word
                piece of the vocabulary, log(1 + relu(the highest logit of any token)); few are above 0.

Both stand on all-MiniLM-L6-v2. At most its last layer is trained. So the states of a text before that layer are
computed once, and serve every step and every model. Training data are SQuAD's questions with their paragraphs and,
since the base has learnt those already, Debian's one-line descriptions with their long ones. A batch has twelve texts
of an article, or of packages next to each other by name: these are each other's hard negatives.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import itertools
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, AutoTokenizer

from binocle.retriever.models import model_files
from binocle.training.runs.loop import rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

DIM = 128  # of a token's vector
_TOKENS = 256  # of a text at most
_BATCH = 4_096  # tokens encoded at once
_ARTICLES, _PARAGRAPHS, _QUESTIONS = 2, 12, 3  # in a batch; of each article; of each paragraph
_LONGEST = 700  # characters of a paragraph to learn from
_SAMPLE = 120  # texts, about, that the thresholds of terms begin from
_DRAWN = 40  # articles of a source to learn from
_SCALE = 20.0  # of MaxSim in the loss
_LOGIT = 10.0  # of a token's own piece at the start, if its idf is the mean
FLOPS_QUERY, FLOPS_DOCUMENT = 3e-3, 1e-3


class Base:
    """The encoder that everything starts from."""

    def __init__(self, trained_layers: int) -> None:
        """:param trained_layers: 1 if its last layer is trained too, else 0."""
        folder = str(model_files.find(model_files.DEFAULT_MODEL))
        self.bert = AutoModel.from_pretrained(folder).eval().requires_grad_(False)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.layers = self.bert.encoder.layer
        self.trained_layers = trained_layers

    def upper(self) -> nn.ModuleList:
        """A copy of the layers that are trained."""
        layers: nn.ModuleList = copy.deepcopy(self.layers[len(self.layers) - self.trained_layers :])
        return layers.requires_grad_()

    @torch.no_grad()
    def states(self, texts: Sequence[str]) -> list[Tensor]:
        """Of each text the states (tokens, 2, width) before and after the last layer, in half precision."""
        encoded = self.tokenizer(list(texts), truncation=True, max_length=_TOKENS, padding=True, return_tensors="pt")
        mask = encoded["attention_mask"].bool()
        before = through(self.layers[:-1], self.bert.embeddings(encoded["input_ids"]), mask)
        both = torch.stack([before, through(self.layers[-1:], before, mask)], dim=2).half()
        return [row[is_term].clone() for row, is_term in zip(both, mask, strict=True)]


class States:
    """The states of texts, computed once and kept in a file."""

    def __init__(self, base: Base, file: Path) -> None:
        self.base, self._file = base, file
        self._rows: dict[str, Tensor] = load_file(str(file)) if file.is_file() else {}

    def add(self, texts: Iterable[str]) -> None:
        """Compute the missing ones."""
        missing = sorted({text for text in texts if _key(text) not in self._rows}, key=len)
        if not missing:
            return
        while missing:
            count = max(1, _BATCH // max(1, min(_TOKENS, len(missing[0]) // 4)))
            batch, missing = missing[:count], missing[count:]
            self._rows |= dict(zip(map(_key, batch), self.base.states(batch), strict=True))
        save_file(self._rows, str(self._file))

    def final(self, text: str) -> Tensor:
        """States (tokens, width) after the last layer."""
        return self._rows[_key(text)][:, 1].float()

    def padded(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """States (texts, length, width) that the models begin with, and a mask that is true for tokens."""
        rows = [self._rows[_key(text)][:, 1 - self.base.trained_layers].float() for text in texts]
        lengths = torch.tensor([len(row) for row in rows])
        return pad_sequence(rows, batch_first=True), torch.arange(int(lengths.max())) < lengths[:, None]


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def through(layers: nn.ModuleList, states: Tensor, mask: Tensor) -> Tensor:
    """States after transformer layers."""
    for layer in layers:
        states = layer(states, mask[:, None, None, :])
    return states


class TokenVectors(nn.Module):
    """Unit vectors (texts, length, dim) of the tokens, 0 for padding."""

    def __init__(self, upper: nn.ModuleList, projection: Tensor | None = None) -> None:
        """:param projection: (dim, width) to begin with; by default the vectors are the states themselves."""
        super().__init__()
        self.upper = upper
        self.projection = None if projection is None else nn.Parameter(projection.clone())

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        states = through(self.upper, states, mask)
        if self.projection is not None:
            states = states @ self.projection.T
        return normalize(states, dim=-1) * mask[..., None]


def maxsim(queries: Tensor, documents: Tensor, query_mask: Tensor, document_mask: Tensor) -> Tensor:
    """Mean over the query's tokens of the highest cosine in the document: (queries, documents).

    :param queries: vectors (queries, length, dim), 0 where `query_mask` is false.
    """
    cosines = torch.einsum("qid,njd->qnij", queries, documents)
    highest = cosines.masked_fill(~document_mask[None, :, None, :], -torch.inf).amax(-1)
    sums = (highest * query_mask[:, None, :]).sum(-1)
    return sums / query_mask.sum(-1)[:, None]


class SparseTerms(nn.Module):
    """Weights (texts, vocabulary): log(1 + relu(highest logit)), by a head that is tied to the word embeddings."""

    decoder: Tensor

    def __init__(self, upper: nn.ModuleList, embeddings: Tensor, transform: Tensor, bias: Tensor) -> None:
        """:param embeddings: (vocabulary, width) of the word pieces, which are not trained."""
        super().__init__()
        self.upper = upper
        self.transform = nn.Parameter(transform.clone())
        self.bias = nn.Parameter(bias.clone())
        self.register_buffer("decoder", embeddings)

    def hidden(self, states: Tensor, mask: Tensor) -> Tensor:
        return through(self.upper, states, mask) @ self.transform.T

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        hidden = self.hidden(states, mask)
        return torch.stack([self._weights(row[is_term]) for row, is_term in zip(hidden, mask, strict=True)])

    def _weights(self, hidden: Tensor) -> Tensor:
        """Of one text. A weight of 0 has no gradient, so only logits above 0 are computed with one."""
        with torch.no_grad():
            highest, positions = (hidden @ self.decoder.T).max(0)
            terms = (highest + self.bias > 0).nonzero()[:, 0]
        logits = (hidden[positions[terms]] * self.decoder[terms]).sum(-1) + self.bias[terms]
        return hidden.new_zeros(len(self.bias)).index_put((terms,), torch.log1p(logits.relu()))

    def only(self, states: Tensor, mask: Tensor, terms: Tensor) -> Tensor:
        """Weights (texts, terms) of these word pieces alone."""
        logits = self.hidden(states, mask) @ self.decoder[terms].T + self.bias[terms]
        return torch.log1p(logits.masked_fill(~mask[..., None], -torch.inf).amax(1).relu())


def flops(weights: Tensor) -> Tensor:
    """Sum over terms of the squared mean weight (Paria et al. 2020, arXiv:2004.05665): frequent terms cost most."""
    return weights.mean(0).square().sum()


def late_interaction_loss(model: TokenVectors, batch: Batch, states: States, share: float) -> Tensor:  # noqa: ARG001
    """Cross entropy of each question's paragraph among all of the batch, by MaxSim."""
    (questions, question_mask), (paragraphs, mask) = states.padded(batch.questions), states.padded(batch.paragraphs)
    scores = maxsim(model(questions, question_mask), model(paragraphs, mask), question_mask, mask)
    return cross_entropy(_SCALE * scores, batch.owners)


def sparse_loss(model: SparseTerms, batch: Batch, states: States, share: float) -> Tensor:
    """Cross entropy by the product of weights, and FLOPS of both sides, which grow over the first third of the run."""
    queries, documents = model(*states.padded(batch.questions)), model(*states.padded(batch.paragraphs))
    price = FLOPS_QUERY * flops(queries) + FLOPS_DOCUMENT * flops(documents)
    return cross_entropy(queries @ documents.T, batch.owners) + min(1.0, 3 * share) ** 2 * price


# Where both begin


def new_token_vectors(states: States, texts: Sequence[str]) -> TokenVectors:
    """With the projection that keeps most of the states' length: their first right singular vectors."""
    rows = torch.cat([states.final(text) for text in texts])
    return TokenVectors(states.base.upper(), torch.linalg.svd(rows, full_matrices=False).Vh[:DIM])


def new_sparse_terms(states: States, texts: Sequence[str]) -> SparseTerms:
    """With the ridge map from a token's state to its own word embedding, longer for rare tokens.

    So a text's own words, and those with a like embedding, have weights before a step of training. A term's threshold
    is two deviations above the mean of its highest logits in texts.
    """
    base, by_text = states.base, [states.final(text) for text in texts]
    encoded = base.tokenizer(list(texts), truncation=True, max_length=_TOKENS)["input_ids"]
    ids, rows = torch.tensor([*itertools.chain(*encoded)]), torch.cat(by_text)
    embeddings = base.bert.embeddings.word_embeddings.weight
    embeddings = embeddings - embeddings[ids].mean(0)
    idf = _idf(encoded, len(embeddings))[ids]
    targets = embeddings[ids] * (_LOGIT * idf / embeddings[ids].square().sum(1))[:, None]
    width = rows.shape[1]
    gram = rows.T @ rows + 1e-2 * len(rows) / width * torch.eye(width)
    transform = torch.linalg.solve(gram, rows.T @ targets).T
    highest = torch.stack([(part @ transform.T @ embeddings.T).amax(0) for part in by_text[:: len(by_text) // _SAMPLE]])
    return SparseTerms(base.upper(), embeddings, transform, -(highest.mean(0) + 2 * highest.std(0)))


def _idf(texts: list[list[int]], vocabulary: int) -> Tensor:
    """Of each word piece, over its mean over tokens."""
    counts = torch.bincount(torch.tensor([piece for ids in texts for piece in set(ids)]), minlength=vocabulary)
    frequencies = torch.bincount(torch.tensor([*itertools.chain(*texts)]), minlength=vocabulary)
    idf = torch.log((len(texts) + 1) / (counts + 0.5))
    return idf / ((idf * frequencies).sum() / frequencies.sum())


# Training


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions, paragraphs, and the number of each question's paragraph."""

    questions: list[str]
    paragraphs: list[str]
    owners: Tensor


Article = list[tuple[str, list[str]]]  # paragraphs with their questions


def squad_articles(file: Path) -> list[Article]:
    """From `squad11_train.jsonl.gz`: the paragraphs of an article that have some questions and are not too long."""
    by_title: dict[str, Article] = {}
    for row in _lines(file):
        questions = [qa["question"] for qa in row["qas"]]
        if len(questions) >= _QUESTIONS and len(row["context"]) <= _LONGEST:
            by_title.setdefault(row["title"], []).append((row["context"], questions))
    return _drawn([*by_title.values()])


def debian_articles(file: Path, excluded: set[str]) -> list[Article]:
    """From `debian12_descriptions.jsonl.gz`: packages of a section that are next to each other by name.

    :param excluded: long descriptions of the packages to judge by.
    """
    by_section: dict[str, Article] = {}
    known = set(excluded)
    for row in sorted(_lines(file), key=lambda row: row["package"]):
        if row["long"] not in known and 150 <= len(row["long"]) <= _LONGEST:
            known.add(row["long"])
            by_section.setdefault(row["section"], []).append((row["long"], [row["short"]]))
    return _drawn(
        [part[at : at + _PARAGRAPHS] for part in by_section.values() for at in range(0, len(part), _PARAGRAPHS)]
    )


def _drawn(articles: list[Article]) -> list[Article]:
    """Some articles, with `_PARAGRAPHS` paragraphs each and `_QUESTIONS` questions for each at most."""
    draw = random.Random(0)
    return [
        [(text, questions[:_QUESTIONS]) for text, questions in draw.sample(article, _PARAGRAPHS)]
        for article in draw.sample([rows for rows in articles if len(rows) >= _PARAGRAPHS], _DRAWN)
    ]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def batches(sources: list[list[Article]], seed: int) -> Iterator[Batch]:
    """Of the sources by turns, without end."""
    draw = random.Random(seed)
    for source in itertools.cycle(sources):
        paragraphs = [*itertools.chain(*draw.sample(source, _ARTICLES))]
        owners = [row for row, (_, questions) in enumerate(paragraphs) for _ in questions]
        questions = [question for _, several in paragraphs for question in several]
        yield Batch(questions, [text for text, _ in paragraphs], torch.tensor(owners))


def train(
    model: Any,
    loss: Callable[[Any, Batch, States, float], Tensor],
    states: States,
    sources: list[list[Article]],
    steps: int,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Train with AdamW: layers at 5e-5, the parts on top at 3e-4, with a warm-up and a linear decay."""
    layers = [*model.upper.parameters()]
    tops = [value for name, value in model.named_parameters() if not name.startswith("upper.")]
    rates = (3e-4, 5e-5)
    groups = [{"params": layers}, {"params": tops, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=0.01)
    losses, questions, began = [], 0, time.process_time()
    for step, batch in zip(range(steps), batches(sources, seed), strict=False):
        for group, highest in zip(reversed(optimizer.param_groups), rates, strict=False):
            group["lr"] = highest * rate(step, step / steps, warmup=steps // 10)
        value = loss(model, batch, states, step / steps)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_([*layers, *tops], 1.0)
        optimizer.step()
        losses.append(float(value.detach()))
        questions += len(batch.questions)
        print(f"step {step + 1} of {steps}: loss {losses[-1]:.3f}, {time.process_time() - began:.0f} s", flush=True)
    tenth = max(1, steps // 10)
    return {
        "steps": steps,
        "questions": questions,
        "processor_seconds": round(time.process_time() - began),
        "loss_first_and_last_tenth": [round(sum(part) / tenth, 3) for part in (losses[:tenth], losses[-tenth:])],
    }
