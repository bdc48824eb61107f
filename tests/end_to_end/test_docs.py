"""The documentation holds: its blocks run, its links resolve, its tables, charts and command reference are current."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from html import unescape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from binocle import Retriever
from binocle.retriever.inversion.inverter import EmbeddingInverter
from binocle.retriever.models import model_files
from binocle.retriever.readers import ReaderPool, large_files
from binocle.retriever.readers import document_builder as readers
from binocle.retriever.store.head import Head
from binocle.retriever.store.tables import chunk_schema, document_schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)): page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md"))}
OUTSIDE = {"README.md": ROOT / "README.md", "CONTRIBUTING.md": ROOT / "CONTRIBUTING.md"}
ROOMS = ("*.py", "core/**/*.py", "indexes/**/*.py", "retriever/**/*.py", "training/**/*.py", "commands/**/*.py")
FRAMEWORKS = ("langchain_core", "haystack", "llama_index", "mteb")
TRAINING = ("train", "tune", "distill", "pretrain", "fill", "audit", "invert", "mine", "compare", "evaluate")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    code: str
    not_run: str  # the reason, or ""


def find_blocks(page: str, text: str) -> list[Block]:
    pattern = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[2], match[3], match[1] or "")
        for match in pattern.finditer(text)
    ]


BLOCKS = [block for page, text in PAGES.items() for block in find_blocks(page, text)]
SHOWN = "encoders.md"  # its outputs are compared too
RUN = [block for block in BLOCKS if block.language in ("sh", "python")]
LOOKS = [block for block in RUN if block.page == SHOWN and block.code.startswith("binocle look ")]
NOT_RUN = {  # every block that cannot run here, and why
    ("how-to/agents.md", "installs packages"): 1,
    ("how-to/cluster.md", "needs S3 and a Ray cluster"): 1,
    ("how-to/encoders.md", "downloads a model"): 3,
    ("how-to/encoders.md", "needs a GPU"): 1,
    ("how-to/frameworks.md", "downloads a benchmark"): 1,
    ("how-to/frameworks.md", "installs packages"): 1,
    ("how-to/python.md", "needs lancedb, which some installations lack"): 1,
    ("how-to/search.md", "it leaves a process behind"): 1,
    ("how-to/serve.md", "a server runs until it is stopped"): 1,
    ("how-to/serve.md", "installs packages, and a server runs until it is stopped"): 1,
    ("how-to/serve.md", "needs that server"): 1,
    ("how-to/train.md", "needs GPUs"): 1,
    ("how-to/vector-indexes.md", "needs a GPU"): 1,
    ("tutorial.md", "installs packages"): 1,
}


def test_blocks_are_shell_python_or_text_and_those_that_cannot_run_are_known():
    assert {block.language for block in BLOCKS} <= {"sh", "python", "text"}
    skipped: dict[tuple[str, str], int] = {}
    for block in RUN:
        if block.not_run:
            skipped[block.page, block.not_run] = skipped.get((block.page, block.not_run), 0) + 1
    assert skipped == NOT_RUN


THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese".split()
PAIRS = [
    {"query": f"{a} {b}", "positive": f"The {a} and the {b} sat in the house. A {b} ran at night."}
    for a in THINGS
    for b in THINGS
]
# Options that make the documented command small: the rest of the line runs as it stands.
LESS = {
    "train encoder": ["--steps", "4", "--evaluations", "1"],
    "train reranker": ["--steps", "4", "--evaluations", "1", "--queries", "24", "--depth", "10"],
    "train reader": ["--steps", "4", "--max-length", "48"],
    "train classifier": ["--steps", "4"],
    "train tagger": ["--steps", "4"],
    "train inverter": ["--steps", "4", "--evaluations", "1"],
    "tune": ["--steps", "2", "--pairs", "200"],
    "distill": ["--epochs", "0.1"],
    "pretrain": ["--steps", "4", "--evaluations", "1"],
    "audit": ["--steps", "2", "--lengths", "8", "--texts", "3"],
    "invert": ["--seconds", "0.2"],
}


@pytest.fixture(scope="session")
def _home(tmp_path_factory, _synced, tiny_model, make_model, make_reranker, write):
    """What `home` is copied from. Not to be changed."""
    home = tmp_path_factory.mktemp("prepared") / "home"
    cache_model(home / "hub", model_files.DEFAULT_MODEL, Path(tiny_model))
    cache_model(home / "hub", "sentence-transformers/all-mpnet-base-v2", Path(tiny_model))
    make_reranker(home / "my-reranker")
    cache_model(home / "hub", "cross-encoder/ms-marco-MiniLM-L6-v2", home / "my-reranker")
    make_model(home / "my-encoder", seed=1)
    shutil.copytree(_synced, home / "notes", ignore=shutil.ignore_patterns(".binocle"))
    shutil.copytree(_synced / "notes", home / "notes", dirs_exist_ok=True)
    shutil.rmtree(home / "notes" / "notes")
    write(home, {"docs/shipping.md": "# Shipping\n\nOrders leave within two days.\n", "faq/about.md": "# Questions\n"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(model_files, "BUNDLED", {})
        Retriever.open(home / "notes", model=model_files.DEFAULT_MODEL).sync()
    return home


@pytest.fixture
def home(tmp_path, monkeypatch, _home):
    """A home directory with the files that the pages name; hub names are tiny models in its cache."""
    home = shutil.copytree(_home, tmp_path / "home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(model_files, "BUNDLED", {})
    monkeypatch.chdir(home)
    monkeypatch.setattr("binocle.training.inversion.evaluation._CONTROLS", 2)
    correct = EmbeddingInverter.correct  # for 5 seconds each, to find the threshold of a new inverter
    monkeypatch.setattr(
        EmbeddingInverter,
        "correct",
        lambda self, vector, _, *rest, **named: correct(self, vector, 0.01, *rest, **named),
    )
    return home


def cache_model(hub: Path, name: str, folder: Path) -> None:
    """Put a model where the hub's client would have put it."""
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0", "utf-8")
    shutil.copytree(folder, repository / "snapshots" / "0")


@pytest.fixture
def training_data(home, monkeypatch):
    """Pairs, judged rows, a collection in BEIR's layout, questions, and vectors."""
    monkeypatch.setattr("binocle.training.audit.attacks.text_attacker._ROUNDS", 1)
    Retriever.open(home / "notes").add({"id": f"{n}", "text": row["positive"]} for n, row in enumerate(PAIRS))
    (home / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    rows = "".join(f"{row['query']}\t{row['positive']}\t{n % 5}\n" for n, row in enumerate(PAIRS, 3))
    asked = [{"question": row["query"], "answers": [row["positive"].split()[1]]} for row in PAIRS]
    paragraphs = [{"context": row["positive"], "qas": [qa]} for row, qa in zip(PAIRS, asked, strict=True)]
    (home / "train-v2.0.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), "utf-8")
    tickets = [{"text": row["positive"], "label": "pets" if "dog" in row["query"] else "other"} for row in PAIRS]
    (home / "tickets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tickets), "utf-8")
    shutil.copy(home / "tickets.jsonl", home / "few.jsonl")
    named = [{"tokens": row["query"].split(), "tags": ["B-PET", "O"]} for row in PAIRS]
    (home / "versions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named), "utf-8")
    teams = ({"id": f"{n}", "text": row["positive"], "metadata": {"team": f"{n % 2}"}} for n, row in enumerate(PAIRS))
    Retriever.open(home / "labelled").add(teams)
    (home / "new.txt").write_text("The dog sat in the house.\n", "utf-8")
    (home / "sts.tsv").write_text("sentence1\tsentence2\tscore\n" + rows, "utf-8")
    (home / "scifact" / "qrels").mkdir(parents=True)
    for name, column in (("corpus", "positive"), ("queries", "query")):
        lines = [json.dumps({"_id": f"{n}", "title": "", "text": row[column]}) for n, row in enumerate(PAIRS)]
        (home / "scifact" / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    judged = "".join(f"{n}\t{n}\t1\n" for n in range(0, len(PAIRS), 3))
    for split in ("train", "test"):
        (home / "scifact" / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, "utf-8")
    (home / "questions.tsv").write_text("q1\tcat\nq2\tincome tax\n", "utf-8")
    (home / "answers.tsv").write_text("q1\tcats.txt\t1\nq2\ttaxes.md\t1\n", "utf-8")
    queries = [f"{row['query']} {word}" for row in PAIRS for word in ("night", "house", "year", "tax")]
    (home / "queries.txt").write_text("\n".join(queries), "utf-8")
    np.save(home / "stolen.npy", np.eye(32, dtype=np.float32)[:3])
    return home


def needs_training(page: str) -> bool:
    return any(
        re.search(rf"^binocle ({'|'.join(TRAINING)})\b", block.code, re.MULTILINE)
        for block in RUN
        if block.page == page
    )


def runnable_pages() -> list:
    """Pages with blocks to run. Those that need an extra are skipped without it."""
    torch = [pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs binocle[train]")]
    missing = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is None]
    frameworks = [pytest.mark.skipif(bool(missing), reason="needs binocle[adapters]")]
    names = dict.fromkeys(block.page for block in RUN if not block.not_run)
    marks = {"how-to/frameworks.md": frameworks} | {name: torch for name in names if needs_training(name)}
    slow = {SHOWN: [pytest.mark.slow]}  # it trains four models
    return [pytest.param(name, marks=[*marks.get(name, []), *slow.get(name, [])]) for name in names]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves
@pytest.mark.parametrize("page", runnable_pages())
def test_every_block_of_a_page_runs(page, home, run, request):
    if needs_training(page) or page == "how-to/vector-indexes.md":
        request.getfixturevalue("training_data")
    if page == "how-to/train.md":
        shutil.rmtree(home / "my-encoder")  # what its first command makes
    variables: dict[str, object] = {}
    for block in (block for block in RUN if block.page == page and not block.not_run):
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.code, f"{page}:{block.line}", "exec"), variables)
        elif block not in LOOKS:  # which a test below runs
            lines = block.code.splitlines()
            printed = "".join([run_line(line, run, f"{page}:{block.line}") for line in lines])
            if page == SHOWN:
                assert_shown(printed, output_below(block))


def test_the_first_search_of_the_tutorial_prints_what_the_page_shows(home, run):
    block = next(block for block in RUN if block.page == "tutorial.md" and block.code.startswith("binocle search"))
    printed = run_line(block.code.strip(), run, "tutorial.md")
    joined = "  (2 passages, lines 1-9)"  # a tiny model takes shorter ones
    assert printed.replace(joined, "", 1).split("\n\n")[0] + "\n" == output_below(block)


def output_below(block: Block) -> str:
    """The first `text` block below a block, which shows its output."""
    return next(below.code for below in BLOCKS if below.page == block.page and below.line > block.line)


def assert_shown(printed: str, shown: str) -> None:
    """Compare an output with the page: numbers to 0.02, for they differ between processors; `…` is any text."""
    number = r"(?<![\w.])(\d+\.\d+|\d+%)"
    pattern = re.escape(re.sub(number, "\x00", shown.strip())).replace("…", ".*?").replace("\x00", number)
    match = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    assert match, f"{printed}\nwhere the page shows\n{shown}"
    numbers = [[float(text.rstrip("%")) for text in texts] for texts in (match.groups(), re.findall(number, shown))]
    np.testing.assert_allclose(*numbers, atol=0.021)


@pytest.mark.skipif(model_files.find_default() is None, reason="needs all-MiniLM-L6-v2")
@pytest.mark.parametrize("block", LOOKS, ids=[shlex.split(block.code)[2] for block in LOOKS])
def test_a_look_shows_what_the_page_says(block, run):
    printed = "".join(run(*shlex.split(line)[1:]).out for line in block.code.splitlines())
    assert_shown(printed, output_below(block))


def run_line(line: str, run, where: str) -> str:
    """Run `binocle …` in this process with fewer steps, and return its output.

    Pipes and redirections around it are the shell's.
    """
    words = shlex.split(line, comments=True)
    piped = re.match(r'echo "([^"]*)" \| binocle ', line)
    words = words[words.index("|") + 1 :] if piped else words
    for sign in ("|", ">"):
        words = words[: words.index(sign)] if sign in words else words
    assert words[0] == "binocle", f"{where}: {line}"
    arguments = [os.path.expanduser(word) for word in words[1:]]
    command = " ".join(arguments[: 2 if arguments[0] == "train" else 1])
    if command == "audit" and "--defences" not in arguments:
        arguments += ["--defences", "int8"]
    if command == "pretrain" and "--layers" in arguments:
        arguments[arguments.index("--layers") + 1] = "1"  # the tiny models have two
    if "--steps" in LESS.get(command, []) and "--epochs" in arguments:
        start = arguments.index("--epochs")
        del arguments[start : start + 2]
    less = LESS.get(command, []) if command != "train classifier" or "--fine-tune" in arguments else []
    if command == "tune" and "--full" not in arguments:
        less = less[less.index("--pairs") :]  # it takes no steps
    if "--quick" in arguments:
        less = less[less.index("--lengths") :]  # it takes no steps
    answer = run(*arguments, *less, stdin=(piped[1] if piped else "").encode())
    unmeasured = command == "audit" and answer.code == 2 and "not measured: " in answer.out  # it learns two steps
    assert unmeasured or answer.code in (0, 1), f"{where}: {line}\n{answer.err}"
    assert "Traceback" not in answer.err, answer.err
    return answer.out


# Links


def anchors(text: str) -> set[str]:
    """The anchors that headings get, on the site and on GitHub."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("name", [*PAGES, *OUTSIDE])
def test_every_relative_link_and_anchor_resolves(name):
    file = OUTSIDE.get(name, DOCS / name)
    text = file.read_text("utf-8")
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (file.parent / path).resolve() if path else file
        if not linked.is_file() or (anchor and anchor not in anchors(linked.read_text("utf-8"))):
            dead.append(target)
    assert dead == []


def test_every_page_is_in_the_navigation():
    navigation = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(navigation) == sorted(PAGES)


def test_every_file_and_folder_that_the_pages_name_exists():
    text = "".join((ROOT / name).read_text("utf-8") for name in ("CONTRIBUTING.md", "docs/architecture.md"))
    named = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:\.py|/))`", text))
    rooms = [
        ROOT,
        *(file.parent for top in ("retriever", "training", "indexes") for file in (ROOT / top).rglob("__init__.py")),
    ]
    assert len(named) > 40
    assert [name for name in sorted(named) if not any((room / name).exists() for room in rooms)] == []


def test_every_name_that_contributing_gives_is_in_the_code():
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Where things go")[1].split("\n## ")[0]
    named = {name for name in re.findall(r"`(\w+)`", section) if "_" in name or name != name.lower()}
    code = " ".join(file.read_text("utf-8") for room in ROOMS for file in ROOT.glob(room))
    assert len(named) > 8
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", code)] == []


def test_the_notebook_runs(home, capsys):
    notebook = json.loads((DOCS / "notebook.ipynb").read_text("utf-8"))
    variables: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile(cell["source"], f"cell {number}", "exec"), variables)
    shown = capsys.readouterr().out
    assert "3 indexed" in shown and "['refunds.md']" in shown and "[1] refunds.md" in shown


# Drift


def load_script(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documentation_is_generated_from_the_checkout_that_holds_the_script(tmp_path):
    (tmp_path / "checkout" / ".ci").mkdir(parents=True)
    (tmp_path / "checkout" / "__init__.py").touch()
    file = shutil.copy(ROOT / ".ci" / "docs.py", tmp_path / "checkout" / ".ci")
    script = (
        "import runpy, sys; runpy.run_path(sys.argv[1])['import_checkout'](); import binocle; print(binocle.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path / 'checkout' / '__init__.py'}\n"


def test_generated_tables_pictures_and_the_command_reference_are_current():
    files = load_script(ROOT / ".ci" / "docs.py").generated()
    stale = [str(file.relative_to(DOCS)) for file, text in files.items() if file.read_text("utf-8") != text]
    assert stale == [], "run python .ci/docs.py"


def test_the_index_format_lists_the_columns_and_keys_of_the_store():
    sections = re.split(r"^## ", (DOCS / "reference" / "index-format.md").read_text("utf-8"), flags=re.MULTILINE)
    listed = {
        section.split("\n")[0]: [
            name
            for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
        ]
        for section in sections
    }
    assert listed["documents"] == document_schema().names
    assert listed["chunks"] == chunk_schema(4, previous=True).names
    assert sorted(listed["HEAD.json"]) == sorted(field.name for field in fields(Head))


def test_the_limits_of_readers_are_those_of_the_code():
    limits = inspect.signature(ReaderPool).parameters
    page = (DOCS / "reference" / "file-formats.md").read_text("utf-8")
    for name, value in (
        ("size of a file that is not plain text", f"{limits['max_bytes'].default // 2**20} MB"),
        ("size of a plain text file", f"none: above {large_files.MAX_WHOLE // 10**6} MB it is read in parts"),
        ("characters of a document", f"{readers.MAX_CHARACTERS // 10**6} million"),
        ("parts of a document", f"{readers.MAX_PARTS // 10**6} million"),
        ("processor time for one file", f"{limits['seconds'].default:g} s"),
        ("time for one file by the clock", f"{limits['wall_seconds'].default:g} s"),
        ("memory of one reader process", f"{limits['memory'].default / 1e9:g} GB"),
    ):
        assert f"| {name} | {value} |" in page


def test_charts_match_the_committed_results():
    charts = load_script(ROOT / "benchmarks" / "charts.py")
    stale = [
        name for name, draw in charts.CHART_OF.items() if (charts.CHARTS / f"{name}.svg").read_text("utf-8") != draw()
    ]
    assert stale == [], "run python -m benchmarks.charts"
    assert {file.stem for file in charts.CHARTS.glob("*.svg")} == charts.CHART_OF.keys()


def test_the_help_of_charts_draws_nothing(monkeypatch, capsys, tmp_path):
    charts = load_script(ROOT / "benchmarks" / "charts.py")
    monkeypatch.setattr(charts, "CHARTS", tmp_path / "charts")
    monkeypatch.setattr("sys.argv", ["charts", "--help"])
    with pytest.raises(SystemExit):
        charts.main()
    assert "Draw the charts" in capsys.readouterr().out
    assert not charts.CHARTS.exists()


def test_pages_quote_the_committed_results():
    results = {file.stem: json.loads(file.read_text("utf-8"))["results"] for file in charts_results()}
    text = (DOCS / "measurements.md").read_text("utf-8")
    modes = results["quality"]["scifact"]["modes"]
    values = [f"{modes[mode]['nDCG@10']:.3f}".removeprefix("0") for mode in ("semantic", "lexical", "hybrid")]
    assert ", ".join(values) in text
    rate = sorted(results["encoding"]["binocle_index_passages_per_second"])
    assert f"{rate[1]:.0f} ({rate[0]:.0f} to {rate[2]:.0f})" in text
    for name in ("pq=96", "pq=48", "binary", "truncate=96", "noise=0.06"):
        setting = results["candidates"]["settings"][name]
        leak, most, keep = (f"{setting[value]:.3f}".removeprefix("0") for value in ("leak", "leak_high", "keep"))
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert f"| {leak} (at most {most}) |" in row and row.endswith(f"| {keep} |")


def test_the_changelog_counts_the_objectives():
    from binocle.training.encoders.objectives.objectives import OBJECTIVES as OF_ENCODERS
    from binocle.training.rerankers.ranking_objectives import OBJECTIVES as OF_RERANKERS

    counts = f"`train encoder` has {len(OF_ENCODERS)} objectives of sentence-transformers and `train reranker` {len(OF_RERANKERS)}"
    assert counts in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_page_on_rerankers_tells_the_recipe_from_the_settings_that_were_measured():
    from binocle.commands.models.recipes import BUILT_IN

    recipe = BUILT_IN["reranker"]["general"]
    training = json.loads((ROOT / "benchmarks/results/general_reranker.json").read_text("utf-8"))["results"]["training"]
    assert training["lists"].startswith("of eight passages")
    measured = training | {"negatives": 7}
    page = (DOCS / "how-to" / "rerankers.md").read_text("utf-8")
    for option in ("batch_size", "learning_rate", "max_length", "negatives"):
        row = f"| `--{option.replace('_', '-')}` | {recipe[option]} | {measured[option]} |"
        assert row in page


def charts_results() -> list[Path]:
    return sorted((ROOT / "benchmarks" / "results").glob("*.json"))


# Other hosts


def test_pictures_ask_no_other_host():
    for picture in DOCS.rglob("*.svg"):
        text = picture.read_text("utf-8")
        hosts = set(re.findall(r"(?:href=|src=|url\()[\"']?(https?://[^\"')]+)", text))
        assert hosts == set(), picture


# .ci/run runs these two by name: they build the whole site.
@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built strictly."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site):
    loaded = set()
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded |= set(re.findall(r"<(?:script|img|iframe|source)\b[^>]*\ssrc=[\"']?(https?://[^\"'\s>]+)", text))
        loaded |= {
            link
            for link in re.findall(r"<link\b[^>]*>", text)
            if re.search(r"href=[\"']?https?://", link) and "stylesheet" in link
        }
    for sheet in site.rglob("*.css"):
        loaded |= set(re.findall(r"url\([\"']?(https?://[^\"')]+)", sheet.read_text("utf-8")))
    assert loaded == set()


@pytest.mark.slow
def test_the_python_reference_shows_every_public_name(site):
    import binocle

    text = unescape((site / "reference" / "python.html").read_text("utf-8"))
    assert [name for name in binocle.__all__ if f'id="binocle.{name}"' not in text and f'.{name}"' not in text] == []
