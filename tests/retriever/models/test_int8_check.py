from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from binocle.commands.precision import _passages as passages
from binocle.commands.precision import _sample as sampled
from binocle.retriever.models import int8_check
from binocle.retriever.models.bert.openvino import import_openvino
from binocle.retriever.models.int8_check import Int8Check, check_int8, check_int8_reranker
from binocle.retriever.retriever import Retriever

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = (
    "cat dog mat house tax income task server client network index vector river moon night bread cheese oven".split()
)
TEXTS = [f"The {WORDS[n % 18]} and the {WORDS[n * 7 % 17]} of the {WORDS[n * 5 % 13]} number {n}" for n in range(120)]


def test_int8_is_compared_on_the_passages_themselves(tiny_model, monkeypatch):
    monkeypatch.setattr(int8_check, "_speedup", lambda *_: 1.4)
    check = check_int8(tiny_model, TEXTS)
    assert check.passages == 120
    assert check.agreement > 0.8
    assert abs(check.first_places_lost) < 0.1
    assert f"{check.agreement:.0%} of the best ten are the same" in check.as_text()


def test_few_passages_are_not_enough(tiny_model):
    check = check_int8(tiny_model, TEXTS[:99])
    assert not check.passed
    assert check.as_text() == "not int8: 99 passages are too few to check it on (at least 100)"


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        (Int8Check(100, 1.15, 0.9, 0.02), True),
        (Int8Check(99, 2.0, 1.0, 0.0), False),
        (Int8Check(400, 1.14, 1.0, 0.0), False),
        (Int8Check(400, 2.0, 0.89, 0.0), False),
        (Int8Check(400, 2.0, 0.95, 0.03), False),
        (Int8Check(400, 2.0, 0.95, -0.03), True),
    ],
)
def test_each_limit_counts(check, passed):
    assert check.passed is passed
    assert check.as_text().startswith("int8: " if passed else "not int8: ")


def test_the_times_are_those_of_each_call(monkeypatch):
    now = [0.0]

    def lasting(seconds: float) -> Callable[[], None]:
        def call() -> None:
            now[0] += seconds

        return call

    monkeypatch.setattr(int8_check.time, "process_time", lambda: now[0])
    assert int8_check._speedup(lasting(3.0), lasting(2.0)) == pytest.approx(1.5)


def test_a_reranker_in_int8_is_compared_by_its_order_of_passages(make_reranker, tmp_path, monkeypatch):
    monkeypatch.setattr(int8_check, "_speedup", lambda *_: 1.4)
    name = str(make_reranker(tmp_path / "reranker"))
    check = check_int8_reranker(name, TEXTS)
    assert check.passages == len(TEXTS)
    assert check.agreement > 0.8
    assert abs(check.first_places_lost) <= 0.25
    assert check_int8_reranker(name, TEXTS[:99]) == Int8Check(99)


def test_the_best_ten_and_first_places_are_compared():
    own = np.arange(40.0).reshape(2, 20)
    assert int8_check._order_changes(own, own, np.array([19, 0])) == (1, 0)
    assert int8_check._order_changes(own, -own, np.array([19, 0])) == (0, 0)
    swapped = own.copy()
    swapped[0, [9, 19]] = swapped[0, [19, 9]]  # the best leaves the best ten of one query
    assert int8_check._order_changes(own, swapped, np.array([19, 19])) == (pytest.approx(0.95), 0.5)


@pytest.fixture(autouse=True)
def _int8_products(monkeypatch, tmp_path):
    """As on a processor with them, without stored results: without, auto asks for no check."""
    monkeypatch.setattr(int8_check, "has_int8_products", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_precision_is_of_a_new_index(run, folder, tiny_model):
    at = str(folder)
    refused = run("index", at, "--precision", "auto", "--model", tiny_model)
    assert "not int8: " in refused.err
    assert "passages are too few" in refused.err
    assert model(run, at) == tiny_model
    wrong = run("index", at, "--precision", "int8")
    assert wrong.code == 2
    assert f"'binocle switch {tiny_model}@int8'" in wrong.err
    assert model(run, at) == tiny_model


def test_an_index_keeps_int8(run, folder, tiny_model):
    at = str(folder)
    assert run("index", at, "--precision", "int8", "--model", tiny_model).code == 0
    assert model(run, at) == f"{tiny_model}@int8"
    for choice in ("int8", "auto"):
        assert "none embedded" in run("index", at, "--precision", choice).out
        assert "none embedded" in run("index", at, "--precision", choice, "--model", tiny_model).out
    assert run("index", at, "--model", tiny_model).code == 2
    refused = run("index", at, "--precision", "fp32")
    assert refused == (
        2,
        "",
        f"binocle: {tiny_model}@int8 encodes documents in int8, not in fp32: leave --precision out\n",
    )


def test_auto_takes_int8_where_the_check_passes(run, folder, tiny_model, monkeypatch):
    checked = []

    def check(_model: str, texts: list[str]) -> Int8Check:
        checked.extend(texts)
        return Int8Check(100, 2.0, 1.0, 0.0)

    monkeypatch.setattr(int8_check, "check_int8", check)
    (folder / "left out.log").write_text("A line that the index leaves out.", "utf-8")
    result = run("index", str(folder), "--precision", "auto", "--model", tiny_model, "--exclude", "*.log")
    assert result.err.startswith("int8: 2.00 times as fast here, 100% of the best ten are the same")
    assert model(run, str(folder)) == f"{tiny_model}@int8"
    with Retriever.open(folder) as retriever:
        assert sorted(checked) == sorted(retriever.snapshot().chunks.to_table(columns=["text"])["text"].to_pylist())


def test_the_passages_of_the_check_need_no_index(folder, tiny_model, monkeypatch):
    """A process that was killed meanwhile left a temporary one."""
    monkeypatch.setattr(Retriever, "open", lambda *_, **__: pytest.fail("an index"))
    assert passages(tiny_model, sampled([folder], []))


def test_auto_remembers_its_check_for_this_machine(run, folder, tiny_model, tmp_path, monkeypatch):
    checks = iter([Int8Check(99), Int8Check(400, 1.0, 1.0, 0.0), Int8Check(400, 2.0, 1.0, 0.0)])
    monkeypatch.setattr(int8_check, "check_int8", lambda *_: next(checks))

    def index(name, *, expected):
        result = run("index", str(folder), "--index", tmp_path / name, "--precision", "auto", "--model", tiny_model)
        assert result.err.splitlines()[0] == expected

    memory = int8_check.memory_of(tiny_model)
    slow = (
        "not int8: 1.00 times as fast here, 100% of the best ten are the same, 0.0% of queries lost their first place"
    )
    index("a", expected="not int8: 99 passages are too few to check it on (at least 100)")
    index("b", expected=f"{slow} (400 of your passages); remembered for this machine")
    index("c", expected=f"{slow} (400 of your passages); checked before: remove {memory} to check anew")
    memory.write_text('{"passages": null}', "utf-8")
    fast = slow.removeprefix("not ").replace("1.00", "2.00")
    index("d", expected=f"{fast} (400 of your passages); remembered for this machine")


def test_the_check_is_of_one_encoder_processor_and_version(tiny_model, make_model, tmp_path, monkeypatch):
    memory = int8_check.memory_of(tiny_model)
    assert memory == int8_check.memory_of(tiny_model)
    assert memory != int8_check.memory_of(str(make_model(tmp_path / "other", seed=1)))
    with monkeypatch.context() as patch:
        patch.setattr(int8_check, "__version__", "0.0")
        assert memory != int8_check.memory_of(tiny_model)
    monkeypatch.setattr(int8_check, "_processor", lambda: ["model name: another"])
    assert memory != int8_check.memory_of(tiny_model)


def test_a_check_is_made_again_if_it_cannot_be_remembered(tmp_path):
    (tmp_path / "file").touch()
    memory = tmp_path / "file" / "check.json"
    assert int8_check.remember(Int8Check(400, 2.0, 1.0, 0.0), memory) is False
    assert int8_check.remembered(memory) is None


def test_auto_says_why_there_is_nothing_to_check(run, folder, make_model, tmp_path, monkeypatch):
    other = make_model(tmp_path / "relu")
    config = json.loads((other / "config.json").read_text("utf-8"))
    (other / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}), "utf-8")
    assert int8_check.reason_against_int8(str(other)) == f"{other} is no encoder of a family that is computed in int8"
    monkeypatch.setattr(int8_check, "has_int8_products", lambda: False)
    result = run("index", str(folder), "--precision", "auto", "--model", make_model(tmp_path / "model"))
    assert result.code == 0
    assert result.err.startswith("not int8: this processor does not multiply int8 (AVX-512 VNNI, AVX-VNNI or AMX)")


def test_a_sample_has_at_most_400_files(tmp_path):
    for number in range(799):
        (tmp_path / f"{number}.txt").write_text("text", "utf-8")
    assert len(sampled([tmp_path], [])) == 400
    (tmp_path / "large.txt").write_bytes(b"x" * 2**21)
    assert sum(file.stat().st_size for file in sampled([tmp_path], [])) <= 2**21
    assert sampled([tmp_path / "0.txt", tmp_path / "none"], []) == [tmp_path / "0.txt"]


def test_float32_and_bf16_are_of_one_run(run, folder, tiny_model, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "")
    assert run("index", str(folder), "--precision", "fp32", "--model", tiny_model).code == 0
    assert os.environ["BINOCLE_PRECISION"] == "float32"
    assert model(run, str(folder)) == tiny_model
    other = folder / "new.md"
    other.write_text("A new page about the moon at night.", "utf-8")
    result = run("index", str(folder), "--precision", "bf16")
    has_bf16 = "BF16" in import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert result.code == (0 if has_bf16 else 2)
    assert has_bf16 or "this processor does not compute in bf16" in result.err


def model(run, at: str) -> str:
    """The name of the encoder of an index."""
    return json.loads(run("status", at, "--json").out)["model"]
