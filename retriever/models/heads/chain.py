"""A sequence of labels as a linear chain: each word has scores of its own, and each step from label to label has one.

The chain is a conditional random field (Lafferty et al. 2001; on a network, Lample et al. 2016, arXiv:1603.01360). A
step's score depends on both labels, and on whether the two words touch, as the three of "x-y" do. Scores of steps are
at most 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.arrays import Floats


def valid(labels: Sequence[str]) -> Floats:
    """Return 0 where a label may follow another, else a large negative number; the last row is for the first word.

    :returns: shape (2, labels + 1, labels), the same for words apart and words that touch. I-X follows only B-X or I-X,
        where there is a B-X.
    """
    steps = np.zeros((2, len(labels) + 1, len(labels)), np.float32)
    for column, label in enumerate(labels):
        prefix, _, name = label.partition("-")
        if prefix == "I" and f"B-{name}" in labels:
            before = [label, f"B-{name}"]
            steps[:, [row for row, earlier in enumerate((*labels, "")) if earlier not in before], column] = -1e6
    return steps


def viterbi(scores: Floats, steps: Floats) -> list[int]:
    """Return the labels with the highest sum of scores.

    :param scores: (words, labels).
    :param steps: into each word from each label before it, (words, labels + 1, labels).
    """
    if not len(scores):
        return []
    path: list[int] = scores.argmax(1).tolist()
    if not steps[np.arange(len(path)), [-1, *path[:-1]], path].any():  # every step has the highest score there is
        return path
    best, back = scores[0] + steps[0, -1], []
    for row, step in zip(scores[1:], steps[1:, :-1], strict=True):
        total = best[:, None] + step
        back.append(total.argmax(0))
        best = total.max(0) + row
    path = [int(best.argmax())]
    for choice in reversed(back):
        path.append(int(choice[path[-1]]))
    return path[::-1]


def marginals(scores: Floats, steps: Floats) -> Floats:
    """Return the log-probability of each label of each word over all sequences, (words, labels): forward-backward.

    :param scores: and `steps`, as for `viterbi`.
    """
    own = np.exp(np.maximum(scores.astype(np.float64) - scores.max(1, keepdims=True), -100))  # else some sums are 0
    moves = np.exp(steps.astype(np.float64))
    ahead, behind = np.empty_like(own), np.ones_like(own)
    ahead[0] = own[0] * moves[0, -1]
    for word in range(1, len(own)):
        total = ahead[word - 1] @ moves[word, :-1] * own[word]
        ahead[word] = total / total.sum()
    for word in range(len(own) - 1, 0, -1):
        total = moves[word, :-1] @ (own[word] * behind[word])
        behind[word - 1] = total / total.sum()
    likely = ahead * behind
    likely /= likely.sum(1, keepdims=True)
    log: Floats = np.log(np.maximum(likely, 1e-30)).astype(np.float32)
    return log
