"""The language of a query, a passage or an index that an English encoder does not read."""

import itertools

import pytest

from binocle import Retriever
from binocle.retriever.models.load import load_encoder
from binocle.retriever.search.words import documents_language
from binocle.retriever.search.words.documents_language import SEVERAL, majority
from binocle.retriever.search.words.text_language import ENGLISH, foreign_language, language_of_prose

TEXTS = {
    "German": "Die Aufgabe wird erst dann abgebrochen, wenn der Server nicht mehr antwortet. Sie können das Programm auch "
    "mit einer Taste beenden, ohne dass Daten verloren gehen, und die Dateien sind danach wieder frei.",
    "French": "La tâche est annulée quand le serveur ne répond plus. Vous pouvez aussi arrêter le programme avec une "
    "touche, sans que les données soient perdues, et les fichiers sont ensuite libres pour les autres.",
    "Spanish": "La tarea se cancela cuando el servidor no responde más. También puede terminar el programa con una "
    "tecla, sin que los datos se pierdan, y los archivos quedan libres para otros procesos del sistema.",
    "Polish": "Zadanie zostanie przerwane dopiero wtedy, gdy serwer nie odpowiada. Program można zakończyć także przez "
    "naciśnięcie klawisza, dane nie są tracone, a pliki, które były otwarte, są dostępne dla innych.",
    "a language in Cyrillic script": "Задача отменяется только тогда, когда сервер больше не отвечает.",
    "Chinese": "只有当服务器不再响应时，任务才会被取消。您也可以按一个键来结束程序，数据不会丢失，文件随后可以使用。",
    "Japanese": "サーバーが応答しなくなると、作業は取り消されます。また、キーを押して終了することもできます。",
    "Korean": "서버가 더 이상 응답하지 않을 때만 작업이 취소됩니다. 키를 눌러 프로그램을 끝낼 수도 있습니다.",
    ENGLISH: "The task is cancelled only when the server no longer answers. You can also end the program with a key, and "
    "the files that were open are free for other processes after that. No data is lost.",
}
NO_PROSE = {
    "code": "for (int i = 0; i < n; i++) { w[i] = z * des[i]; do { con.put(das[i], el); } while (i < os.size()); }\n"
    * 5,
    "a table": "id;el;con;city\n1;12.5;Berlin;München;Köln\n2;13.5;Lyon;Paris;Nice\n" * 9,
    "a log": "2024-05-01 12:00:01 INFO com.example.Main os=linux do=start id=77 Müller der die\n" * 9,
    "names": "Jan de Vries, Anna van der Berg, José del Río, Lars och Söner, Maria da Silva, Hans Müller, Karl Groß, "
    "Ana dos Santos, Luis de la Cruz, Piet van Dijk, Otto von Berg, Franz Huber, Eva Maier, Paul Schmidt",
    "a heading": "Wie kann ich das und nicht ein",
    "nothing": "",
}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("wie kann ich eine Aufgabe abbrechen", "German"),
        ("comment annuler une tâche avec le serveur", "French"),
        ("cómo puedo cancelar una tarea", "Spanish"),
        ("Wann wird die Datenbank gewartet?", "German"),
        ("quand est la maintenance", "French"),
        ("как отменить задачу", "a language in Cyrillic script"),
        ("タスクをキャンセルする", "Japanese"),
        ("任务如何取消", "Chinese or Japanese"),
        ("작업을 취소하는 방법", "Korean"),
        ("how do I cancel a task", None),
        ("what is the die cast method in iron works", None),
        ("café naïve résumé", None),
        ("max_size", None),
        ("α and β of the model", None),
        ("des", None),
        ("", None),
        ("1234 !?", None),
    ],
)
def test_a_language_is_told_by_its_script_or_its_frequent_words(text, language):
    assert foreign_language(text) == language


def test_a_long_text_is_not_read_to_the_end():
    assert foreign_language("the house and the tree " * 1_000 + "der das und ist nicht " * 100_000) is None


def test_japanese_with_many_chinese_characters_is_japanese():
    assert foreign_language("東京都の天気予報を見る") == "Japanese"


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_passage_of_prose_is_told(language):
    assert language_of_prose(TEXTS[language]) == language


@pytest.mark.parametrize("kind", NO_PROSE)
def test_a_passage_without_prose_has_no_language(kind):
    assert language_of_prose(NO_PROSE[kind]) is None


@pytest.mark.parametrize(
    ("counts", "language"),
    [
        ({"German": 10}, "German"),
        ({"German": 8, ENGLISH: 4}, "German"),
        ({"German": 7, ENGLISH: 4}, None),
        ({"German": 10, None: 30}, "German"),
        ({"German": 9, None: 30}, None),
        ({"German": 4, "French": 4, "Italian": 1, ENGLISH: 1}, SEVERAL),
        ({ENGLISH: 9}, None),
        ({None: 9}, None),
        ({}, None),
    ],
)
def test_an_index_has_another_language_if_most_of_its_prose_has(counts, language):
    passages = itertools.chain(*([name] * count for name, count in counts.items()))
    assert majority(passages) == language


@pytest.fixture
def open_index(tmp_path, make_model, monkeypatch):
    """Return the retriever of a folder, with a tiny encoder that counts as one for English."""
    model = make_model(tmp_path / "model", max_length=256)
    monkeypatch.setattr(documents_language, "DEFAULT_ENCODERS", (load_encoder(model).fingerprint,))
    return lambda folder: Retriever.open(folder, model=model)


def test_a_run_says_once_that_the_encoder_does_not_read_the_documents(tmp_path, open_index, write):
    folder = write(tmp_path / "docs", {f"{number}.txt": f"{number}. {TEXTS['German']}\n" for number in range(4)})
    retriever = open_index(folder)
    assert retriever.sync().note == (
        "most of the text seems to be in German, but the encoder is for English, so searches hardly find it by "
        "meaning: 'binocle index FOLDER --index NEW --model intfloat/multilingual-e5-small' makes an index that does"
    )
    assert retriever.status().unread_language == "German"
    assert retriever.sync().note == ""
    write(folder, {"new.txt": f"Neu: {TEXTS['German']}\n"})
    assert retriever.sync().note == ""
    write(folder, {f"new{number}.txt": f"{number}: {TEXTS['German']}\n" for number in range(9)})
    assert "in German" in retriever.sync().note  # as after a run that was interrupted early


def test_a_run_says_that_the_language_has_changed(tmp_path, open_index, write):
    texts = {"a.txt": TEXTS[ENGLISH], "b.txt": f"Again. {TEXTS[ENGLISH]}", "c.txt": f"And again. {TEXTS[ENGLISH]}"}
    retriever = open_index(write(tmp_path / "docs", texts))
    assert (retriever.sync().note, retriever.status().unread_language) == ("", None)
    write(tmp_path / "docs", {"a.txt": TEXTS["French"]})
    assert retriever.sync().note == ""
    write(tmp_path / "docs", {"b.txt": f"{TEXTS['French']} Encore une fois."})
    assert "in French" in retriever.sync().note


def test_another_encoder_than_the_default_may_read_any_language(tmp_path, tiny_model, write):
    retriever = Retriever.open(write(tmp_path, {"a.txt": TEXTS["German"]}), model=tiny_model)
    assert (retriever.sync().note, retriever.status().unread_language) == ("", None)
