"""Taggers learn names, decode valid sequences, and are measured as seqeval measures."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.retriever.models.heads.chain import marginals, valid, viterbi
from binocle.retriever.models.heads.tagger import Tagger, entities, load_tagger, touching, word_spans
from binocle.training.data.heads.tagged import TaggedText, read_tagged, read_texts
from binocle.training.evaluation.heads.span_f1 import counts, span_f1

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

# From seqeval 1.2.2, seqeval/metrics/sequence_labeling.py, without its option `suffix`.


def end_of_chunk(prev_tag, tag, prev_type, type_):
    chunk_end = False
    if prev_tag == "B" and tag in ("B", "S", "O"):
        chunk_end = True
    if prev_tag == "I" and tag in ("B", "S", "O"):
        chunk_end = True
    if prev_tag not in ("O", ".") and prev_type != type_:
        chunk_end = True
    return chunk_end


def start_of_chunk(prev_tag, tag, prev_type, type_):
    chunk_start = tag in ("B", "S")
    if prev_tag in ("E", "S", "O") and tag in ("E", "I"):
        chunk_start = True
    if tag not in ("O", ".") and prev_type != type_:
        chunk_start = True
    return chunk_start


def get_entities(seq):
    if any(isinstance(s, list) for s in seq):
        seq = [item for sublist in seq for item in [*sublist, "O"]]
    prev_tag, prev_type, begin_offset, chunks = "O", "", 0, []
    for i, chunk in enumerate([*seq, "O"]):
        tag = chunk[0]
        type_ = chunk[1:].split("-", maxsplit=1)[-1] or "_"
        if end_of_chunk(prev_tag, tag, prev_type, type_):
            chunks.append((prev_type, begin_offset, i - 1))
        if start_of_chunk(prev_tag, tag, prev_type, type_):
            begin_offset = i
        prev_tag, prev_type = tag, type_
    return chunks


def published_f1(y_true, y_pred):
    true, predicted = set(get_entities(y_true)), set(get_entities(y_pred))
    correct = len(true & predicted)
    p = correct / len(predicted) if predicted else 0
    r = correct / len(true) if true else 0
    return 2 * p * r / (p + r) if p + r else 0


def test_span_f1_is_seqevals_on_1000_random_sequences():
    random = np.random.default_rng(0)
    tags = ["O", "O", "B-A", "I-A", "B-B", "I-B"]
    for _ in range(1_000):
        sizes = random.integers(1, 12, random.integers(1, 4))
        true, predicted = ([[tags[pick] for pick in random.integers(0, 6, size)] for size in sizes] for _ in range(2))
        own = span_f1(*counts(list(map(entities, predicted)), list(map(entities, true))))
        assert own == pytest.approx(published_f1(true, predicted), abs=1e-9)


def test_viterbi_gives_the_best_valid_sequence():
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    random = np.random.default_rng(0)

    def is_valid(path):
        tags = ["O", *(labels[number] for number in path)]
        return all(tag[0] != "I" or before in (tag, f"B{tag[1:]}") for before, tag in itertools.pairwise(tags))

    steps = valid(labels)[[0, 1, 0, 1]]
    for _ in range(20):
        scores = random.normal(size=(4, 5)).astype(np.float32)
        paths = filter(is_valid, itertools.product(range(5), repeat=4))
        best = max(paths, key=lambda path: sum(scores[row, column] for row, column in enumerate(path)))
        assert viterbi(scores, steps) == list(best)
    assert viterbi(np.empty((0, 5), np.float32), steps[:0]) == []
    assert viterbi(np.array([[0, 1]], np.float32), valid(["O", "I-A"])[[0]]) == [1]  # labels without B-A


def all_sequences(scores, steps):
    """Every sequence of labels with the sum of its scores."""
    words, labels = scores.shape
    paths = np.array([*itertools.product(range(labels), repeat=words)])
    before = np.column_stack([np.full(len(paths), labels), paths[:, :-1]])
    return paths, sum(scores[i, paths[:, i]] + steps[i, before[:, i], paths[:, i]] for i in range(words))


def test_a_chain_is_decoded_as_by_brute_force():
    random = np.random.default_rng(0)
    table = np.log(random.dirichlet(np.ones(4), (2, 5))).astype(np.float32)
    for words in (1, 2, 5):
        scores, steps = random.normal(size=(words, 4)).astype(np.float32), table[random.integers(0, 2, words)]
        paths, sums = all_sequences(scores, steps)
        assert viterbi(scores, steps) == paths[sums.argmax()].tolist()
        shares = np.exp(sums) / np.exp(sums).sum()
        expected = [[shares[paths[:, word] == label].sum() for label in range(4)] for word in range(words)]
        np.testing.assert_allclose(np.exp(marginals(scores, steps)), expected, atol=1e-5)


def test_marginals_of_scores_that_contradict_each_other_are_numbers():
    scores = np.array([[1e4, 0, 0], [0, 0, 1e4]], np.float32)  # O, then I-X, which may not follow
    likely = np.exp(marginals(scores, np.repeat(valid(["O", "B-X", "I-X"])[:1], 2, axis=0)))
    np.testing.assert_allclose(likely.sum(1), 1, atol=1e-5)


def test_the_loss_is_the_likelihood_among_all_sequences():
    torch = pytest.importorskip("torch")
    from binocle.training.heads.crf import negative_log_likelihood

    random = np.random.default_rng(0)
    table = np.log(random.dirichlet(np.ones(4), (2, 5))).astype(np.float32)
    scores, counts = random.normal(size=(3, 4, 4)).astype(np.float32), np.array([4, 2, 0])
    labels, touch = random.integers(0, 4, (3, 4)), random.integers(0, 2, (3, 4))
    expected = 0.0
    for text, words in enumerate(counts[:2]):
        paths, sums = all_sequences(scores[text, :words], table[touch[text, :words]])
        expected += np.log(np.exp(sums).sum()) - sums[(paths == labels[text, :words]).all(1)].item()
    loss = negative_log_likelihood(*map(torch.from_numpy, (scores, labels, touch, counts, table)))
    assert loss.item() == pytest.approx(expected / 6, abs=1e-5)


def test_the_scores_of_steps_are_frequencies():
    pytest.importorskip("torch")
    from binocle.training.heads.crf import log_transitions

    table = np.exp(
        log_transitions([([0, 1, 1], np.array([0, 0, 1])), ([0], np.array([0])), ([], np.array([], int))], 2)
    )
    np.testing.assert_allclose(table[0], [[0.5 / 2, 1.5 / 2], [0.5, 0.5], [2.5 / 3, 0.5 / 3]], atol=1e-6)
    np.testing.assert_allclose(table[1], [[0.5, 0.5], [0.5 / 2, 1.5 / 2], [0.5, 0.5]], atol=1e-6)


def test_words_touch_where_no_space_is_between_them():
    assert touching(word_spans("a foo-dev b")).tolist() == [0, 0, 1, 1, 0]
    assert touching([]).tolist() == []


def test_words_and_tags_follow_the_characters():
    text = "see foo_bar 1.2!"
    words = word_spans(text)
    assert [text[a:b] for a, b in words] == ["see", "foo", "_", "bar", "1", ".", "2", "!"]
    assert TaggedText(text, (("N", 4, 11), ("V", 12, 15)), "").tags(words) == "O B-N I-N I-N B-V I-V I-V O".split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Jose\u0301 Pen\u0303a", ["Jose\u0301", "Pen\u0303a"]),  # as macOS writes names of files
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("Schreib\u00admaschine", ["Schreib\u00admaschine"]),
        ("\u2068Ann\u2069 ran\u00ad", ["Ann", "ran"]),  # format characters around a word are no part of it
        ("❤\ufe0f👩\u200d💻", ["❤\ufe0f", "👩", "💻"]),
        ("ab\u200bcd _\u0301", ["ab", "cd", "_\u0301"]),  # a space without width
        ("\u0301 \u00ad", []),
    ],
)
def test_a_word_has_its_marks_and_the_format_characters_in_it(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_marked_characters_end_where_their_words_do():
    token = {"tokens": ["a", "\u2068Jose\u0301\u2069", "\u00ad"], "tags": ["O", "B-P", "B-Q"]}
    entity = {"text": "a \u2068Jose\u0301\u2069", "entities": [{"label": "P", "start": 3, "end": 7}]}
    assert read_texts([token])[0].spans == (("P", 3, 8), ("Q", 10, 11))  # that one no tagger can mark
    assert read_texts([entity])[0].spans == (("P", 3, 8),)


def test_three_layouts_give_the_same_texts(tmp_path):
    (tmp_path / "a.conll").write_text("-DOCSTART- O\n\ninstall X O\nfoo X B-N\nbar X I-N\n\nbread X O\n", "utf-8")
    rows = [{"tokens": ["install", "foo", "bar"], "tags": ["O", "B-N", "I-N"]}, {"tokens": ["bread"], "tags": ["O"]}]
    texts = [
        {"text": "install foo bar", "entities": [{"label": "N", "start": 8, "end": 15}]},
        {"text": "bread", "entities": []},
    ]
    expected = [TaggedText("install foo bar", (("N", 8, 15),), "install foo bar"), TaggedText("bread", (), "bread")]
    for source in (tmp_path / "a.conll", rows, texts):
        assert read_tagged(source, 0.0, 10, 0).learned == expected


def test_tokens_of_conll_keep_their_characters(tmp_path):
    lines = ["New York\tNNP\tB-PLACE", "10\u00a0km O", "a\u2028b\x85c O\r", "is O"]
    (tmp_path / "a.conll").write_bytes("\n".join(lines).encode())
    text = "New York 10\u00a0km a\u2028b\x85c is"
    assert read_texts(tmp_path / "a.conll") == [TaggedText(text, (("PLACE", 0, 8),), text)]


def test_a_wrong_tag_of_conll_is_refused_with_its_own_line(tmp_path):
    (tmp_path / "a.conll").write_text("the O\n\ncat B-PET\nran X\nfar O\n")
    with pytest.raises(InputError, match=r"a\.conll:4: the tag 'X' is not BIO: expected O, B-NAME or I-NAME"):
        read_texts(tmp_path / "a.conll")


@pytest.mark.parametrize("text", ["The cat sat on the mat.\nIt slept.\n", "cat\nmat\n"])
def test_a_text_file_without_tags_says_what_was_expected(text, tmp_path, run):
    (tmp_path / "texts.txt").write_text(text)
    message = (
        f"{tmp_path}/texts.txt has no tagged words: expected a token and its tag (O, B-NAME or I-NAME) on each line, "
        "as in 'Paris B-PLACE'; other rows are in a .jsonl, .csv, .tsv or .parquet file"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        read_tagged(tmp_path / "texts.txt", 0.0, 10, 0)
    assert run("evaluate", tmp_path / "texts.txt").err == f"binocle: {message}\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a"], "tags": []}, "row 1: expected a list of tokens and a list of as many tags"),
        ({"tokens": ["a"], "tags": ["X"]}, "the tag 'X' is not BIO"),
        ({"tokens": ["a"], "tags": ["B-"]}, "the tag 'B-' is not BIO"),
        ({"text": "a b"}, "expected tokens and tags, or a text"),
        ({"text": "a b", "entities": [{"label": "N", "start": 0}]}, "is no entity: expected label, start and end"),
        (
            {"text": "a b", "entities": [{"label": "N", "start": 1, "end": 2}]},
            "characters 1 to 2 of the text are no word",
        ),
        (
            {"text": "a b", "entities": [{"label": "N", "start": 0, "end": 9}]},
            "characters 0 to 9 of the text are no word",
        ),
        ({"text": "a b", "entities": [{"label": x, "start": 0, "end": 3} for x in "NM"]}, "overlaps another"),
        ({"text": "a b", "entities": []}, "the data have no marked name"),
    ],
)
def test_wrong_texts_are_named(row, message):
    with pytest.raises(InputError, match=message):
        read_tagged([row], 0.0, 10, 0)


@pytest.mark.parametrize("name", ["document_id", "doc_id", "group", "source_id"])
def test_texts_of_a_document_with_a_number_are_in_one_part(name):
    made = [{"tokens": ["Ann", str(number)], "tags": ["B-P", "O"], name: number // 10} for number in range(100)]
    texts = read_tagged(made, 0.2, 1_000, 0)
    learned, held_out = ({text.document for text in part} for part in (texts.learned, texts.held_out))
    assert learned | held_out == set(map(str, range(10))) and held_out and learned.isdisjoint(held_out)
    with pytest.raises(InputError, match=f"row 1: expected the name of a document in '{name}', but"):
        read_texts([made[0] | {name: [1]}])


def test_marked_characters_become_whole_words():
    def spans(*ends):
        entities = [{"label": "PET", "start": start, "end": end} for start, end in ends]
        return read_texts([{"text": "the cat sat, the dog-house", "entities": entities}])[0].spans

    assert spans((4, 8)) == spans((3, 7)) == spans((5, 6)) == spans((4, 7)) == (("PET", 4, 7),)
    assert spans((16, 19), (21, 24)) == (("PET", 17, 20), ("PET", 21, 26))
    with pytest.raises(InputError, match="at character 4 overlaps another, or cuts its word: expected at most one"):
        spans((4, 5), (6, 7))


@pytest.fixture(scope="session")
def trained(made_once, tiny_model):
    """A tagger of pets, which are two words: a colour and an animal."""
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from binocle.training.heads.config import HeadConfig
    from binocle.training.heads.train import train_tagger

    random = np.random.default_rng(0)
    rows = []
    for number in range(160):
        pet = f"{'red blue'.split()[number % 2]} {'cat dog'.split()[random.integers(2)]}"
        before = " ".join(
            ["bread", "salt", "the", "house"][pick] for pick in random.integers(0, 4, random.integers(1, 4))
        )
        start = len(before) + 1
        span = {"label": "PET", "start": start, "end": start + len(pet)}
        rows.append({"text": f"{before} {pet} ran {number}", "entities": [span]})
    config = HeadConfig(steps=25, max_length=16, learning_rate=5e-3, held_out=0.1, evaluations=1, bf16=False)
    return made_once("tagger", lambda folder: train_tagger(rows, folder, base=tiny_model, config=config))


def test_a_tagger_learns_and_is_served_without_torch(trained):
    import torch
    from transformers import AutoModelForTokenClassification

    from binocle.retriever.models.heads.bert_head import BertHead
    from binocle.retriever.models.heads.torch_head import inputs
    from binocle.retriever.models.heads.windows import text_windows

    measure = json.loads((trained / "binocle.json").read_text("utf-8"))["measures"][0]
    assert measure["name"] == "span F1" and measure["value"] > 0.9
    tagger = load_tagger(trained)
    assert isinstance(tagger.head, BertHead)
    text = "bread and salt red cat ran"
    ((entity,), none) = tagger.tag([text, ""])
    assert (entity.label, entity.text, text[entity.start : entity.end]) == ("PET", "red cat", "red cat")
    assert none == [] and 0 < entity.probability <= 1
    parts = text_windows(tagger.head.tokenizer(), text, 16)
    model = AutoModelForTokenClassification.from_pretrained(trained).eval()
    with torch.no_grad():
        expected = model(**inputs(model, parts)).logits[0]
    np.testing.assert_allclose(tagger.head.logits(parts)[0], expected, atol=1e-4)
    many = tagger.head.logits(parts * 200)  # by the compiled graph
    np.testing.assert_allclose(many, [expected.numpy()] * 200, atol=1e-4)


def test_a_tagger_of_the_first_layer_has_its_weights_and_no_more(tiny_model, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from safetensors.numpy import load_file

    from binocle.training.heads.config import HeadConfig
    from binocle.training.heads.train import train_tagger

    rows = [{"tokens": ["the", "cat", f"{n}"], "tags": ["O", "B-PET", "O"]} for n in range(4)]
    config = HeadConfig(steps=1, learning_rate=1e-9, held_out=0.0, bf16=False, max_length=16)
    train_tagger(rows, tmp_path / "out", base=tiny_model, config=replace(config, layers=1))
    base, short = (load_file(f"{folder}/model.safetensors") for folder in (tiny_model, tmp_path / "out"))
    name = "encoder.layer.{}.attention.self.query.weight"
    np.testing.assert_allclose(short[f"bert.{name.format(0)}"], base[name.format(0)], atol=1e-6)
    assert f"bert.{name.format(1)}" not in short and name.format(1) in base
    load_tagger(tmp_path / "out").tag(["the cat 3"])
    with pytest.raises(InputError, match="cannot keep the first 9"):
        train_tagger(rows, tmp_path / "long", base=tiny_model, config=replace(config, layers=9))


def test_capital_letters_are_seen_by_an_encoder_that_ignores_them(tiny_model, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from binocle.retriever.models.heads.windows import text_windows
    from binocle.training.heads.config import HeadConfig
    from binocle.training.heads.train import train_tagger

    rows = [
        {"tokens": ["the", pet, "ran", f"{n}"], "tags": ["O", tag, "O", "O"]}
        for n in range(40)
        for pet, tag in (("Cat", "B-NAME"), ("cat", "O"), ("Dog", "B-NAME"), ("dog", "O"))
    ]
    config = HeadConfig(steps=120, max_length=16, learning_rate=5e-3, held_out=0.1, evaluations=1, bf16=False)
    train_tagger(rows, tmp_path / "out", base=tiny_model, config=config)
    tagger = load_tagger(tmp_path / "out")
    names = tagger.tag(["the Cat ran 3", "the cat ran 3", "the dog ran and the Dog"])
    assert [[(entity.text, entity.start) for entity in of_text] for of_text in names] == [
        [("Cat", 4)],
        [],
        [("Dog", 20)],
    ]
    (window,) = text_windows(tagger.head.tokenizer(), "the Cat ran", 16, capitals=True)
    assert window.type_ids == [0, 0, 1, 0, 0]


def test_scores_of_steps_decide_where_words_are_undecided(tmp_path, make_head):
    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A", "I-A"])
    tagger = load_tagger(folder)
    assert tagger.settings.transitions is None  # of an earlier version, or from the hub
    never = -30.0
    apart = [[0.0, never, never]] * 4  # always outside
    together = [[never, never, 0.0]] * 4  # always continue the name
    first = [*apart[:3], [never, 0.0, never]]
    settings = replace(tagger.settings, transitions=[first, together])
    (names,) = Tagger(tagger.head, settings).tag(["cat-dog red cow"])
    assert [(name.label, name.text) for name in names] == [("A", "cat-dog")]
    assert names[0].probability > 0.99


def test_a_long_text_is_read_in_windows(trained):
    tagger = load_tagger(trained)
    text = "bread salt " * 30 + "red cat ran " + "bread salt " * 30
    spans = [(entity.start, entity.end) for entity in tagger.tag([text])[0]]
    assert (330, 337) in spans


def test_tag_prints_names_with_their_places(trained, tmp_path, run):
    model = ("--model", trained)
    shown = run("tag", "-", *model, stdin=b"bread\nthe house red cat ran\n")
    assert shown.out.split()[0] == "2:10" and shown.out.split()[2:] == ["PET", "red", "cat"]
    (tmp_path / "a.jsonl").write_text('{"text": "the house red cat ran"}\n', "utf-8")
    (row,) = run("tag", tmp_path / "a.jsonl", *model, "--json").rows
    assert [(e["label"], e["text"], e["start"], e["end"]) for e in row["entities"]] == [("PET", "red cat", 10, 17)]


def names_of(folder, text, *, go_on):
    """The names that a tagger marks; its steps make each word begin a name, or continue the first one."""
    tagger, never = load_tagger(folder), -17.0
    begin, follow = [never, 0.0, never], [never, never, 0.0]
    steps = [*[follow if go_on else begin] * 3, begin]
    (names,) = Tagger(tagger.head, replace(tagger.settings, transitions=[steps, steps])).tag([text])
    return [(name.text, name.start, name.end) for name in names]


def test_a_sign_without_a_token_does_not_end_a_name(tmp_path, make_head):
    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A", "I-A"])
    for text in ("re\u0301d cat", "re\u00add cat", "red \ue000 cat", "red\ue000cat"):
        assert names_of(folder, text, go_on=True) == [(text, 0, len(text))]
    assert names_of(folder, "\ue000 cat \ue000", go_on=True) == [("cat", 2, 5)]
    assert names_of(folder, "\ue000", go_on=True) == names_of(folder, "", go_on=True) == []


def test_a_name_has_all_words_of_its_last_token(tmp_path, make_head):
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import WhitespaceSplit

    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A", "I-A"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = names_of(folder, "the king§s u§s§ cat", go_on=False)  # two unknown tokens of several words
    assert names == [("the", 0, 3), ("king§s", 4, 10), ("u§s§", 11, 15), ("cat", 16, 19)]


def test_another_model_is_no_tagger(trained, tiny_model, tmp_path, make_head):
    with pytest.raises(InputError, match="no tagger"):
        load_tagger(tiny_model)
    damaged = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A"], settings={"tagger": {"length": "x"}})
    with pytest.raises(InputError, match="in 'tagger': length is 'x', expected a whole number of tokens from 8; copy"):
        load_tagger(damaged)
    for table in (
        [[0.0, 0.0]],
        [[[0.0, 0.0]] * 3, [[0.0, 1.0]] * 3],
        [[[0.0, "x"]] * 3] * 2,
        [[[0.0, 0.0]] * 3, [[0.0]]],
    ):
        (damaged / "binocle.json").write_text(json.dumps({"tagger": {"transitions": table}}), "utf-8")
        with pytest.raises(InputError, match="expected two tables of 3 rows with 2 numbers up to 0"):
            load_tagger(damaged)
    config = json.loads((damaged / "config.json").read_text("utf-8"))
    (damaged / "config.json").write_text(json.dumps(config | {"id2label": {"0": "O", "1": "B-A", "2": "I-A"}}), "utf-8")
    (damaged / "binocle.json").unlink()
    with pytest.raises(InputError, match=r"has classifier.weight of shape \(2, 32\): expected \(3, 32\)"):
        load_tagger(damaged)
