"""The words of a masked model, against the model's own probabilities."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from click.testing import CliRunner

from binocle.commands.models import pretrain as commands
from binocle.core.errors import InputError
from binocle.training.pretraining.fill_mask import Filler


@pytest.fixture(scope="session", params=["bert", "roberta"])
def parts(request, masked_models):
    folder = str(masked_models[request.param])
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    return Filler.load(folder), model, transformers.AutoTokenizer.from_pretrained(folder)


def probabilities(model, tokenizer, text: str) -> list:
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = model(**encoded).logits[0]
    return [
        logits[position].softmax(0) for position in (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0]
    ]


def test_each_mask_gets_the_models_likeliest_tokens_in_order(parts):
    filler, model, tokenizer = parts
    predictions = filler.fill("The [MASK] sat on the [MASK].", 4)
    expected = probabilities(model, tokenizer, f"The {tokenizer.mask_token} sat on the {tokenizer.mask_token}.")
    assert [len(guesses) for guesses in predictions] == [4, 4]
    for guesses, likely in zip(predictions, expected, strict=True):
        assert [guess.probability for guess in guesses] == pytest.approx(likely.topk(4).values.tolist(), abs=1e-6)
        assert all(guess.token for guess in guesses)


def test_masks_are_filled_one_by_one_the_surest_first(parts):
    filler, model, tokenizer = parts
    filled = filler.fill_in_turn("The [MASK] sat on the [MASK] [MASK].")
    assert sorted(step.mask for step in filled) == [1, 2, 3]
    ids = tokenizer("The [MASK] sat on the [MASK] [MASK].".replace("[MASK]", tokenizer.mask_token))["input_ids"]
    places = [place for place, token in enumerate(ids) if token == tokenizer.mask_token_id]
    for step in filled:
        with torch.no_grad():
            likely = model(torch.tensor([ids])).logits[0].softmax(1)
        likely[:, tokenizer.mask_token_id] = 0
        rivals = [likely[place].max().item() for place in places if ids[place] == tokenizer.mask_token_id]
        assert step.probability == pytest.approx(max(rivals), abs=1e-6)
        ids[places[step.mask - 1]] = int(likely[places[step.mask - 1]].argmax())


def test_all_probabilities_of_a_place_add_up_to_one(parts):
    filler, _, tokenizer = parts
    (guesses,) = filler.fill("The [MASK] sat.", 100_000)
    assert len(guesses) == len(tokenizer)
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("spelled", ["[MASK]", "[mask]", "own"])
def test_a_mask_may_be_spelled_as_anyone_does(spelled, parts):
    filler, _, tokenizer = parts
    text = f"The {tokenizer.mask_token if spelled == 'own' else spelled} sat."
    assert filler.fill(text) == filler.fill("The [MASK] sat.")


def test_a_word_is_shown_without_its_space_and_a_piece_with_its_sign(masked_models):
    shown = {
        family: [guess.token for guess in Filler.load(str(folder)).fill("The [MASK].", 900)[0]]
        for family, folder in masked_models.items()
    }
    assert {"cat", "##ing"} <= set(shown["bert"])
    assert "cat" in shown["roberta"]
    assert not any(token != token.strip() for token in shown["roberta"])


@pytest.mark.parametrize(
    ("text", "k", "message"),
    [
        ("The cat sat.", 5, r"there is no \[MASK\] in 'The cat sat.': put it where a word is to be filled in"),
        ("", 5, r"there is no \[MASK\] in ''"),
        ("The [MASK] sat.", 0, "a whole number from 1, not 0"),
        ("The [MASK] sat.", True, "a whole number from 1, not True"),
        ("The [MASK] sat. " * 30, 5, r"the text has \d+ tokens, but the model takes 64 at most: shorten it"),
    ],
)
def test_a_text_that_cannot_be_filled_is_told(text, k, message, parts):
    with pytest.raises(InputError, match=message):
        parts[0].fill(text, k)


def test_a_model_without_a_head_is_refused(tiny_model):
    with pytest.raises(
        InputError, match="has no head that names masked words: give a model made by 'binocle pretrain'"
    ):
        Filler.load(tiny_model)


def test_a_model_that_is_not_there_is_missed_before_torch_is_imported():
    script = (
        "import sys\n"
        "from binocle.training.pretraining.fill_mask import Filler\n"
        "try: Filler.load('none/such')\n"
        "except LookupError as error: print(error)\n"
        "print('torch' in sys.modules)\n"
    )
    said, imported = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    assert said.startswith(
        "there is no folder none/such here, and the masked language model none/such is not on this machine"
    )
    assert imported == "False"


def test_the_command_prints_words_with_their_probabilities(masked_models):
    folder = str(masked_models["bert"])
    (first, second) = Filler.load(folder).fill("The [MASK] [MASK].", 2)
    shown = CliRunner().invoke(commands.fill, ["The [MASK] [MASK].", "--model", folder, "-k", "2"])
    assert shown.output == "".join(
        f"mask {number}\n" + "".join(f"{guess.probability:7.2%}  {guess.token}\n" for guess in guesses)
        for number, guesses in enumerate((first, second), 1)
    )
    shown = CliRunner().invoke(commands.fill, ["The [MASK] [MASK].", "--model", folder, "--in-turn"])
    filled = Filler.load(folder).fill_in_turn("The [MASK] [MASK].")
    assert shown.output == "".join(f"mask {step.mask}  {step.probability:7.2%}  {step.token}\n" for step in filled)
    shown = CliRunner().invoke(commands.fill, ["-", "--model", folder, "-k", "1", "--json"], input="The [MASK].\n")
    (only,) = Filler.load(folder).fill("The [MASK].\n", 1)[0]
    assert (
        shown.output
        == f'{{"mask": 1, "predictions": [{{"token": "{only.token}", "probability": {only.probability}}}]}}\n'
    )
