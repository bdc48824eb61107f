"""Two models that keep more of a text than one vector, with their losses and their training; plain torch.

`TokenVectors`  late interaction (ColBERT: Khattab and Zaharia 2020, arXiv:2004.12832). A text is one unit vector a
                token; a passage's score is the mean over the query's tokens of their highest cosine (MaxSim).
`SparseTerms`   learned sparse vectors (SPLADE: Formal et al. 2021, arXiv:2107.05720). A text is a weight for each word
                piece of the vocabulary, log(1 + relu(the highest logit of any token)); few are above 0.

Both stand on all-MiniLM-L6-v2. Its lower half stays as it is and is shared, so that a step costs two thirds and one
pass serves several models. Training data are questions with their paragraphs, several of each article in a batch:
the other paragraphs of the article are the hard negatives.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from transformers import AutoModel, AutoTokenizer

from binocle.retriever.models import files
from binocle.training.runs.loop import rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

FROZEN = 3  # of six layers
DIM = 128  # of a token's vector
QUERY_TOKENS, TRAINED_TOKENS = 64, 160
_ARTICLES, _PARAGRAPHS, _QUESTIONS = 3, 8, 3  # in a batch; of each article; of each paragraph
_LONGEST = 700  # characters of a paragraph to learn from, so that hardly any is cut
_SCALE = 40.0  # of MaxSim in the loss
_LOGIT = 10.0  # of a token's own piece at the start, if its idf is the mean
_MAPPED = 128  # texts whose states both heads begin from; idf is of all
FLOPS_QUERY, FLOPS_DOCUMENT = 3e-3, 1e-3


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids (texts, length) of texts padded to one length, and a mask that is true for tokens."""

    ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Base:
    """The encoder that everything starts from."""

    bert: Any
    tokenizer: Any

    @classmethod
    def load(cls) -> Base:
        folder = str(files.find(files.DEFAULT_MODEL))
        bert = AutoModel.from_pretrained(folder).eval().requires_grad_(False)
        return cls(bert, AutoTokenizer.from_pretrained(folder))

    def read(self, texts: Sequence[str], max_length: int) -> Tokens:
        encoded = self.tokenizer(list(texts), truncation=True, max_length=max_length, padding=True, return_tensors="pt")
        return Tokens(encoded["input_ids"], encoded["attention_mask"].bool())

    @torch.no_grad()
    def lower(self, tokens: Tokens) -> Tensor:
        """States (texts, length, width) after the layers that stay as they are."""
        return through(self.bert.encoder.layer[:FROZEN], self.bert.embeddings(tokens.ids), tokens.mask)

    def upper(self) -> nn.ModuleList:
        """A copy of the other layers."""
        layers: nn.ModuleList = copy.deepcopy(self.bert.encoder.layer[FROZEN:])
        return layers


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
        """:param embeddings: (vocabulary, width) of the word pieces; they stay as they are."""
        super().__init__()
        self.upper = upper
        self.transform = nn.Parameter(transform.clone())
        self.bias = nn.Parameter(bias.clone())
        self.register_buffer("decoder", embeddings)

    def hidden(self, states: Tensor, mask: Tensor) -> Tensor:
        return through(self.upper, states, mask) @ self.transform.T

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        hidden = self.hidden(states, mask)
        return torch.stack([self._weights(row[kept]) for row, kept in zip(hidden, mask, strict=True)])

    def _weights(self, hidden: Tensor) -> Tensor:
        """Of one text. A weight of 0 has no gradient, so only logits above 0 are computed with one."""
        with torch.no_grad():
            highest, places = (hidden @ self.decoder.T).max(0)
            terms = (highest + self.bias > 0).nonzero()[:, 0]
        logits = (hidden[places[terms]] * self.decoder[terms]).sum(-1) + self.bias[terms]
        return hidden.new_zeros(len(self.bias)).index_put((terms,), torch.log1p(logits.relu()))

    def only(self, states: Tensor, mask: Tensor, terms: Tensor) -> Tensor:
        """Weights (texts, terms) of some word pieces alone, such as those that any query has."""
        logits = self.hidden(states, mask) @ self.decoder[terms].T + self.bias[terms]
        return torch.log1p(logits.masked_fill(~mask[..., None], -torch.inf).amax(1).relu())


def flops(weights: Tensor) -> Tensor:
    """Sum over terms of the squared mean weight (Paria et al. 2020, arXiv:2004.05665): frequent terms cost most."""
    return weights.mean(0).square().sum()


def late_interaction_loss(model: TokenVectors, batch: Batch, base: Base, share: float) -> Tensor:  # noqa: ARG001
    """Cross entropy of each question's paragraph among all of the batch, by MaxSim."""
    questions, paragraphs = batch.tokens(base)
    scores = maxsim(
        model(base.lower(questions), questions.mask),
        model(base.lower(paragraphs), paragraphs.mask),
        questions.mask,
        paragraphs.mask,
    )
    return cross_entropy(_SCALE * scores, batch.owners)


def sparse_loss(model: SparseTerms, batch: Batch, base: Base, share: float) -> Tensor:
    """Cross entropy by the product of weights, and FLOPS of both sides, which grow over the first third of the run."""
    questions, paragraphs = batch.tokens(base)
    queries = model(base.lower(questions), questions.mask)
    documents = model(base.lower(paragraphs), paragraphs.mask)
    price = FLOPS_QUERY * flops(queries) + FLOPS_DOCUMENT * flops(documents)
    return cross_entropy(queries @ documents.T, batch.owners) + min(1.0, 3 * share) ** 2 * price


# Where both begin


def new_token_vectors(base: Base, texts: Sequence[str]) -> TokenVectors:
    """With the projection that keeps most of the states' length: their first right singular vectors."""
    states, _ = _states(base, texts[:_MAPPED])
    directions = torch.linalg.svd(torch.cat(states), full_matrices=False).Vh
    return TokenVectors(base.upper(), directions[:DIM])


def new_sparse_terms(base: Base, texts: Sequence[str]) -> SparseTerms:
    """With the ridge map from a token's state to its own word embedding, longer for rare tokens.

    So a text's own words, and those with a like embedding, have weights before a step of training. A term's threshold
    is two deviations above the mean of its highest logits in texts.
    """
    by_text, ids = _states(base, texts[:_MAPPED])
    states, width = torch.cat(by_text), base.bert.config.hidden_size
    embeddings = base.bert.embeddings.word_embeddings.weight
    embeddings = embeddings - embeddings[ids].mean(0)
    targets = embeddings[ids] * (_LOGIT * _idf(base, texts)[ids] / embeddings[ids].square().sum(1))[:, None]
    gram = states.T @ states + 1e-2 * len(states) / width * torch.eye(width)
    transform = torch.linalg.solve(gram, states.T @ targets).T
    highest = torch.stack([(part @ transform.T @ embeddings.T).amax(0) for part in by_text])
    return SparseTerms(base.upper(), embeddings, transform, -(highest.mean(0) + 2 * highest.std(0)))


@torch.no_grad()
def _states(base: Base, texts: Sequence[str]) -> tuple[list[Tensor], Tensor]:
    """The final states (tokens, width) of each text, and the ids of all their tokens."""
    states: list[Tensor] = []
    ids = []
    for start in range(0, len(texts), 32):
        tokens = base.read(texts[start : start + 32], TRAINED_TOKENS)
        final = through(base.bert.encoder.layer[FROZEN:], base.lower(tokens), tokens.mask)
        states += [row[kept] for row, kept in zip(final, tokens.mask, strict=True)]
        ids.append(tokens.ids[tokens.mask])
    return states, torch.cat(ids)


def _idf(base: Base, texts: Sequence[str]) -> Tensor:
    """Of each word piece, over the mean of tokens."""
    counts = torch.zeros(base.bert.config.vocab_size)
    frequencies = torch.zeros_like(counts)
    for ids in base.tokenizer(list(texts))["input_ids"]:
        counts[list(set(ids))] += 1
        frequencies += torch.bincount(torch.tensor(ids), minlength=len(counts))
    idf = torch.log((len(texts) + 1) / (counts + 0.5))
    return idf / ((idf * frequencies).sum() / frequencies.sum())


# Training


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions, paragraphs, and the number of each question's paragraph."""

    questions: list[str]
    paragraphs: list[str]
    owners: Tensor

    def tokens(self, base: Base) -> tuple[Tokens, Tokens]:
        return base.read(self.questions, QUERY_TOKENS), base.read(self.paragraphs, TRAINED_TOKENS)


Article = list[tuple[str, list[str]]]  # paragraphs with their questions


def articles(file: Path) -> list[Article]:
    """From `squad11_train.jsonl.gz`: articles with enough paragraphs of some questions that are not too long."""
    by_title: dict[str, Article] = {}
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        for row in map(json.loads, stream):
            questions = [qa["question"] for qa in row["qas"]]
            if len(questions) >= _QUESTIONS and len(row["context"]) <= _LONGEST:
                by_title.setdefault(row["title"], []).append((row["context"], questions))
    return [article for article in by_title.values() if len(article) >= _PARAGRAPHS]


def batches(data: list[Article], seed: int) -> Iterator[Batch]:
    """Without end."""
    draw = random.Random(seed)
    while True:
        paragraphs = [part for article in draw.sample(data, _ARTICLES) for part in draw.sample(article, _PARAGRAPHS)]
        questions = [draw.sample(questions, _QUESTIONS) for _, questions in paragraphs]
        owners = torch.arange(len(paragraphs)).repeat_interleave(_QUESTIONS)
        yield Batch([one for several in questions for one in several], [text for text, _ in paragraphs], owners)


def train(
    model: Any,
    loss: Callable[[Any, Batch, Base, float], Tensor],
    base: Base,
    data: list[Article],
    steps: int,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Train with AdamW: layers at 5e-5, the parts on top at 3e-4, with a warm-up and a linear decay."""
    layers = [*model.upper.requires_grad_().parameters()]
    tops = [value for name, value in model.named_parameters() if not name.startswith("upper.")]
    rates = (5e-5, 3e-4)
    optimizer = torch.optim.AdamW([{"params": layers}, {"params": tops, "weight_decay": 0.0}], weight_decay=0.01)
    losses, began = [], time.process_time()
    for step, batch in zip(range(steps), batches(data, seed), strict=False):
        for group, highest in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = highest * rate(step, step / steps, warmup=steps // 10)
        value = loss(model, batch, base, step / steps)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_([*layers, *tops], 1.0)
        optimizer.step()
        losses.append(float(value.detach()))
        print(f"step {step + 1} of {steps}: loss {losses[-1]:.3f}, {time.process_time() - began:.0f} s", flush=True)
    tenth = max(1, steps // 10)
    return {
        "steps": steps,
        "questions": steps * len(batch.questions),
        "processor_seconds": round(time.process_time() - began),
        "loss_first_and_last_tenth": [round(sum(part) / tenth, 3) for part in (losses[:tenth], losses[-tenth:])],
    }
