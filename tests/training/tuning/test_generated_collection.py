from __future__ import annotations

from collections import Counter

import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.core.sentences import plain, spans
from binocle.training.data import beir
from binocle.training.tuning import generated_collection
from binocle.training.tuning.queries.term_weights import normalised

NAMES = "osmium gallium rhodium niobium hafnium tantalum indium thallium yttrium cerium".split()
TOOLS = "microscope barometer gazette spectrograph megaphone cyclotron kiln furnace crucible bellows".split()


def page(number: int, title: str | None = None) -> str:
    """A document of two sections, whose words are of three names and three tools."""
    first, second, third = (NAMES[(number + step) % 10] for step in (0, 3, 5))
    kiln, bellows, gazette = (TOOLS[(7 * number + step) % 10] for step in (0, 1, 2))
    return (
        f"# {title or f'The nature of {first} in a {kiln}'}\n\nThe {first} of the {bellows} was found by {number} men. "
        f"It melts with {second} at the heat of a {kiln}.\n\n## Uses of {third} for a {gazette}\n\nA smith mixed "
        f"{third} with the {first} of a {gazette}. Blades of {second} keep the edge of a {bellows}.\n"
    )


FILES = {f"{number}.md": page(number) for number in range(10)}


@pytest.fixture
def generate(tmp_path, tiny_model, write):
    def generating(files):
        write(tmp_path / "notes", files)
        retriever = Retriever.open(tmp_path / "notes", model=tiny_model)
        retriever.sync()
        folder = tmp_path / f"generated-{len(list(tmp_path.iterdir()))}"
        generated_collection.write(retriever.snapshot(), folder)
        documents = {row["id"]: row for row in beir.documents(folder)}
        return beir.queries(folder), beir.qrels(folder, "test"), documents

    return generating


def parts(document):
    text = document["text"]
    lines = [part for line in text.split("\n") for part in line.split(" > ")]
    return {normalised(plain(part)) for part in [document["title"], *lines, *(text[a:b] for a, b in spans(text))]}


def test_each_query_is_taken_out_of_its_document_and_stands_in_no_other(generate):
    queries, judged, documents = generate(FILES)
    asked = Counter(document for grades in judged.values() for document in grades)
    assert queries.keys() == judged.keys()
    assert asked.keys() == documents.keys() == FILES.keys()
    assert set(asked.values()) == {1, 2}
    for number, text in queries.items():
        (document,) = judged[number]
        assert normalised(text) in normalised(FILES[document])
        assert not any(normalised(text) in parts(documents[name]) for name in documents)
    assert all(len(row["text"]) > len(FILES[name]) / 3 for name, row in documents.items())


def test_the_kinds_of_queries_are_in_balance(generate):
    queries, _, _ = generate(FILES)
    titles, sections = (sum(text.startswith(start) for text in queries.values()) for start in ("The nature", "Uses"))
    assert min(titles, sections, len(queries) - titles - sections) >= 4  # the rest are sentences


def test_the_same_documents_give_the_same_collection(generate):
    assert generate(FILES) == generate(FILES)


def test_what_several_documents_say_is_no_query(generate):
    files = {f"{number}.md": page(number, "Read osmium kiln") for number in range(5)}
    queries, judged, _ = generate(files | {"copy.md": page(0)})
    assert "Read osmium kiln" not in queries.values()
    assert queries.keys() == judged.keys()
    asked = [document for grades in judged.values() for document in grades]
    assert "0.md" not in asked
    assert asked.count("copy.md") == 1  # its title


def test_documents_without_sentences_give_an_error(generate):
    with pytest.raises(InputError, match="no query could be made from the documents of"):
        generate({"a.txt": "Bread."})
