"""Models that transformers loads: what it writes is silent, and what fails is one line."""

from __future__ import annotations

import sys

import pytest

from binocle.core.errors import InputError
from binocle.retriever.models.torch_loading import loading

pytest.importorskip("transformers")


def test_a_model_that_does_not_load_is_an_error_of_one_line(capsys):
    def load():
        with loading("models/x", "a cross-encoder"):
            sys.stderr.write("loading weights")
            raise ValueError("no such weight\nand more")

    with pytest.raises(InputError, match=r"^models/x does not load as a cross-encoder \(no such weight\)$"):
        load()
    assert capsys.readouterr() == ("", "")


def test_an_error_that_is_none_of_transformers_passes():
    with pytest.raises(ZeroDivisionError), loading("models/x", "a cross-encoder"):
        raise ZeroDivisionError


def test_a_value_of_another_type_in_the_configuration_is_an_error_of_one_line():
    from transformers import BertConfig

    says = r"^models/x does not load as an encoder \(.*hidden_act': .*expected.*got int.*\)$"
    with pytest.raises(InputError, match=says), loading("models/x", "an encoder"):
        BertConfig(hidden_act=3)
