"""Tell the language of a text that is not English, by its script and by its most frequent words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_FREQUENT = {  # frequent words of one language that are no words of another in this table, or of English
    "German": "der das und ist nicht ein eine einen einem wie kann ich für mit auf wird sind bei werden oder auch wo "
    "wann warum welche welcher welches",
    "French": "le les des est une dans pour qui que sur avec pas ce cette sont aux du comment puis je où et quand "
    "pourquoi quel quelle",
    "Spanish": "el los las una para por con cómo está del puedo qué son más como donde y cuándo cuál quién cuánto",
    "Italian": "il gli che della sono per con una nel dei come alla di posso è più dove perché quale quando",
    "Portuguese": "o os uma para com não do da dos das em como posso são mais onde é qual quais quem quando",
    "Dutch": "het een van niet met voor zijn ik aan ook hoe dat worden naar waar kan ik wanneer waarom welke",
    "Polish": "nie jest się na do jak i w z dla czy przez są gdzie kiedy dlaczego jaki że lub oraz który która które "
    "jeśli tylko tego być może od po",
    "Swedish": "och att det som en på är för inte med jag hur kan av när varför vilken",
    "Turkish": "ve bir bu için ile nasıl ne mi değil olarak neden nerede veya olan gibi daha çok sonra kadar ya",
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
    "HANGUL": "Korean",
    "CYRILLIC": "a language in Cyrillic script",
    "DEVANAGARI": "a language in Devanagari script",
    "ARABIC": "a language in Arabic script",
    "HEBREW": "Hebrew",
    "GREEK": "Greek",
    "THAI": "Thai",
}
_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
_LETTERS = 4  # of another script that tell a language
_MANY_LETTERS = 20  # of a script in prose; 20 Chinese characters and no Japanese syllable mean Chinese
_WORDS, _SHARE = 2, 0.3  # frequent words of a language, and their share of all words, that tell it in a query
_DIFFERENT, _SHARE_OF_PROSE = 4, 0.1  # distinct frequent words in prose, and their share: in code, few words repeat
_PROSE_WORDS = 20  # fewer may be a heading or a list of names
_READ, _READ_OF_PROSE = 5_000, 600  # characters
ENGLISH = "English"
_ONLY_ENGLISH_WORDS = "the of and to that with this which from have they you would there when are were its"
_ONLY_ENGLISH = frozenset(_ONLY_ENGLISH_WORDS.split())


def foreign_language(text: str) -> str | None:
    """The name of a query's language; None if the text may be English, or is too short to tell."""
    text = text[:_READ]
    if not text.isascii() and (language := _language_of_script(text, _LETTERS)):
        return language
    words = re.findall(r"[^\W\d_]+", text.casefold())
    language, count = _most_frequent(words)
    is_clear = count >= _WORDS and count >= _SHARE * len(words) and count > 2 * sum(word in _ENGLISH for word in words)
    return language if is_clear else None


def language_of_prose(text: str) -> str | None:
    """The name of a passage's language, `ENGLISH` too; None for code, tables, lists of names and short texts.

    Words of one letter do not count: some are words of Polish, and in code they are variables.
    """
    text = text[:_READ_OF_PROSE]
    if not text.isascii() and (language := _language_of_script(text, _MANY_LETTERS)):
        return language
    words = re.findall(r"[^\W\d_]{2,}", text.casefold())
    if len(words) < _PROSE_WORDS:
        return None
    enough = _SHARE_OF_PROSE * len(words)
    language, count = _most_frequent(words)
    english = sum(word in _ONLY_ENGLISH for word in words)
    if count >= enough and count > 2 * english:
        different = {word for word in words if language in _LANGUAGES_BY_WORD.get(word, ())}
        return language if len(different) >= _DIFFERENT else None
    return ENGLISH if english >= enough else None


def _most_frequent(words: list[str]) -> tuple[str, int]:
    """The language with most of these words, and their number; a tie goes to the first in the table."""
    counts = Counter(language for word in words for language in _LANGUAGES_BY_WORD.get(word, ()))
    language = max(_FREQUENT, key=counts.__getitem__)
    return language, counts[language]


def _language_of_script(text: str, enough: int) -> str | None:
    """The language of most letters, if they are `enough` of one script. Japanese mixes three scripts."""
    letters = Counter(filter(str.isalpha, text))
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        if not letter.isascii():
            scripts[unicodedata.name(letter, "?").split()[0]] += count
    characters = scripts["CJK"]
    if east_asian := sum(scripts.pop(script, 0) for script in _EAST_ASIAN):
        scripts["HIRAGANA" if east_asian > characters else "CJK"] = east_asian
    for script, count in scripts.most_common(1):
        if script in _SCRIPTS and count >= enough and 2 * count > letters.total():
            return "Chinese" if script == "CJK" and count >= _MANY_LETTERS else _SCRIPTS[script]
    return None
