"""Checks texts and numbers that Python functions get; each error has the value, the rule and the remedy."""

from collections.abc import Iterable, Mapping
from typing import Any

_LONGEST = 80  # most characters of a value in an error


def list_of_texts(texts: Any) -> list[Any]:
    """Convert an iterable of texts to a list. ValueError for one text, a table, None or another type."""
    if hasattr(texts, "columns") and hasattr(texts, "to_dict"):
        raise ValueError("texts is a table; pass one of its columns, such as texts=table['text']")
    if isinstance(texts, (str, bytes, Mapping)):
        raise ValueError(f"texts={_shown(texts)} must be a list of texts; put it into brackets")
    if not isinstance(texts, Iterable):
        raise ValueError(f"texts={_shown(texts)} must be a list of texts; pass a list such as ['a text', 'another']")
    return list(texts)


def refuse_nothing(texts: list[Any]) -> None:
    """Raise ValueError for an empty list of texts."""
    if not texts:
        raise ValueError("texts=[] must have at least one text; skip the call where there is none")


def checked_text(text: Any) -> str:
    """Return a text unchanged. ValueError if it is not a string, is blank, or cannot be encoded in UTF-8."""
    if not isinstance(text, str):
        raise ValueError(f"{_shown(text)} must be text; replace what is missing, or leave it out")
    if not text.strip():
        raise ValueError("the text is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "the text holds bytes that are not UTF-8, or half of a surrogate pair; save it as UTF-8"
        ) from None
    return text


def checked_texts(texts: list[Any]) -> list[str]:
    """Return texts unchanged. ValueError with the number of the first text that `checked_text` refuses."""
    checked: list[str] = []
    for text in texts:
        try:
            checked.append(checked_text(text))
        except ValueError as error:
            raise ValueError(f"text {len(checked)}, counted from 0: {error}") from None
    return checked


def one_text(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError(f"text={_shown(text)} must be one text; call it once for each text")
    return text


def whole_number(name: str, value: Any) -> int:
    """Return a number unchanged. ValueError unless it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={_shown(value)} must be a whole number of at least 1; correct it")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
