from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binocle import Retriever
from binocle.core.errors import BinocleError
from binocle.retriever.search.words.exact import (
    DEFINITION,
    DEFINITION_IN_OTHER_CASE,
    UNDER_ITS_NAME,
    UNDER_ITS_NAME_IN_OTHER_CASE,
    USE,
    USE_IN_OTHER_CASE,
    ExactQuery,
    grade,
    parse,
)

ORDINARY = [
    "how do I cancel a running task",
    "What did Angela Merkel say in Berlin in 2015?",
    "the well-known up-to-date state-of-the-art method",
    "either/or, and/or, his/her",
    "C++ or C# - which is faster",
    'a 5" disk and a 3" disk',
    "NASA and the EU, i.e. the U.S. e.g. at 5 p.m.",
    "what does tar -czf do",
    "what methods -dash exact or approximate -dash are available",
    "ls -l and tar -xz of minus -5 degrees",
    "-unfinished at the start",
    "1990 2015 42 50% 1,000 3rd 10:30 +49 30",
    "don't say \"\" or ' '",
    "Queue, Worker; (Server) [Client]!",
    'What does the author of this letter mean by "freedom of the press", and why?',
]


@pytest.mark.parametrize("query", ORDINARY)
def test_an_ordinary_sentence_has_no_exact_part(query):
    assert parse(query) == ExactQuery(query)
    assert not parse(query)


@pytest.mark.parametrize(
    "token",
    "full_like __init__ _private MAX_SIZE maxRetries BadParameter HTTPServer2Go std::vec::Vec np.linalg.norm Cargo.toml "
    "src/main.rs /etc/hosts ./run ~/notes docs\\guide.md 1.2.3 v2 v1.0-rc1 3.11 #2809 0x1F 2024-01-31 CVE-2024-1234 "
    "miR-155 E0382 SHA256 --dry-run".split(),
)
def test_what_looks_like_an_identifier_is_a_token(token):
    query = f"what is ({token})?"
    assert parse(query) == ExactQuery(query, tokens=(token,))
    assert parse(token) == ExactQuery(token, tokens=(token,))


def test_in_a_sentence_only_the_definition_of_a_plain_name_counts():
    sentence = "effect of miR-155 and IL-10 with BadParameter and 3.11 in task_queue of E0382"
    parts = parse(sentence)
    assert parts == ExactQuery(
        sentence, tokens=("task_queue", "E0382"), names=("miR-155", "IL-10", "BadParameter", "3.11")
    )
    assert parts.level("IL-10 BadParameter 3.11") == (0, 0)
    assert parts.level("class BadParameter:") == (1, DEFINITION)
    assert parts.matches("IL-10\nclass BadParameter:") == {"BadParameter": "definition"}


def test_fewer_passages_are_read_for_a_plain_name_in_a_sentence():
    assert parse('scripts of "one page" in JavaScript for task_queue').lookups == {
        "one page": 1_000,
        "one page task_queue": 1_000,
        "one page JavaScript": 250,
    }
    assert parse("JavaScript").lookups == {"JavaScript": 1_000}
    assert parse("+=>").lookups == {}


@pytest.mark.parametrize("query", ["options", "def options", "function options", "struct options"])
def test_of_a_query_that_is_one_word_the_definition_counts(query):
    parts = parse(query)
    assert parts == ExactQuery(query, names=("options",))
    assert parts.level("all options of x") == (0, 0)
    assert parts.level("    def options(self):") == (1, DEFINITION)


def test_of_a_query_that_is_one_word_with_hyphens_the_section_of_that_name_counts():
    parts = parse("pre-receive")
    assert parts == ExactQuery("pre-receive", names=("pre-receive",))
    assert parts.level("the pre-receive hook", ["post-receive"]) == (0, 0)
    assert parts.level("the pre-receive hook", ["Hooks", "pre-receive"]) == (1, UNDER_ITS_NAME)
    assert parse("a pre-receive hook") == ExactQuery("a pre-receive hook")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('find "borrowed  value" now', ExactQuery("find borrowed value now", required=("borrowed value",))),
        ("find “borrowed value”, now", ExactQuery("find borrowed value, now", required=("borrowed value",))),
        ("„geliehener Wert“ suchen", ExactQuery("geliehener Wert suchen", required=("geliehener Wert",))),
        ('he wrote "to be or not."', ExactQuery("he wrote to be or not", required=("to be or not",))),
        ("snake -python", ExactQuery("snake", excluded=("python",))),
        ('snake -"monty python"', ExactQuery("snake", excluded=("monty python",))),
        ("snake -python +boa -monty", ExactQuery("snake boa", ("boa",), ("python", "monty"))),
        ('-"monty python" snake', ExactQuery("snake", excluded=("monty python",))),
        ('-"monty python"', ExactQuery('-"monty python"')),
        ("snake +python", ExactQuery("snake python", required=("python",))),
        ("+go routine", ExactQuery("go routine", required=("go",))),
        (
            'full_like in "a b" +must -never',
            ExactQuery("full_like in a b must", ("a b", "must"), ("never",), ("full_like",)),
        ),
        ('"full_like" full_like()', ExactQuery("full_like full_like()", required=("full_like",))),
        ("=>", ExactQuery("=>", tokens=("=>",))),
        ("307", ExactQuery("307", tokens=("307",))),
        ("code 307", ExactQuery("code 307")),
        ("C++", ExactQuery("C++", tokens=("C++",))),
        ("F#", ExactQuery("F#", tokens=("F#",))),
        ("Hello!", ExactQuery("Hello!")),
        ("🍕 🍕", ExactQuery("🍕 🍕", tokens=("🍕 🍕",))),
    ],
)
def test_operators_are_taken_out_of_the_text(query, expected):
    assert parse(query) == expected


@given(st.text() | st.text('ab_"“”„ -+.:/#1A()\n'))
def test_every_query_is_parsed_and_keeps_some_text(query):
    query = query.strip()
    parts = parse(query)
    assert bool(parts.text) == bool(query)
    for literal in (*parts.required, *parts.excluded, *parts.tokens):
        assert literal.strip()
        assert grade(literal, f"x\n{literal} y") in (DEFINITION, USE), literal
    parts.passes(query)


@given(st.lists(st.from_regex(r"[A-Z]?[a-z]{1,9}[,.!?]?", fullmatch=True), min_size=3).map(" ".join))
def test_a_sentence_of_words_is_itself(sentence):
    assert parse(sentence) == ExactQuery(sentence)


@pytest.mark.parametrize(
    ("literal", "passage", "expected"),
    [
        ("run_all", "    async def run_all(self):", DEFINITION),
        ("Task", "text\nclass Task(Base):", DEFINITION),
        ("Task", "pub(crate) struct Task<T> {", DEFINITION),
        ("Next", "func (it *Iterator) Next() bool {", DEFINITION),
        ("run_all", "export async function run_all() {", DEFINITION),
        ("LIMIT_A", "LIMIT_A: Final[int] = 3", DEFINITION),
        ("LIMIT_A", "const LIMIT_A = 3;", DEFINITION),
        ("LIMIT_A", "#define LIMIT_A 3", DEFINITION),
        ("run_all", "static std::vector<int> *run_all(int a,\n    int b)\n{", DEFINITION),
        ("runAll", "    public void runAll(Task task) throws Error {", DEFINITION),
        ("runAll", "  runAll(task) {", DEFINITION),
        ("run_all", "run_all() {", DEFINITION),
        ("runAll", "  @Test internal suspend fun <T> List<T>.runAll(): T =", DEFINITION),
        ("runAll", "    public private(set) var runAll: Int", DEFINITION),
        ("runAll", "    override val runAll by lazy {", DEFINITION),
        ("runAll", "class Box(\n  val runAll: Int,", DEFINITION),
        ("runAll", "    private static final Map<String, Integer> runAll = null;", DEFINITION),
        ("RunAll", "  public string RunAll { get; set; }", DEFINITION),
        ("RunAll", "internal sealed record RunAll(int A);", DEFINITION),
        ("runAll", "    protected $runAll = [];", DEFINITION),
        ("run_all", "  defp run_all(task) do", DEFINITION),
        ("run_all", "local function M.run_all(task)", DEFINITION),
        ("run_all", "  def self.run_all", DEFINITION),
        ("RunAll", "message RunAll {", DEFINITION),
        ("run_all", 'variable "run_all" {', DEFINITION),
        ("run_all", 'resource "aws_vpc" "run_all" {', DEFINITION),
        ("run_all", "create or replace function app.run_all(a int)", DEFINITION),
        ("run_all", "CREATE TABLE IF NOT EXISTS [run_all] (", DEFINITION),
        ("run_all", "(defun run_all (task)", DEFINITION),
        ("run_all", "  value = var.run_all", USE),
        ("--dry-run", "`-n`::\n`--dry-run`::\n    Do nothing.", DEFINITION),
        ("--dry-run", "-n, --dry-run\n       Do nothing", DEFINITION),
        ("--dry-run", "  -n, --dry-run <when>  Do nothing", DEFINITION),
        ("--dry-run", "* **--dry-run**: do nothing", DEFINITION),
        ("--dry-run", "| `--dry-run` | do nothing |", DEFINITION),
        ("--dry-run", ".. option:: --dry-run", DEFINITION),
        ("--dry-run", "--dry-run[=(yes|no)]::", DEFINITION),
        ("--dry-run", "  --dry-run TEXT  Do nothing", DEFINITION),
        ("--dry-run", "the flag\n--dry-run does nothing", USE),
        ("--dry-run", "git push \\\n  --dry-run \\\n  x", USE),
        ("runAll", "    const runAll = 3;", USE),
        ("run_all", "Create the file run_all", USE),
        ("run_all", "SELECT * FROM run_all;", USE),
        ("run_all", "if run_all(task) {", USE),
        ("run_all", "    return run_all(task);\n}\nint main() {", USE),
        ("LIMIT_A", "if (\nLIMIT_A == 3", USE),
        ("run_all", "    run_all=True,", USE),
        ("run_all", "# def run_all", USE),
        ("run_all", "def run_all_now(): run_all()", USE),
        ("run_all", "def Run_All():", DEFINITION_IN_OTHER_CASE),
        ("run_all", "RUN_ALL", USE_IN_OTHER_CASE),
        ("run_all", "prerun_all run_all2 run_all_", 0),
        ("1.2.3", "1.2.3.4 11.2.3 0.1.2.3", 0),
        ("1.2.3", "version 1.2.3.", USE),
        ("#2809", "#28091 2809 ##2809", 0),
        ("#2809", "fixes:#2809,", USE),
        ("--all", "--all-of --allow", 0),
        ("two words", "Two\n   words", USE_IN_OTHER_CASE),
        ("東京", "在東京都内", USE),
        *(
            ("run_all", call, USE)  # a call with a callback is no definition
            for call in (
                "run_all('~([a-z])~', function ($match) {",
                "echo run_all('x', function () {",
                "run_all(() => {",
                'run_all("/", async (request, answer) => {',
                "run_all(new Task() { int run() {",
            )
        ),
        ("run_all", "static int run_all(const char *name, void (*done)(int (*)(void), int)) {", DEFINITION),
        ("run_all", "public List<T> run_all(@Named(value = make(3)) T one)\n    throws Error {", DEFINITION),
    ],
)
def test_definitions_are_better_than_uses(literal, passage, expected):
    assert grade(literal, passage) == expected


@pytest.mark.parametrize("line", ["@a", "@a(b)", "static", "public static", "export const", "a_b("])
def test_a_hostile_passage_is_judged_in_linear_time(line):  # else this runs for minutes
    assert grade("a_b", f"{line}\n" * 40_000 + "a_b") == USE


def test_a_definition_below_its_annotations_is_found():
    for above in ("@A\n@B(1)\n", "@A @B\n\n  public\n    ", "@A\n" * 40 + "static final\n", "\texport\n\t"):
        assert (
            grade("Table", f"{above}class Table {{")
            == grade("Table", f"import Table;\n{above}class Table {{")
            == DEFINITION
        )


def test_what_stands_under_the_name_comes_between_definition_and_use():
    assert grade("run_all", "run_all\ntext", ["API", "`run_all()`"]) == UNDER_ITS_NAME
    assert grade("Run_All", "run_all\ntext", ["API", "`run_all()`"]) == UNDER_ITS_NAME_IN_OTHER_CASE
    assert grade("run_all", "run_all\ndef run_all():", ["run_all"]) == DEFINITION
    assert grade("Run_All", "run_all\ndef run_all():", ["run_all"]) == DEFINITION_IN_OTHER_CASE
    assert parse("options").level("options\ntext", ["options"]) == (1, UNDER_ITS_NAME)


def test_the_line_that_defines_a_long_function_comes_first(tmp_path, tiny_model):
    folder = tmp_path / "folder"
    folder.mkdir()
    lines = [f"    steps.append('the queue of the server, step {number}')  # takes_steps" for number in range(60)]
    source = ["def takes_steps():", "    steps = []", *lines, "    return takes_steps, takes_steps, takes_steps"]
    (folder / "steps.py").write_text("\n".join(source) + "\n")
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.sync(folder)
    hits = retriever.search("takes_steps")
    assert {hit.heading for hit in hits} == {("takes_steps",)}
    assert len(hits) > 2
    assert hits[0].line_start == 1


FILLER = "queue worker server client network request response error search index vector text document".split()


@pytest.fixture(scope="session")
def library(tmp_path_factory, tiny_model):
    """Six documents among 300 that hold the parts of `task_queue` too, in fewer words: those six are not among the 200 best."""
    retriever = Retriever.open(tmp_path_factory.mktemp("exact") / "index", model=tiny_model)
    rows = [
        {"id": "use", "text": "the river task_queue is read by the worker of the server at night, when the sea is out"},
        {
            "id": "definition",
            "text": "the sea and the river\ndef task_queue(worker):\n    return the moon and the ship",
        },
        {"id": "case", "text": "the river TASK_QUEUE is read by the worker of the server at night, as the ship is out"},
        {"id": "phrase", "text": "bread and\ncheese of the city, with more butter in it than salt, for the king of it"},
        {"id": "words", "text": "cheese and bread and cheese, bread"},
        {"id": "issue", "text": "see #2809 for the recipe of bread"},
    ]
    rows += [{"id": f"{number}", "text": f"task queue {FILLER[number % 13]}"} for number in range(300)]
    retriever.add(rows)
    return retriever


def paths(hits):
    return [hit.path for hit in hits]


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize("query", ["task_queue", "where is the task_queue of the client"])
def test_a_passage_with_the_identifier_comes_first_wherever_it_is(mode, query, library):
    hits = library.search(query, 5, mode=mode)
    assert paths(hits)[:3] == ["definition", "use", "case"]
    assert [hit.explanation["exact"] for hit in hits] == [
        {"task_queue": "definition"},
        {"task_queue": "use"},
        {"task_queue": "use"},
        {},
        {},
    ]
    assert all(left.score >= right.score for left, right in pairwise(hits))


def test_the_identifier_changes_nothing_by_meaning(library):
    meaning = library.search("task_queue", 5, mode="semantic")
    assert [hit.score for hit in meaning] == [hit.scores["semantic"] for hit in meaning]


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
def test_a_phrase_is_in_every_hit(mode, library):
    assert paths(library.search('"bread and cheese"', mode=mode)) == ["words", "phrase"] or mode != "lexical"
    assert set(paths(library.search('"bread and cheese"', mode=mode))) == {"words", "phrase"}
    assert paths(library.search('"bread and cheese" -butter', mode=mode)) == ["words"]
    assert paths(library.search('"bread and cheese" +salt', mode=mode)) == ["phrase"]
    assert paths(library.search('"cheese of bread"', mode=mode)) == []


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
def test_a_phrase_of_stop_words_is_found(mode, library):
    assert paths(library.search('"when the sea is out"', mode=mode)) == ["use"]
    assert paths(library.search('"of it"', mode=mode)) == ["phrase"]
    assert paths(library.search('"it of"', mode=mode)) == []


@pytest.mark.parametrize("limit", [3, 1_000])
def test_an_identifier_is_found_where_its_parts_stand_in_more_passages_than_are_looked_at(limit, library, monkeypatch):
    monkeypatch.setattr("binocle.retriever.search.words.exact._LOOKED_UP", limit)
    assert paths(library.search("task_queue", 3, mode="lexical")) == ["definition", "use", "case"]


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize("query", ["=>", '"=> {"'])
def test_signs_are_found_wherever_they_stand(mode, query, library):
    library.add([{"id": "signs", "text": "the ship => {} of the sea and the moon of the river"}])
    try:
        assert paths(library.search(query, 1, mode=mode)) == ["signs"]
        assert "signs" not in paths(library.search(query, 9, mode=mode, where="path=use"))
    finally:
        library.delete("signs")


def test_exact_parts_and_filters_go_together(library):
    assert paths(library.search("task_queue", 2, where=["path=case"])) == ["case"]
    assert paths(library.search('"bread and cheese"', where=["path!=words"])) == ["phrase"]


def test_the_context_for_a_prompt_begins_with_the_definition(library):
    assert library.context("task_queue", k=2).passages[0].path == "definition"


@pytest.mark.parametrize("query", ["task queue", "bread and cheese", "moon - river"])
def test_a_query_without_exact_parts_reads_nothing_more(query, library, monkeypatch):
    expected = library.search(query, 20)
    monkeypatch.setattr("binocle.retriever.search.words.exact.parse", ExactQuery)
    assert library.search(query, 20) == expected
    assert all("exact" not in hit.explanation for hit in expected)


def test_the_command_explains_and_shows_the_line(library, run):
    options = ["--index", library.path, "-k", "1"]
    shown = run("search", "task_queue", *options, "--explain")
    assert "def task_queue(worker):" in shown.out
    assert "exact: task_queue (definition)" in shown.out
    missing = run("search", '"no such words"', *options)
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == 'binocle: no passage holds "no such words"\n'
    excluded = run("search", '"bread and cheese" -butter -bread', *options)
    assert (excluded.code, excluded.err) == (
        1,
        'binocle: no passage holds "bread and cheese" without "butter" or "bread"\n',
    )


def test_what_is_required_is_found_by_meaning_beside_an_identifier(library):
    for query in ("+bread task_queue", '"bread" task_queue'):
        assert set(paths(library.search(query, mode="semantic"))) == {"phrase", "words", "issue"}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
def test_letters_with_marks_are_the_same_in_both_forms(form, mode, tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    rows = [("a", "Das Café am See."), ("b", "Das Cafe am See."), ("c", "Ein Haus am See.")]
    retriever.add({"id": name, "text": unicodedata.normalize(form, text)} for name, text in rows)
    for other in ("NFC", "NFD"):
        for query, expected in {'"café am" see': {"a"}, "see +café": {"a"}, "see -café": {"b", "c"}}.items():
            hits = retriever.search(unicodedata.normalize(other, query), mode=mode)
            assert {hit.path for hit in hits} == expected, (other, query)


@pytest.mark.parametrize("query", ["  ", '""', "“ ”"])
def test_errors_of_a_query_stay(query, library):
    with pytest.raises(BinocleError, match="the query is empty"):
        library.search(query)


def test_quotes_in_prose_demand_nothing_without_a_plus():
    prose = 'what does the author of the letter mean by {}"freedom of the press"'
    assert parse(prose.format("")) == ExactQuery(prose.format(""))
    assert parse(prose.format("+")).required == ("freedom of the press",)
    assert parse('who wrote about "freedom of the press"').required == ("freedom of the press",)
    assert parse('"' + "a long phrase of many words " * 4 + '"').required
