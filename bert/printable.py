"""Escapes control characters in untrusted text for a terminal, a log or a line of a file. Standard library only."""

import re

# Of a terminal, of lines, of the direction of text, and halves of surrogate pairs, which cannot be written.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BUT_INDENTED_LINES = re.compile(rf"(?!\n  ){_CONTROLS.pattern}")


def printable(text: str, indented_lines: bool = False) -> str:
    """Escape control characters, so that the text moves no cursor and imitates no line of ours.

    Args:
        indented_lines: lines that begin with two spaces, as in our messages, stay.
    """
    controls = _BUT_INDENTED_LINES if indented_lines else _CONTROLS
    return controls.sub(lambda match: repr(match[0])[1:-1], text)
