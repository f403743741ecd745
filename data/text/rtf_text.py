r"""Reads text of RTF files without deleted or hidden text; footnotes come at the end.

striprtf decodes text and leaves out headers, pictures and tables of fonts. It reads deleted (\deleted) and hidden (\v)
text as any other, and leaves out footnotes, so these are removed and moved before.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data.text.text_check import NotTextError

_TOKEN = re.compile(r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'[0-9a-f]{2}|\\[^a-z]|[{}]|[^\\{}]+", re.IGNORECASE | re.DOTALL)
_IS_CONCERNED = re.compile(r"\\(?:v|deleted|footnote)(?![a-z])", re.IGNORECASE)
_HIDING = {"v": "hidden passages, not read", "deleted": "deleted passages, not read"}
_NOT_TEXT = frozenset("fonttbl colortbl stylesheet listtable revtbl info generator themedata datastore".split())


def rtf_text(path: Path, counts: Counter) -> Iterator[str]:
    """Text of a file; NotTextError if it is not RTF."""
    from striprtf.striprtf import remove_pict_groups, rtf_to_text

    content = path.read_bytes()
    if not content.lstrip().startswith(b"{\\rtf"):
        raise NotTextError("is not RTF: it does not begin with {\\rtf")
    text = content.decode("latin-1")
    if _IS_CONCERNED.search(text):
        text = visible_rtf(remove_pict_groups(text), counts)
    yield rtf_to_text(text, errors="replace")


def visible_rtf(text: str, counts: Counter) -> str:
    r"""RTF without hidden and deleted text, and with footnotes moved to the end as paragraphs.

    A word of formatting is valid up to the end of its group. So the words that hide are kept on a stack of groups.
    """
    main: list[str] = []
    notes: list[str] = []
    groups: list[tuple[frozenset[str], list[str], bool]] = []  # what is outside of each open group
    hiding, out, is_text = frozenset[str](), main, True
    was_hidden = False
    for token in _TOKEN.finditer(text):
        whole, word = token[0], (token[1] or "").lower()
        if whole == "{":
            groups.append((hiding, out, is_text))
        elif whole == "}" and groups:
            outer_hiding, outer, is_text = groups.pop()
            if outer is not out:  # a footnote ends
                out.append("\\par }")
                hiding, out = outer_hiding, outer
                continue
            hiding, out = outer_hiding, outer
        elif word == "footnote" and out is main:
            main.pop() if main[-1] == "{" else main.append("}")  # `{\*\footnote` has a sign between
            out = notes
            notes.append("{\\par ")
            continue
        elif word in _HIDING:
            hiding = hiding - {word} if token[2] == "0" else hiding | {word}
            continue
        elif word == "plain":
            hiding -= {"v"}
        elif word in _NOT_TEXT:
            is_text = False
        is_shown = whole in ("{", "}") or (word and word not in ("par", "line", "tab", "cell", "row", "u"))
        if hiding and is_text and not is_shown:
            if not was_hidden and whole.strip():
                counts[_HIDING[min(hiding)]] += 1
                was_hidden = True
            continue
        was_hidden &= bool(hiding)
        out.append(whole)
    end = next((place for place in reversed(range(len(main))) if main[place] == "}"), len(main))
    return "".join([*main[:end], *notes, *main[end:]])
