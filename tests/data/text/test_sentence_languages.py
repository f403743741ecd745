"""Sentences of many languages, written for this test and counted by hand, by the rules of `en` and of their own."""

from collections import Counter

import pytest

from bert.config.plain_commands import read_flags
from bert.tokenization.wordpiece import WordPieceTokenizer
from data.preprocessing.problems import problems_of_counts
from data.preprocessing.request import ShardRequest, _facts_of, _language_of
from data.text.script_facts import ScriptFacts
from data.text.sentences import _sentences_of, split_sentences, tokenize_documents
from tests.support.corpora import vocabulary, write_vocabulary

PASSAGES = {  # language -> sentences
    "hi": "आज सुबह बारिश हुई। |बच्चे स्कूल नहीं गए। |क्या वे कल जाएँगे? |माँ ने चाय बनाई।",
    "bn": "আজ সকালে বৃষ্টি হয়েছে। |আমরা বাড়িতে ছিলাম। |তুমি কি কাল আসবে?",
    "pa": "ਅੱਜ ਸਵੇਰੇ ਮੀਂਹ ਪਿਆ। |ਬੱਚੇ ਘਰ ਰਹੇ।",
    "ur": "آج صبح بارش ہوئی۔ |بچے گھر پر رہے۔ |کیا تم کل آؤ گے؟ |ماں نے چائے بنائی۔",
    "ar": "نزل المطر هذا الصباح. |بقي الأولاد في البيت. |هل تأتي غدا؟ |شربنا الشاي معا.",
    "he": "הבוקר ירד גשם. |הילדים נשארו בבית. |האם תבוא מחר? |שתינו תה.",
    "hy": "Այսօր առավոտյան անձրև եկավ։ |Երեխաները մնացին տանը։ |Մենք թեյ խմեցինք։",
    "ka": "დღეს დილით წვიმდა. |ბავშვები სახლში დარჩნენ. |ხვალ მოხვალ?",
    "am": "ዛሬ ጠዋት ዝናብ ዘነበ። |ልጆቹ ቤት ቆዩ። |ነገ ትመጣለህ?",
    "my": "ဒီမနက် မိုးရွာတယ်။ |ကလေးတွေ အိမ်မှာ နေကြတယ်။ |ငါတို့ လက်ဖက်ရည် သောက်တယ်။",
    "km": "ព្រឹកនេះមានភ្លៀង។ |ក្មេងៗនៅផ្ទះ។ |យើងផឹកតែ។",
    "bo": "དེ་རིང་ཆར་པ་བབས། |ཕྲུ་གུ་ཁྱིམ་དུ་བསྡད། |ང་ཚོས་ཇ་འཐུངས།",
    "mn": "ᠥᠨᠥᠳᠥᠷ ᠪᠣᠷᠣᠭᠠ ᠣᠷᠣᠪᠠ᠃ |ᠬᠡᠦᠬᠡᠳ ᠭᠡᠷ ᠲᠡᠭᠡᠨ ᠪᠠᠢᠪᠠ᠃",
    "zh": "今天早上下雨了。|孩子们在家。|你明天来吗？|我们喝茶！",
    "ja": "今朝は雨が降った。|子供たちは家にいた。|明日来ますか？",
    "ko": "오늘 아침에 비가 왔다. |아이들은 집에 있었다. |내일 올 거니?",
    "ta": "இன்று காலை மழை பெய்தது. |குழந்தைகள் வீட்டில் இருந்தனர். |நாளை வருவாயா?",
    "si": "අද උදේ වැස්ස. |ළමයි ගෙදර සිටියා. |ඔබ හෙට එනවාද?",
}
OWN = {  # what the script tells, or the folder's name
    "el": "Σήμερα το πρωί έβρεξε. |Θα έρθεις αύριο; |Τα παιδιά, π.χ. ο Νίκος, έμειναν σπίτι. |Ήπιαμε τσάι.",
    "ru": "Сегодня утром шёл дождь. |Мы ели, напр. Иван ел хлеб. |Это было в 2020 г. у бабушки. |Ты придёшь?",
    "lt": "Šį rytą lijo. |Pirkome vaisių, pvz. obuolių. |Pvz. Jonas liko namie. |Ar ateisi rytoj?",
    "de": "Heute regnete es z. B. in Bonn. |Die Kinder blieben am 3. Mai zu Hause. |Kommst du?",
    "fi": "Aamulla satoi. |Lapset, ts. Anna ja Olli, jäivät kotiin. |Tuletko huomenna?",
    "tr": "Bu sabah yağmur yağdı. |Çocuklar, örn. Ali, evde kaldı. |Bkz. Ankara. |Yarın gelecek misin?",
    "jv": "ꦲꦶꦏꦶ꧈ꦲꦸꦢꦤ꧉ |ꦧꦺꦴꦕꦃ꧉",
}


def _found(text: str, language: str) -> list[str]:
    data, bounds, _ = _sentences_of([text], language, Counter())
    return [data[start:stop].tobytes().decode() for start, stop in zip(bounds, bounds[1:], strict=False)]


@pytest.mark.parametrize("language", PASSAGES)
def test_sentences_are_whole_whatever_the_language_is_called(language):
    text, sentences = PASSAGES[language].replace("|", ""), PASSAGES[language].split("|")
    assert _found(text, "en") == sentences
    assert split_sentences(text, language, Counter()) == sentences


@pytest.mark.parametrize("language", OWN)
def test_sentences_are_whole_by_the_rules_of_their_language(language):
    text, sentences = OWN[language].replace("|", ""), OWN[language].split("|")
    assert _found(text, language) == sentences


def test_the_script_tells_a_language():
    for language, passage in {**PASSAGES, **OWN}.items():
        facts = ScriptFacts()
        facts.add(passage.replace("|", ""))
        expected = {"ur": "ar"}.get(language, "en" if language in ("lt", "de", "fi", "tr") else language)
        assert facts.language() == expected, language
    facts = ScriptFacts()
    facts.add("Plain English with a word of Greek, λόγος, in it.")
    assert facts.language() == "en" == ScriptFacts().language()


@pytest.mark.parametrize(
    ("folders", "flags", "expected"),
    [
        ({"en": PASSAGES["hi"]}, [], "hi"),
        ({"hi": PASSAGES["hi"]}, [], "hi"),
        ({"en": OWN["el"]}, [], "el"),
        ({"en": "The boat is gone."}, [], "en"),
        ({"simple": "The boat is gone."}, [], "en"),
        ({"de": OWN["de"]}, [], "de"),
        ({"de": OWN["de"]}, ["--language", "nl"], "nl"),
        ({"de-AT": OWN["de"], "en": "Short."}, [], "de"),
        ({"My Books": OWN["ru"]}, [], "ru"),
    ],
)
def test_the_language_is_that_of_the_folder_and_else_of_the_script(tmp_path, folders, flags, expected):
    for name, text in folders.items():
        (folder := tmp_path / "source" / name).mkdir(parents=True)
        (folder / "0.txt").write_text(f"doc-1 {text.replace('|', '')}\n", "utf-8")
    words = vocabulary()
    file = write_vocabulary(tmp_path / "vocab.txt")
    places = ["--text", str(tmp_path), "--output-dir", str(tmp_path / "o"), "--vocab-file", str(file)]
    request = read_flags(ShardRequest, [*places, *flags], description=None)
    source = request.read_source()
    assert (request.language or _language_of(source, _facts_of(source)[0])) == expected
    if expected == "en":
        settings = request.sample_settings(words, source)
        assert settings.language == "en" and settings.normalization().equal_letters


def test_over_half_of_the_sentences_cut_by_their_length_is_a_problem():
    words = vocabulary()
    text = "the sea is calm and " * 30
    for texts, is_much in ((["The sea. " * 20 + text], False), ([text, text, "The sea."], True)):
        counts = Counter[str]()
        tokenize_documents(enumerate(texts), WordPieceTokenizer(words), "en", counts, max_sentence_tokens=20)
        problems = [problem for problem in problems_of_counts(counts, Counter()) if "cut by their" in problem]
        assert bool(problems) == is_much
        if is_much:
            assert problems[0].startswith("67% of the 3 sentences are longer than half a sample")
