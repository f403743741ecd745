"""Example texts for a model card, in the language of the model's training text."""

import json
from typing import NamedTuple


class Examples(NamedTuple):
    masked: str  # a sentence with [MASK]
    sentence: str  # a sentence that names a person and a place
    question: str
    context: str  # a paragraph that answers the question
    query: str
    passages: tuple[str, str]  # the first one answers the query

    def arguments(self, pipeline: str) -> str:
        """The arguments of a call of one of transformers' pipelines, as Python source."""
        if pipeline == "question-answering":
            return f"question={_python_string(self.question)}, context={_python_string(self.context)}"
        return _python_string(self.masked if pipeline == "fill-mask" else self.sentence)


def _python_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_EXAMPLES = {
    "en": Examples(
        "The [MASK] was late again.",
        "Anna Lindqvist visited Malmo.",
        "Who opened it?",
        "Anna opened it in 1987.",
        "How is a commit undone?",
        ("A new commit reverses the changes.", "The library opens at nine."),
    ),
    "de": Examples(
        "Der [MASK] kam wieder zu spät.",
        "Anna Lindqvist besuchte Hamburg.",
        "Wer hat es eröffnet?",
        "Anna hat es 1987 eröffnet.",
        "Wann öffnet die Bibliothek?",
        ("Die Bibliothek öffnet um neun Uhr.", "Der Zug fährt am Abend ab."),
    ),
    "fr": Examples(
        "Le [MASK] était encore en retard.",
        "Anne Martin a visité Lyon.",
        "Qui l'a ouvert ?",
        "Anne l'a ouvert en 1987.",
        "Quand la bibliothèque ouvre-t-elle ?",
        ("La bibliothèque ouvre à neuf heures.", "Le train part le soir."),
    ),
    "es": Examples(
        "El [MASK] llegó tarde otra vez.",
        "Ana García visitó Sevilla.",
        "¿Quién lo abrió?",
        "Ana lo abrió en 1987.",
        "¿Cuándo abre la biblioteca?",
        ("La biblioteca abre a las nueve.", "El tren sale por la noche."),
    ),
    "it": Examples(
        "Il [MASK] era di nuovo in ritardo.",
        "Anna Rossi ha visitato Torino.",
        "Chi lo ha aperto?",
        "Anna lo ha aperto nel 1987.",
        "Quando apre la biblioteca?",
        ("La biblioteca apre alle nove.", "Il treno parte di sera."),
    ),
    "pt": Examples(
        "O [MASK] chegou atrasado outra vez.",
        "Ana Silva visitou Lisboa.",
        "Quem o abriu?",
        "A Ana abriu-o em 1987.",
        "Quando abre a biblioteca?",
        ("A biblioteca abre às nove horas.", "O comboio parte à noite."),
    ),
    "nl": Examples(
        "De [MASK] was weer te laat.",
        "Anna de Vries bezocht Utrecht.",
        "Wie heeft het geopend?",
        "Anna heeft het in 1987 geopend.",
        "Wanneer gaat de bibliotheek open?",
        ("De bibliotheek gaat om negen uur open.", "De trein vertrekt in de avond."),
    ),
    "pl": Examples(
        "[MASK] znowu się spóźnił.",
        "Anna Nowak odwiedziła Kraków.",
        "Kto to otworzył?",
        "Anna otworzyła to w 1987 roku.",
        "Kiedy otwiera się biblioteka?",
        ("Biblioteka otwiera się o dziewiątej.", "Pociąg odjeżdża wieczorem."),
    ),
    "ru": Examples(
        "[MASK] снова опоздал.",
        "Анна Иванова посетила Казань.",
        "Кто его открыл?",
        "Анна открыла его в 1987 году.",
        "Когда открывается библиотека?",
        ("Библиотека открывается в девять часов.", "Поезд отправляется вечером."),
    ),
    "tr": Examples(
        "[MASK] yine geç kaldı.",
        "Ayşe Yılmaz İzmir'i ziyaret etti.",
        "Onu kim açtı?",
        "Onu 1987'de Ayşe açtı.",
        "Kütüphane ne zaman açılıyor?",
        ("Kütüphane saat dokuzda açılıyor.", "Tren akşam kalkıyor."),
    ),
    "zh": Examples(
        "[MASK]车又晚点了。",
        "王芳去了上海。",
        "谁开了这家店？",
        "王芳在1987年开了这家店。",
        "图书馆几点开门？",
        ("图书馆九点开门。", "火车晚上出发。"),
    ),
    "ja": Examples(
        "[MASK]はまた遅れました。",
        "田中さんは京都を訪れました。",
        "誰が開きましたか？",
        "田中さんが1987年に開きました。",
        "図書館は何時に開きますか？",
        ("図書館は九時に開きます。", "電車は夜に出発します。"),
    ),
}


def examples_in(language: str) -> Examples | None:
    """The examples in a language such as de or pt-BR; English without a code; None for languages without examples."""
    return _EXAMPLES.get(language.lower().replace("_", "-").partition("-")[0] or "en")
