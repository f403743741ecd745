"""Detection of texts that are certainly not English, on texts written for this test."""

import pytest

from data.text.languages import are_foreign

OTHERS = (
    "Der Server ist nicht erreichbar, und wir haben den Router auf die neue Version gebracht, aber das hilft nicht.",
    "De server is niet bereikbaar en wij hebben het probleem met de router niet op tijd gezien voor een klant.",
    "Le serveur ne répond pas et nous avons une panne dans le bureau, mais il est à nouveau en marche.",
    "El servidor no responde y la red de la oficina está caída, por lo que no se puede trabajar en el edificio.",
    "Máy chủ không trả lời và chúng tôi đã khởi động lại bộ định tuyến nhưng nó vẫn không hoạt động.",
    "सर्वर चालू नहीं है और हम इंतज़ार कर रहे हैं।",
    "Сервер не отвечает, и мы ждём.",
    "サーバーが応答しません。待っています。",
)
ENGLISH = (
    "The server is not reachable, and we have updated the router to the new version, but it does not help.",
    "great film",
    "Error 502 at /api/v1/items: connection reset by peer",
    "Café de la Paix, el Niño and die Hard are names in this text, which is English for all that it has of others.",
)


@pytest.mark.parametrize("text", OTHERS)
def test_other_languages_are_told(text):
    assert are_foreign([text] * 5)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not_taken_for_another_language(text):
    assert not are_foreign([text] * 5)
    assert not are_foreign([])
