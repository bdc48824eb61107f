"""Tell the language of a text that is not English, by its script and by its most frequent words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_FREQUENT = {  # words that no other language of this table, nor English, has in this form
    "German": "der das und ist nicht ein eine einen einem wie kann ich für mit auf wird sind bei werden oder auch wo "
    "wann warum welche welcher welches",
    "French": "le les des est une dans pour qui que sur avec pas ce cette sont aux du comment puis je où et quand "
    "pourquoi quel quelle",
    "Spanish": "el los las una para por con cómo está del puedo qué son más como donde y cuándo cuál quién cuánto",
    "Italian": "il gli che della sono per con una nel dei come alla di posso è più dove perché quale quando",
    "Portuguese": "o os uma para com não do da dos das em como posso são mais onde é qual quais quem quando",
    "Dutch": "het een van niet met voor zijn ik aan ook hoe dat worden naar waar kan ik wanneer waarom welke",
    "Polish": "nie jest się na do jak i w z dla czy przez są gdzie kiedy dlaczego jaki",
    "Swedish": "och att det som en på är för inte med jag hur kan av när varför vilken",
    "Turkish": "ve bir bu için ile nasıl ne mi değil olarak neden nerede",
}
_ENGLISH_WORDS = (
    "the of and to a in is it that for on with as are was be by this not or from at which but have has had they you we "
    "can will would there what all if when who how do does i my an"
)
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_LANGUAGES_BY_WORD: dict[str, list[str]] = {}
for _language, _words in _FREQUENT.items():
    for _word in frozenset(_words.split()):
        _LANGUAGES_BY_WORD.setdefault(_word, []).append(_language)
_SCRIPTS = {
    "CJK": "Chinese or Japanese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "CYRILLIC": "a language in Cyrillic script",
    "DEVANAGARI": "a language in Devanagari script",
    "ARABIC": "a language in Arabic script",
    "HEBREW": "Hebrew",
    "GREEK": "Greek",
    "THAI": "Thai",
}
_LETTERS = 4  # of another script that tell a language
_WORDS, _SHARE = 2, 0.3  # frequent words of a language, and their share of all words, that tell it
_READ = 5_000  # characters


def foreign_language(text: str) -> str | None:
    """The name of a text's language; None if the text may be English, or is too short to tell."""
    text = text[:_READ]
    if not text.isascii() and (language := _language_of_script(text)):
        return language
    words = re.findall(r"[^\W\d_]+", text.casefold())
    counts = Counter(language for word in words for language in _LANGUAGES_BY_WORD.get(word, ()))
    language = max(_FREQUENT, key=counts.__getitem__)  # a tie goes to the first in the table
    count = counts[language]
    is_clear = count >= _WORDS and count >= _SHARE * len(words) and count > 2 * sum(word in _ENGLISH for word in words)
    return language if is_clear else None


def _language_of_script(text: str) -> str | None:
    letters = [letter for letter in text if letter.isalpha()]
    scripts = Counter(unicodedata.name(letter, "?").split()[0] for letter in letters if not letter.isascii())
    for script, count in scripts.most_common(1):
        if script in _SCRIPTS and count >= _LETTERS and 2 * count > len(letters):
            return _SCRIPTS[script]
    return None
