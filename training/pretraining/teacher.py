"""Teach a masked language model by another: its guesses for hidden tokens, and its states.

Sanh et al. 2019, "DistilBERT" (arXiv:1910.01108), section 2: the loss of hidden tokens, the divergence from a teacher's
softened distribution, and the cosine between the last states of both. The guesses are compared at hidden tokens alone,
as `--restrict_ce_to_mask` of their code does, because `MaskedLearner` computes no other logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, kl_div, log_softmax

from ...core.errors import InputError
from ..runs import attention, environment
from . import masked_model

if TYPE_CHECKING:
    from .masked_model import MaskedModel

# As DistilBERT was trained: transformers-research-projects, distillation/README.md.
TEMPERATURE = 2.0  # of both distributions
_GUESSES, _TOKENS, _STATES = 5.0, 2.0, 1.0  # weights of the three losses


class Lessons(NamedTuple):
    """The distance of a student to its teacher in a batch."""

    guesses: Tensor  # of each hidden token (tokens,)
    states: Tensor | None  # of each token that is no padding (tokens,); None if the widths differ


class MaskedTeacher:
    """A masked language model that is not trained."""

    def __init__(self, masked: MaskedModel) -> None:
        self.max_length = masked.max_length
        self._has_types = masked.has_types
        self._model: Any = masked.model.eval().requires_grad_(requires_grad=False).to(environment.device())
        attention.speed_up(self._model)

    @classmethod
    def load(cls, name: str, student: str, tokenizer: Any) -> MaskedTeacher:
        """Load a teacher by folder or name.

        :param student: the student's name, for messages.
        :param tokenizer: of the student.
        :raises InputError: when it has no head for masked words, or another vocabulary.
        """
        masked = masked_model.load(name)
        if masked.new_head:
            raise InputError(
                f"the teacher {name} has no head for masked words: pretrain it first, or name a model with"
            )
        vocabulary, expected = masked.tokenizer.get_vocab(), tokenizer.get_vocab()
        if vocabulary != expected:
            sizes = f"{len(vocabulary):,} and {len(expected):,} tokens"
            raise InputError(
                f"the teacher {name} has another vocabulary than {student} ({sizes}), and its guesses are tokens: "
                "expected a student with the teacher's tokens, as --layers and --from-scratch give it"
            )
        return cls(masked)

    def lessons(self, logits: Tensor, states: Tensor, positions: Tensor, inputs: dict[str, Tensor]) -> Lessons:
        """Compare a student's predictions with the teacher's.

        :param logits: of the student for hidden tokens (tokens, vocabulary).
        :param states: its last ones (rows, width, dim).
        :param positions: of the hidden tokens in a batch without rows.
        """
        if not self._has_types:
            inputs = {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}
        with torch.no_grad():
            own_logits, own_states = masked_model.masked_predictions(self._model, positions, inputs)
        size = min(logits.shape[1], own_logits.shape[1])  # models may pad the vocabulary
        guesses = divergences(logits[:, :size], own_logits[:, :size])
        if states.shape != own_states.shape:
            return Lessons(guesses, None)
        is_text = inputs["attention_mask"].bool()
        return Lessons(guesses, distances(states[is_text], own_states[is_text]))


def divergences(student: Tensor, teacher: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return T² KL(teacher || student) of the softened distributions (tokens,) of logits (tokens, vocabulary).

    The square keeps the size of the gradient (Hinton et al. 2015, arXiv:1503.02531, section 2).
    """
    ours, theirs = (log_softmax(logits.float() / temperature, 1) for logits in (student, teacher))
    return temperature**2 * kl_div(ours, theirs, reduction="none", log_target=True).sum(1)


def distances(student: Tensor, teacher: Tensor) -> Tensor:
    """Return 1 - cosine of states (tokens, dim), as shape (tokens,)."""
    return 1 - cosine_similarity(student.float(), teacher.float(), dim=1)


def combined(tokens: Tensor, guesses: Tensor, states: Tensor | None) -> Tensor:
    """Return the weighted mean of three losses, or of two if the widths of student and teacher differ.

    A mean, so that gradients are clipped no more often than without a teacher.
    """
    if states is None:
        return (_GUESSES * guesses + _TOKENS * tokens) / (_GUESSES + _TOKENS)
    return (_GUESSES * guesses + _TOKENS * tokens + _STATES * states) / (_GUESSES + _TOKENS + _STATES)
