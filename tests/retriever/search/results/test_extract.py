from __future__ import annotations

from binocle.retriever.search.results.extract import shorten
from binocle.retriever.search.results.hit import Hit


def hit(text):
    place = {"path": "a.txt", "line_start": 1, "line_end": 1, "page": None, "heading": (), "char_start": 0}
    scores = {"rank": 1, "score": 1.0, "scores": {}, "document_row": 0, "passage": 0}
    other = {"title": "", "format": "text", "metadata": {}, "source": "added", "sha256": ""}
    return Hit(text=text, char_end=len(text), **place, **scores, **other)


class Weights:
    """The same weights in another order for each sentence, as the stems of a set come in another order."""

    def __init__(self, *values):
        self.values = iter(values)

    def get(self, stem, default):
        return next(self.values)


def test_of_sentences_with_the_same_weight_the_first_is_chosen_in_every_process():
    weights = Weights(0.3, 0.2, 0.1, 0.1, 0.2, 0.3)
    assert (
        shorten(hit("cat dog moon. moon dog cat."), weights, lambda text: len(text.split()), 3).text == "cat dog moon."
    )
