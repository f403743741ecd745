"""Converts wiki markup to prose: removes tables, lists, headings, references, files and templates.

Templates of templates.yaml are shown as a reader sees them. Another one inside a sentence, or a formula, would leave a
hole: brackets around it are removed, otherwise its sentence.

Every step is one pass of a regular expression or of a stack of limited depth, so the time is proportional to the length
of the page for any markup. Of markup that is never closed only the marks are removed, not the text after them.
"""

import html
import re
from collections import Counter
from dataclasses import dataclass

from bert.tokenization.equal_letters import normal_form
from data.text.lddl_writer import utf8
from data.text.sentences import split_sentences
from data.wikipedia.templates import HOLE, template_text

_CANONICAL_FILES, _CANONICAL_CATEGORIES = frozenset(("file", "image", "media")), frozenset(("category",))


@dataclass(frozen=True)
class Site:
    """Lower-case names of a wiki's namespaces for files and categories."""

    files: frozenset[str] = _CANONICAL_FILES
    categories: frozenset[str] = _CANONICAL_CATEGORIES

    @classmethod
    def of(cls, namespaces: dict[int, str]) -> "Site":
        """The site with names from the dump's header; English names are valid in every wiki."""

        def local(*keys: int) -> frozenset[str]:
            return frozenset(namespaces[key].lower() for key in keys if namespaces.get(key))

        return cls(_CANONICAL_FILES | local(-2, 6), _CANONICAL_CATEGORIES | local(14))


# The content of <nowiki> is plain text: its marks are replaced by noncharacters, which do not occur in text.
_MARKUP_CHARACTERS = "{}[]|<>'*#:;=!&_-"
_HIDDEN = {ord(mark): 0xFDD0 + place for place, mark in enumerate(_MARKUP_CHARACTERS)}
_SHOWN = {hidden: chr(mark) for mark, hidden in _HIDDEN.items()}
_DROPPED_TAGS = (
    "ref math chem ce gallery timeline syntaxhighlight source pre score hiero imagemap graph mapframe maplink "
    "templatedata templatestyles inputbox poem indicator categorytree includeonly style script section references"
).split()
_FORMULA_TAGS = frozenset("math chem ce score hiero".split())
_RAW_TAG = re.compile(rf"<(nowiki|{'|'.join(_DROPPED_TAGS)})\b([^<>]*)>", re.I)
_RAW_ENDS = {name: re.compile(rf"</{name}\s*>", re.I) for name in ("nowiki", *_DROPPED_TAGS)}


_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)  # as in MediaWiki, an unclosed one extends to the end


def prose_of(wikitext: str, site: Site = Site(), language: str = "en", counts: Counter[str] | None = None) -> list[str]:
    """Paragraphs of a page with sentences, each on one line, in order; `counts` gets the dropped parts."""
    text = _without_raw_tags(_COMMENT.sub("", wikitext))
    text = html.unescape(_without_inline_marks(_without_nesting(text, site, language)))
    counts = Counter() if counts is None else counts
    whole = (_without_holes(" ".join(lines), language, counts) for lines in _paragraphs(text))
    return [paragraph for text in whole if (paragraph := _sentences(_tidy(text), language, counts))]


def _without_raw_tags(text: str) -> str:
    """Remove the tags whose content is not wiki markup; the content of <nowiki> stays."""
    pieces, position = [], 0
    unclosed: set[str] = set()
    while tag := _RAW_TAG.search(text, position):
        pieces.append(text[position : tag.start()])
        name, position = tag[1].lower(), tag.end()
        if tag[2].endswith("/") or name in unclosed:
            continue
        end = _RAW_ENDS[name].search(text, position)
        if end is None:
            unclosed.add(name)
            continue
        if name == "nowiki":
            pieces.append(text[position : end.start()].translate(_HIDDEN))
        elif name in _FORMULA_TAGS:
            pieces.append(HOLE)
        position = end.end()
    pieces.append(text[position:])
    return "".join(pieces)


_TOKEN = re.compile(r"\{\{|\}\}|\[\[|\]\]|^[ \t:]*+\{\||^[ \t]*+\|\}(?!\})|<table\b[^<>]*>|</table\s*>", re.M | re.I)
_MAX_DEPTH = 100  # of nested constructs; MediaWiki itself expands 40
_OPENERS = {"{{": "template", "[[": "link", "{|": "table", "<table": "html table"}
_CLOSERS = {"}}": "template", "]]": "link", "|}": "table", "</table": "html table"}


def _without_nesting(text: str, site: Site, language: str) -> str:
    """Replace templates, links and tables, also nested ones, by the text that a reader sees.

    A closing mark ends the innermost construct of its kind; constructs still open inside it become text. So do those
    that are nested too deeply, with the marks that close them.
    """
    stack: list[tuple[str, list[str]]] = [("page", [])]  # open constructs and their text so far
    num_open, too_deep = Counter[str](), Counter[str]()
    position = 0
    while token := _TOKEN.search(text, position):
        stack[-1][1].append(text[position : token.start()])
        position = token.end()
        mark = token[0].strip(" \t:").lower()
        if kind := _OPENERS.get(mark if mark in _OPENERS else mark[:6]):
            if len(stack) > _MAX_DEPTH:
                too_deep[kind] += 1
                continue
            stack.append((kind, []))
            num_open[kind] += 1
            continue
        kind = _CLOSERS[mark if mark in _CLOSERS else "</table"]
        if too_deep[kind]:
            too_deep[kind] -= 1
            continue
        if not num_open[kind]:
            continue
        content = _closed(stack, kind, num_open)
        if kind == "template" and content.startswith("{") and text.startswith("}", position):
            position += 1  # {{{parameter}}}
        if kind == "template":
            visible = template_text(content, language)
            stack[-1][1].append(visible.translate(_HIDDEN) if visible in ("'", "'s") else visible)
        else:
            stack[-1][1].append(_link_text(content, site) if kind == "link" else "\n")
    stack[-1][1].append(text[position:])
    return _closed(stack, "page", num_open)


def _closed(stack: list[tuple[str, list[str]]], kind: str, num_open: Counter[str]) -> str:
    """Pop the innermost construct of a kind with all open ones inside it; returns its text."""
    place = next(index for index in range(len(stack) - 1, -1, -1) if stack[index][0] == kind)
    constructs = stack[place:]
    del stack[place:]
    num_open.subtract(kind for kind, _ in constructs)
    return "".join(part for _, parts in constructs for part in parts)


_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")
_NO_LANGUAGES = frozenset(("wp", "mw", "voy", "doi", "rfc"))
_MEDIA_NAME = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|webp|og[agv]|webm|mp[34]|wav|flac|mid|djvu|pdf|stl)$", re.I)


def _link_text(content: str, site: Site) -> str:
    """The visible text of [[content]]; empty for files, categories and links to the page in other languages."""
    target, bar, label = content.partition("|")
    target = target.strip()
    prefix, colon, name = target.partition(":")
    if colon and prefix:
        space = prefix.strip().lower().replace("_", " ")
        if space in site.files or space in site.categories or _MEDIA_NAME.search(name.strip()):
            return ""
        if _LANGUAGE_CODE.fullmatch(prefix) and prefix not in _NO_LANGUAGES:
            return ""
    if label.strip():
        return label.rpartition("|")[2]
    target = " ".join(target.removeprefix(":").split())
    return re.sub(r"\s*\([^()]*\)$", "", target) if bar else target


_QUOTES = re.compile("'{2,}")
_MAGIC_WORD = re.compile(r"__[^\W\d]{3,40}?__")
_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_INLINE_MARKS = (
    (re.compile(r"<(?:li|dt|dd|tr|td|th|caption)\b[^<>]*>", re.I), "\n*"),
    (
        re.compile(
            r"</?(?:p|div|blockquote|ul|ol|dl|li|dt|dd|center|h[1-6]|hr|tr|td|th|caption|tbody|thead)\b[^<>]*>", re.I
        ),
        "\n\n",
    ),
    (re.compile(r"<br\b[^<>]*>", re.I), " "),
    (re.compile(r"</?[a-z][^<>]*>", re.I), ""),
    (re.compile(r"\[(?:(?:(?:https?|ftps?|irc):)?//|mailto:)[^\s\[\]]*+([^\[\]\n]*+)\]", re.I), r"\1"),
)


def _without_inline_marks(text: str) -> str:
    text = "\n".join(_without_quotes(line) if "''" in line else line for line in text.split("\n"))
    for pattern, replacement in _INLINE_MARKS:
        text = pattern.sub(replacement, text)
    text = _MAGIC_WORD.sub(lambda word: "" if word[0] == word[0].upper() else word[0], text)  # not __init__
    return _VARIANT.sub(_variant, text)


def _without_quotes(line: str) -> str:
    """A line without the marks of bold (three quotes) and italics (two), by MediaWiki's rule.

    Of four quotes, and of more than five, the first ones are text. If the numbers of both kinds of marks are odd, one
    mark of bold is a quote before italics: the first one after a word of one letter, else after a longer word, else
    after a space.
    """
    texts, marks = _QUOTES.split(line), [len(mark) for mark in _QUOTES.findall(line)]
    quotes = [1 if size == 4 else max(0, size - 5) for size in marks]
    sizes = [size - number for size, number in zip(marks, quotes, strict=True)]
    if sum(size != 2 for size in sizes) % 2 and sum(size != 3 for size in sizes) % 2:
        ranks: dict[int, int] = {}
        for place, size in enumerate(sizes):
            if size == 3:
                before = (texts[place] + "'" * quotes[place])[-2:]
                if before[-1:] == " ":  # after a space
                    rank = 2
                else:  # after a word of one letter, or a longer one
                    rank = 0 if before[:1] == " " else 1
                ranks.setdefault(rank, place)
        if ranks:
            quotes[ranks[min(ranks)]] += 1
    return texts[0] + "".join("'" * number + text for number, text in zip(quotes, texts[1:], strict=True))


def _variant(match: re.Match) -> str:
    """The first variant of -{zh-hans:A;zh-hant:B}-, as readers of the first script see it."""
    flags, bar, forms = match[1].rpartition("|")
    if bar and flags.strip() in ("H", "T", "-"):
        return ""
    first = forms.partition(";")[0]
    return first.partition(":")[2] if ":" in first else first


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # scripts without spaces
_STOPS = ".!?\u2026\u3002\uff01\uff1f\uff0e\u0964\u0965\u06d4\u061f\u0589\u1362\u1367\u104b\u17d4\u1803\u0df4"
# What cannot stand alone: digits, words of one or two letters, prefixes, and any letters of the scripts that write
# articles and prepositions so: Hebrew, Arabic, Syriac, Ethiopic. A template attached to these shows a word.
_ATTACHING = r"(?<![\d\u0590-\u077f\u08a0-\u08ff\u1200-\u139f])(?<!\b[^\W\d_])(?<!\b[^\W\d_]{2})" + "".join(
    rf"(?<!\b{prefix})" for prefix in ("non", "pre", "anti", "semi", "multi", "quasi", "pseudo")
)
_SHOWS_NOTHING = re.compile(  # a template that is alone, before a paragraph, or attached to what it annotates
    rf"^[\s{HOLE}]+$|^\s*{HOLE}+(?=[^\s{HOLE}{_UNSPACED},.;:'\u2019-])|(?<=[{re.escape(_STOPS)}]){HOLE}+"
    rf"|(?<=[^\s{HOLE}{_UNSPACED}(\[{{\u00ab\u201c\u201e\u2018\uff08\u300c\u300e'\u2019/=<>~\u2013\u2014-]){_ATTACHING}"
    rf"{HOLE}+(?=[\s,.;:!?)\]\u00bb\u201d\u2026]|$)"
)
_BRACKETS = re.compile(rf"\s?[(\uff08][^()\uff08\uff09{HOLE}]*+{HOLE}[^()\uff08\uff09]*+[)\uff09]")
_NO_PROSE = frozenset(("", *"*#:;|!="))


def _paragraphs(text: str) -> list[list[str]]:
    """Lines of each paragraph; list items, headings, rules and remains of tables are left out."""
    groups: list[list[str]] = [[]]
    for line in text.split("\n"):
        bare = _SHOWS_NOTHING.sub("", line).strip() if HOLE in line else line.strip()
        if not bare or bare.lstrip(f" {HOLE}")[:1] in _NO_PROSE or bare.startswith(("----", "{|")):
            groups.append([])
        else:
            groups[-1].append(bare)
    return [group for group in groups if group]


_MAX_BRACKETS = 4  # in one another
_UNSEEN: dict[int, str | None] = {
    **dict.fromkeys((0xFFFC, 0xFFFE, 0xFFFF)),
    0x200B: " ",  # between words of Khmer, Lao and Burmese
    **_SHOWN,
}
_GAPS = (  # left by removed templates
    (re.compile(r"\s?[(\[\uff08](?:[\s,;:/\uff0c\uff1b\u3001\u2013\u2014-])*+[)\]\uff09]"), ""),
    (re.compile(r"([(\uff08])[\s,;\uff0c\uff1b\u3001]+"), r"\1"),
    (re.compile(r" +([,.)])(?=[\s,.;)]|$)"), r"\1"),
    (re.compile(r",(?: ?,)+"), ","),
)


def _without_holes(paragraph: str, language: str, counts: Counter[str]) -> str:
    """Drop brackets and sentences that contain an unknown template's hole."""
    for _ in range(_MAX_BRACKETS):
        if HOLE not in paragraph:
            return paragraph
        paragraph = _BRACKETS.sub("", paragraph)
    sentences = list[str]()
    for part in split_sentences(utf8(paragraph).decode(), language, counts):
        if sentences and _ABBREVIATION.search(sentences[-1]):
            sentences[-1] += part
        else:
            sentences.append(part)
    complete = [sentence for sentence in sentences if HOLE not in sentence]
    counts["sentences dropped: a template or formula in them is not known"] += len(sentences) - len(complete)
    return "".join(complete)


def _tidy(text: str) -> str:
    """Remove gaps left by removed parts: "( ; )", " ," and similar."""
    text = " ".join(normal_form(text.translate(_UNSEEN)).split())
    for pattern, replacement in _GAPS:
        text = pattern.sub(replacement, text)
    return text.strip()


_CLOSING = "'\"\u2019\u201d\u00bb\u203a)]\u300d\u300f\uff09\u3011"
_WIDE_STOPS = "\u3002\uff01\uff1f\uff0e"
_ABBREVIATION = re.compile(r"\b[^\W\d_]\.\s*$|^\w+\.\s*$")  # at which a sentence may have been cut: "av. J.", "Ur."
_SENTENCE_END = re.compile(
    rf"[{re.escape(_STOPS)}][{re.escape(_CLOSING)}]*(?=\s|$)"
    rf"|[{_WIDE_STOPS}][{re.escape(_CLOSING)}]*"
)
_MIN_CUT_CHARACTERS = 40  # a shorter paragraph without a final sentence end may be a heading with an abbreviation
_LANGUAGES_WITHOUT_STOPS = frozenset(("th", "lo", "km", "my", "bo", "dz"))
_MIN_UNSTOPPED_CHARACTERS = 60


def _sentences(paragraph: str, language: str, counts: Counter[str]) -> str:
    """The paragraph up to the end of its last sentence; "" without one. Dropped text is counted."""
    whole = _up_to_last_end(paragraph, language)
    if whole != paragraph:
        what = "paragraphs cut behind their last sentence" if whole else "paragraphs dropped: no sentence ends there"
        counts[what] += 1
    return whole


def _up_to_last_end(paragraph: str, language: str) -> str:
    bare = paragraph.rstrip(_CLOSING)
    if bare and bare[-1] in _STOPS:
        return paragraph
    if language in _LANGUAGES_WITHOUT_STOPS:
        return paragraph if len(paragraph) >= _MIN_UNSTOPPED_CHARACTERS else ""
    end = 0
    for match in _SENTENCE_END.finditer(paragraph):
        end = match.end()
    is_wide = end and paragraph[:end].rstrip(_CLOSING)[-1] in _WIDE_STOPS
    if is_wide or end >= _MIN_CUT_CHARACTERS:
        return paragraph[:end]
    first = split_sentences(utf8(paragraph).decode(), language, Counter())[0] if end else ""
    return paragraph[:end] if 0 < len(first) < len(paragraph) else ""  # not "St. Mary's church"
