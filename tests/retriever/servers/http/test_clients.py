"""The HTTP server, asked by the clients of OpenAI and Cohere and by a fuzzer, where they are installed."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("uvicorn")

from binocle import F

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # of other people's clients


def test_the_client_of_openai_encodes_and_searches(serving, retriever, tiny):
    openai = pytest.importorskip("openai")
    retriever.add([{"id": name, "text": f"The ship of {name}.", "metadata": {"tenant": name}} for name in ("t1", "t2")])
    with (
        serving(retriever) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        answer = client.embeddings.create(model="any", input=["the cat", "the ship"])
        vectors = [row.embedding for row in answer.data]
        np.testing.assert_allclose(vectors, tiny.encode(["the cat", "the ship"]), atol=1e-5)
        assert answer.usage.prompt_tokens == sum(map(len, tiny.offsets(["the cat", "the ship"])))
        assert (
            len(client.embeddings.create(model="any", input="the cat", encoding_format="float").data[0].embedding) == 32
        )
        filters = {"type": "and", "filters": [{"type": "eq", "key": "tenant", "value": "t1"}]}
        page = client.vector_stores.search("notes", query="ship", filters=filters, max_num_results=5)
        (result,) = page.data
        (hit,) = retriever.search("ship", where=F.tenant == "t1")
        assert (result.file_id, result.score, result.content[0].text) == (hit.path, hit.relevance, hit.text)
        assert result.attributes == {"tenant": "t1"}
        assert len(list(client.vector_stores.search("notes", query="ship", max_num_results=3))) == 3  # all pages
        with pytest.raises(openai.NotFoundError, match="there is no index 'third' here"):
            client.vector_stores.search("third", query="ship")
        with pytest.raises(openai.BadRequestError, match="there is no filter of type"):
            client.vector_stores.search("notes", query="ship", filters={"type": "never"})


def test_the_client_of_cohere_reranks(serving, retriever, make_reranker, tmp_path):
    cohere = pytest.importorskip("cohere")
    from binocle.retriever.models.load import load_reranker

    reranker = load_reranker(make_reranker(tmp_path / "reranker"))
    documents = ["the cat", "the ship sails", "bread and salt"]
    httpx = pytest.importorskip("httpx")
    with serving(retriever, reranker) as address, httpx.Client() as connections:
        client = cohere.ClientV2(base_url=address, api_key="none", httpx_client=connections)
        answer = client.rerank(model="any", query="ship", documents=documents, top_n=2)
        scores = reranker.score("ship", documents)
        assert [row.index for row in answer.results] == np.argsort(-scores)[:2].tolist()
        assert 0 <= answer.results[1].relevance_score <= answer.results[0].relevance_score <= 1
        with pytest.raises(cohere.BadRequestError, match="documents"):
            client.rerank(model="any", query="ship", documents=[])


SETTINGS = """
[checks.positive_data_acceptance]
enabled = false  # a filter that is a text but no filter fits the schema, and is refused
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 429]
"""


def test_no_request_of_a_fuzzer_gets_an_answer_that_openapi_does_not_describe(serving, retriever, tmp_path):
    pytest.importorskip("schemathesis")
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run", "--seed", "1"]
    with serving(retriever, writable=True) as address:
        result = subprocess.run(
            [*command, "--max-examples", "20", f"{address}/openapi.json"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert result.returncode == 0, result.stdout[-5_000:] + result.stderr[-1_000:]
    assert "Tested:" in result.stdout
