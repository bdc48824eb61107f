"""The language of a query that an English encoder does not read."""

import pytest

from binocle.retriever.search.words.language import foreign_language


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
