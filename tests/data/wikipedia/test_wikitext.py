import gc
import re
import time
from collections import Counter

import mwparserfromhell
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.wikipedia.templates import HOLE, patterns_of, template_text
from data.wikipedia.wikitext import Site, prose_of
from tests.support.dumps import article

SITE = Site.of({-2: "Medium", 6: "Datei", 14: "Kategorie"})
REST = "It is a long river that runs through the old town to the sea."


def one(markup: str, language: str = "en") -> str:
    """Return the only paragraph."""
    found = prose_of(markup, SITE, language)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Paris''' is ''the'' '''''capital'''''.", "Paris is the capital."),
        ("It is ''''quoted'''.", "It is 'quoted."),
        ("The [[river]]s and [[sea|the seas]] meet.", "The rivers and the seas meet."),
        ("See [[river#Source|its source]] and [[:Category:Rivers]].", "See its source and Category:Rivers."),
        ("The [[Bank (geography)|]] is steep.", "The Bank is steep."),
        ("[[File:a.jpg|thumb|A [[link]] in ''a'' caption.]]The river.", "The river."),
        ("[[Datei:a.jpg|mini|Text.]][[image:b.PNG|x]][[Bild:c.svg|Text.]]The river.", "The river."),
        ("[[File:a.jpg|thumb|A {{template|x=[[y]]}} [[File:b.jpg|in it]] here.]]The river.", "The river."),
        ("The river. [[Category:Rivers]] [[Kategorie:Fluss|x]] [[fr:Fleuve]] [[zh-min-nan:Ho]]", "The river."),
        ("A [[wikt:river|river]] and [[s:Book|a book]].", "A river and a book."),
        ("{{Infobox\n| name = x\n| map = {{map|{{{1|}}}}}\n}}\nThe river.", "The river."),
        ("The{{ref label|a}} river{{#if:{{{x|}}}|y|z}} runs.", "The river runs."),
        ("It is {{convert|5|km|mi}} long, {{convert|5|to|8|m}} deep.", "It is 5 km long, 5 to 8 m deep."),
        ("It is {{lang|fr|le fleuve}}, {{lang-de|Fluss}}, {{langx|it|fiume}}.", "It is le fleuve, Fluss, fiume."),
        ("It is {{linktext|\u9ad8\u9e97|\u78c1\u5668}} or {{frac|1|2}}.", "It is \u9ad8\u9e97\u78c1\u5668 or 1/2."),
        ("Born {{circa|1900}}{{snd}}he was {{nowrap|10 m}} tall.", "Born c. 1900 \u2013 he was 10 m tall."),
        (
            'The river<ref name="a">Book, {{cite|x}}.</ref> runs<ref name=b /> far<ref>[[x]]</ref>.',
            "The river runs far.",
        ),
        ("The river<ref>never closed runs far.", "The rivernever closed runs far."),
        ("The river <!-- not <ref> this -->runs. <!-- and the rest", "The river runs."),
        ("It flows<math>x^2 \\{{y}\\}</math> (by <chem>H2O</chem>).", "It flows."),
        ("Use <nowiki>[[brackets]] and '''quotes'''</nowiki> here.", "Use [[brackets]] and '''quotes''' here."),
        ("Use <nowiki/>this<nowiki /> here.", "Use this here."),
        ("<gallery>\na.jpg|A caption.\n</gallery>The river.", "The river."),
        ('<syntaxhighlight lang="c">\nint x; // A sentence.\n</syntaxhighlight>\nThe river.', "The river."),
        ("{| class=x\n|-\n! A heading.\n| A cell.\n{| \n| An inner cell.\n|}\n| More.\n|}\nThe river.", "The river."),
        (":::{| class=x\n| A cell.\n|}\nThe river.", "The river."),
        ("<table><tr><td>A cell.<table><tr><td>B.</td></tr></table></td></tr></table>The river.", "The river."),
        ("{| class=x\n| A cell.\n\nThe river runs.", "The river runs."),
        ("* A sentence.\n# Two.\n; Three.\n: Four.\n:* Five.\nThe river.", "The river."),
        ("<ul><li>A sentence.</li><li>Two.</li></ul>The river.", "The river."),
        ("== A heading. ==\nThe river.\n=== Another one! === \n----", "The river."),
        ("__NOTOC__The river. __NO_SUCH__", "The river."),
        ("The method is __init__ here.", "The method is __init__ here."),
        ("{{DEFAULTSORT:River, A}}__KEIN_INHALTSVERZEICHNIS__\nThe river. __INHALT__", "The river."),
        ("See [http://a.b/c?d=e the page] and [//a.b here] [https://a.b/c].", "See the page and here."),
        ("AT&amp;T &lt;b&gt; is 5&nbsp;km &mdash; caf&eacute;.", "AT&T <b> is 5 km \u2014 caf\u00e9."),
        ("It costs 5 &#8364; or &#x4e2d;.", "It costs 5 \u20ac or \u4e2d."),
        ('It<br/>is H<sub>2</sub>O <span style="x">and</span> <small>so</small> on.', "It is H2O and so on."),
        ("If 3 < 5 and 7 > 2, it is so.", "If 3 < 5 and 7 > 2, it is so."),
        ("Paris ({{IPA|x}}; {{lang-fr}}) is , well , here ( {{x}} ).", "Paris is, well, here."),
        ("Paris ({{IPA|x}}; born {{x}}, 1900) is here.", "Paris is here."),
        ("Paris ({{IPA|x}}; born in 1900) is here.", "Paris (born in 1900) is here."),
        ("The ''Eagle'''s stage flew.", "The Eagle's stage flew."),
        ("The ''Eagle''{{'s}} stage and ''Eagle''<nowiki>'</nowiki>s.", "The Eagle's stage and Eagle's."),
        ("Le journal l'''Équipe'' et L{{'}}'''Andalousie'''.", "Le journal l'Équipe et L'Andalousie."),
        ("'''''a''' b'' and '''a ''b'''''.", "a b and a b."),
        ("''A.\nB'''s.", "A. Bs."),
        ("a '''b ''c d'''e.", "a b c de."),
        ("The soft&shy;ware\u200b runs.", "The software runs."),
        ("He said -{zh-hans:\u6c34;zh-hant:\u8c41}- here -{H|zh:x}-.", "He said \u6c34 here."),
        ("<blockquote>A quoted sentence is kept.</blockquote>", "A quoted sentence is kept."),
        ("<poem>\nRoses are red.\n</poem>The river.", "The river."),
        ("The line\nis broken.", "The line is broken."),
    ],
)
def test_markup_becomes_what_a_reader_reads(markup, text):
    assert one(markup) == text


@pytest.mark.parametrize(
    ("markup", "language", "text"),
    [
        ("The {{ship|HMS|Victory}} met {{USS|Maine|ACR-1}}.", "en", "The HMS Victory met USS Maine (ACR-1)."),
        ("{{HMS|Hood|51|6}}, {{ship|HMS|Hood|51|2}}, {{as of|2011|lc=y}}.", "en", "HMS Hood, Hood, as of 2011."),
        (
            "{{convert|6|ft|2|in|cm|0}}, {{cvt|1+1/2|-|2|sqmi|km2}} at {{convert|20|C}}.",
            "en",
            "6 ft 2 in, 1 1/2–2 sq mi at 20 °C.",
        ),
        ("{{convert|3|x|4|x|5|m|ft}}, {{convert|5|km2|abbr=on}}.", "en", "3 x 4 x 5 m, 5 km²."),
        ("{{formatnum:1234567}}, {{US$|5}} or {{val|1.3|e=5|u=kg}}.", "en", "1,234,567, US$5 or 1.3×10⁵ kg."),
        (
            "An {{sclass|Iowa|battleship}} of {{circa|1900|1910}}.",
            "en",
            "An Iowa-class battleship of c. 1900 – c. 1910.",
        ),
        ("{{mvar|x}}, {{math|''y''}}, {{frac|3|1|2}}, {{as of|2010|5}}.", "en", "x, y, 3 1/2, As of May 2010."),
        ("Es liegt {{Höhe|1500|DE-NN}} hoch, hat {{formatnum:12345}}.", "de", "Es liegt 1.500 m hoch, hat 12.345."),
        (
            'Am {{Datum|5|8|1900}} {{laS|urbs}} {{"|gut}}, {{§|5}}.',
            "de",
            "Am 5. August 1900 lateinisch urbs „gut“, § 5.",
        ),
        ("Il naît le {{date|5|mai|1900}} au {{s-|XIX|e}}.", "fr", "Il naît le 5 mai 1900 au XIXe siècle."),
        ("{{unité|12345|rues}}, {{nobr|5 km}} et {{1er}}, {{av JC}}", "fr", "12 345 rues, 5 km et 1er, av. J.-C."),
        (
            "{{unité|105.4|km|2}}, {{unité|12|hab||km|-2}} au {{XIXe siècle}}.",
            "fr",
            "105,4 km², 12 hab⋅km⁻² au XIXe siècle.",
        ),
        (
            "Le {{Ier}}, {{1er|mai}}, aux {{sp-|XI|e|et|XII|e|s}} à {{heure|9|5|3}}.",
            "fr",
            "Le Ier, 1er mai, aux XIe et XIIe siècles à 9 h 5 min 3 s.",
        ),
        ("C'est {{lang|en|texte=the sea}} du {{date|5|8|1900}}.", "fr", "C'est the sea du 5 août 1900."),
        ("El {{siglo|XIX||s}} y {{siglo|V|a}} mide {{unidad|1234|km}}.", "es", "El siglo XIX y V a. C. mide 1234 km."),
        ("El {{fecha|5|8|1900}} {{barco|HMS|Victory}} fue.", "es", "El 5 de agosto de 1900 HMS Victory fue."),
        ("È {{M|12345|u=km}}, {{TA|5 anni}}, {{cn|bello}}.", "it", "È 12.345 km, 5 anni, bello."),
        (
            "No {{séc|XIX}} há {{fmtn|12345|km}} em {{dtlink|5|8|1900}}.",
            "pt",
            "No século XIX há 12 345 km em 5 de agosto de 1900.",
        ),
        ("{{liczba|12345}}, {{okręt|HMS|Victory}} i {{link-interwiki|X|tekst=Y}}.", "pl", "12 345, HMS Victory i Y."),
        ("De {{eeuw|19}}, {{datum|5|8|1900}}: {{formatnum:1234}}.", "nl", "De 19e eeuw, 5 augustus 1900: 1.234."),
        ("Это {{date|5|8|1900}}, {{нп5|Икс||en|X}}, {{число|12345}}.", "ru", "Это 5 августа 1900, Икс, 12 345."),
        ("{{仮リンク|東町|en|East|label=町}}に{{数値|12345|人}}が住む。", "ja", "町に12,345人が住む。"),
        ("これは{{読み仮名|川|かわ}}と{{lang-en|river}}である。", "ja", "これは川(かわ)と英語: riverである。"),
    ],
)
def test_templates_with_words_are_shown(markup, language, text):
    assert one(markup, language) == text


@pytest.mark.parametrize("language", "en de fr es it pt pl nl ru ja".split())
def test_every_row_of_the_table_shows_its_parameters(language):
    for name, pattern in patterns_of(language).items():
        first, second = "flat" if name == "music" else 5, "km" if pattern == "=convert" else 6
        shown = template_text(f"{name}|{first}|{second}|6|6|9|u=5|e=5|label=5|texte=5|tekst=5", language)
        assert HOLE not in shown and not set("{}<>?") & set(shown), (name, pattern)
        assert bool(shown) == bool(pattern), (name, pattern)
        required = "".join(re.split("<[^<>]*>", pattern))
        is_required = "{" in required or re.match("=[a-z]", pattern) is not None
        assert (HOLE in template_text(name, language)) == is_required, (name, pattern)
    assert language == "en" or len(patterns_of(language)) > len(patterns_of("xx"))


@pytest.mark.parametrize(
    ("markup", "language", "text", "dropped"),
    [
        ("It is old. The {{x|a}} sailed to port. It came back.", "en", "It is old. It came back.", 1),
        ("{{x}}\nIt is old.{{x}} It runs{{x}}, far{{x}} off{{x}}.", "en", "It is old. It runs, far off.", 0),
        ("{{x}}'QQParis'QQ is {{x|\n|a=b}} old.".replace("QQ", "''"), "en", "Paris is old.", 0),
        ("It is old. {{x}} sailed. Let <math>x</math> be.", "en", "It is old.", 2),
        ("Il est là. L'{{x}} est vaste. Il est (à {{x|y}}) loin.", "fr", "Il est là. Il est loin.", 1),
        (
            "Il est là. Au {{x}} av. J.-C. il tombe. Le roi M. {{x}} est mort. Il est loin.",
            "fr",
            "Il est là. Il est loin.",
            2,
        ),
        ("Jest tu. Ur. {{x}} w Rzymie.", "pl", "Jest tu.", 1),
        ("町である。{{x}}それに住む。川。{{x}}", "ja", "町である。それに住む。川。", 0),
        ("町である。東{{x}}に住む。川。", "ja", "町である。川。", 1),
        ("הסופר נולד ב{{תאריך|5|3|1970}}, בתל אביב. הוא גר שם.", "he", "הוא גר שם.", 1),
        ("הוא גר ב־{{x}} בתל אביב. ירושלים (ב{{ערבית|x}}) היא עיר.", "he", "ירושלים היא עיר.", 1),
        ("הספר{{הערה|x}} ישן. כן.", "he", "הספר ישן. כן.", 0),
        ("كتب و{{إنج|x}} رواية. ثم ذهب{{بحاجة لمصدر}}.", "ar", "ثم ذهب.", 1),
        ("ዝናብ በ{{x}} ዘነበ። ልጆቹ ቤት ቆዩ።", "am", "ልጆቹ ቤት ቆዩ።", 1),
        ("Dia lahir ke{{tgl|5}} di sana. Ia pergi{{butuh rujukan}}.", "id", "Ia pergi.", 1),
        ("Látta a{{hiv|x}} parton. Elment a boltba{{x}}.", "hu", "Elment a boltba.", 1),
        ("Joki on 5{{x}} pitkä. Se on vanha.", "fi", "Se on vanha.", 1),
        ("O {{x}}'da idi. Nehir eski.", "tr", "Nehir eski.", 1),
        ("It is 25{{degC}}. It is non{{foo|linear}}. It runs.", "en", "It runs.", 2),
    ],
)
def test_a_sentence_around_an_unknown_template_is_dropped_and_counted(markup, language, text, dropped):
    counts = Counter()
    assert prose_of(markup, SITE, language, counts) == [text]
    assert counts.total() == dropped


@pytest.mark.parametrize(
    ("markup", "language", "paragraphs", "counts"),
    [
        (
            "They included {{quote|a b}} Anna Lee states it.",
            "en",
            ["Anna Lee states it."],
            {"paragraphs dropped: no sentence ends there": 1},
        ),
        ("Er sagte dies. {{Zitat|Ja.}} Dann ging er.", "de", ["Er sagte dies.", "Dann ging er."], {}),
        (
            "The boat is old. It has 5 masts",
            "en",
            ["The boat is old."],
            {"paragraphs cut behind their last sentence": 1},
        ),
        (f"{REST}\n\nThe church of St. Mary", "en", [REST], {"paragraphs dropped: no sentence ends there": 1}),
    ],
)
def test_what_is_left_out_of_paragraphs_is_counted(markup, language, paragraphs, counts):
    found = Counter()
    assert prose_of(markup, SITE, language, found) == paragraphs
    assert {name: number for name, number in found.items() if number} == counts


@pytest.mark.parametrize(
    ("language", "number", "written"),
    [
        ("hi", "12345", "12,345"),
        ("hi", "1234567.5", "12,34,567.5"),
        ("hi", "123456", "1,23,456"),
        ("cs", "12345", "12 345"),
        ("tr", "1234", "1.234"),
        ("hu", "1234", "1234"),
        ("fi", "-12345,5", "-12 345,5"),
        ("ko", "1234567", "1,234,567"),
        ("en", "999", "999"),
    ],
)
def test_numbers_are_grouped_as_the_wiki_of_a_language_does(language, number, written):
    assert template_text(f"formatnum:{number}", language) == written


@pytest.mark.parametrize(
    "markup",
    [
        "",
        "\n\n",
        "{{only|templates}}",
        "#REDIRECT [[x]]",
        "'''River''' may refer to:\n* [[A]]\n* [[B]]",
        "[[File:x.jpg]]",
        "{|\n| All is a table.\n|}",
        "==Heading==",
        "The list of names",
        "St. Mary's church",
        "<ref>All is a reference.</ref>",
    ],
)
def test_what_holds_no_sentence_gives_nothing(markup):
    assert prose_of(markup, SITE) == []


def test_a_paragraph_ends_with_its_last_sentence():
    assert one(f"{REST} These are its towns:\n* [[A]]\n* [[B]]") == REST
    assert one(f'{REST[:-1]} ("sea".)') == f'{REST[:-1]} ("sea".)'


@pytest.mark.parametrize(
    "broken",
    (
        "{{a|b [[a|b <ref> </ref> <math> ''' {{a|[[b}} <div [[a|{{b]] {{{a}} -{zh: "
        "<nowiki> [[File:a.jpg|thumb|b {{{{{{ <table> __A"
    ).split()
    + ["}} b", "]] b", "{|\n", "|}\n", "<ref name=", "[http://a.b "],
)
def test_markup_that_is_not_closed_costs_its_marks_not_the_article(broken):
    assert any(REST in paragraph for paragraph in prose_of(f"{REST}\n\n{broken}\n\n{REST}", SITE))
    assert any(REST in paragraph for paragraph in prose_of(f"{broken}\n\n{REST}", SITE))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002\u5b83\u5f88\u5927\u3002", "zh"),
        ("\u0411\u0435\u0440\u043b\u0438\u043d \u2014 \u0441\u0442\u043e\u043b\u0438\u0446\u0430.", "ru"),
        (
            "\u0627\u0644\u0642\u0627\u0647\u0631\u0629 \u0643\u0628\u064a\u0631\u0629. \u0647\u0644 \u0647\u064a "
            "\u0639\u0627\u0635\u0645\u0629\u061f",
            "ar",
        ),
        ("\u0926\u093f\u0932\u094d\u0932\u0940 \u092c\u0921\u093c\u0940 \u0939\u0948\u0964", "hi"),
        ("\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e" * 12, "th"),
        ("\u305d\u308c\u306f\u300c\u5ddd\u3002\u300d", "ja"),
    ],
)
def test_other_languages_and_scripts_are_kept(text, language):
    assert one(f"'''{text}'''", language) == text
    assert one(f"{text}\n* [[x]]", language) == text


def test_a_chinese_paragraph_is_cut_after_its_last_full_stop():
    assert one("\u5b83\u5f88\u5927\u3002\u5305\u62ec\uff1a", "zh") == "\u5b83\u5f88\u5927\u3002"


PIECES = (
    "{{ }} [[ ]] {{[[ ]]}} {{a|[[b| <ref> <ref <!-- <nowiki> <table> ' -{ "
    "[http:// [http://a __A ( ). ... {{{ }}} < & &# ) [[a|{{b]] <math><ref> {{convert| ! = </ref> (; [[File: _"
).split()
SPACED = ["{|\n", "\n|}", " ", "( ", ": ", "\n:", "[[ (|", ". ", "\n=", ", "]


NESTED = [("[[", "]]"), ("{{lang|", "}}"), ("[[a|", "]]"), ("\n{|\n", "\n|}\n"), ("[[{{", "}}]]"), ("[[", "")]


def nested(start: str, end: str, count: int) -> str:
    """Return a page of this many characters: constructs in one another, and a text in the middle."""
    depth = count // (len(start) + len(end) + 20)
    return start * depth + "a word " * (20 * depth // 7) + end * depth


@pytest.mark.parametrize("piece", [*PIECES, *SPACED, *NESTED])
def test_the_time_is_proportional_to_the_length(piece):
    """The long text is ten times the short one; a quadratic scan would take a hundred times as long.

    The thread's time and no garbage collection, because what else this process holds and does is not the scanner's.
    """

    def seconds(count: int) -> float:
        page = nested(*piece, count) if isinstance(piece, tuple) else piece * (count // len(piece))
        start = time.thread_time()
        prose_of(page, SITE)
        return time.thread_time() - start

    gc.disable()
    try:
        short = max(0.005, max(seconds(20_000) for _ in range(2)))
        assert min(seconds(200_000) for _ in range(2)) < 60 * short, piece
    finally:
        gc.enable()


def test_markup_is_nested_as_deeply_as_a_page_has_it():
    assert one("One " + "[[a|" * 60 + "word" + "]]" * 60 + " more.") == "One word more."
    assert one("One" + "{{nothing|" * 5000 + "word" + "}}" * 5000 + " more.") == "One more."


MARKUP = (
    "{{ }} [[ ]] {| |} | <ref> </ref> <!-- --> ''' <nowiki> </nowiki> = * File: "
    "x {{{ }}} <br> <math> </math> &lt; 中。 -{ }-"
).split() + ["\n", "a b", "A word.", "\x00", "\ud800"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(MARKUP), max_size=40))
def test_any_markup_gives_single_lines_of_sentences(pieces):
    for paragraph in prose_of("".join(pieces), SITE):
        assert paragraph == " ".join(paragraph.split()) != ""


def words(text: str) -> list[str]:
    return text.replace("[", " ").replace("]", " ").split()


@pytest.mark.parametrize("number", range(5))
def test_the_words_are_those_of_a_parser_of_wiki_markup(number):
    """mwparserfromhell, which knows the grammar, strips the same; it keeps headings and lists, which the test adds."""
    markup = article(number)
    expected = mwparserfromhell.parse(markup).strip_code(normalize=True)
    expected = expected.replace("History", "").replace(" item", "").replace("* item", "").replace("Category:Rivers", "")
    assert words(" ".join(prose_of(markup, SITE))) == words(expected)
