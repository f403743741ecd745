"""The page in a headless Chromium: typed texts, clicks, and what is shown."""

import pytest

from tests.serving.browser import PROGRAM, chromium
from tests.serving.servers import serving

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROGRAM is None, reason="no Chromium: apt-get install chromium")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(autouse=True)
def only_this_server_and_no_errors(page):
    """The page asks no other host, and its scripts raise nothing."""
    page.errors.clear()
    page.requested.clear()
    yield
    assert page.errors == []
    assert all(url.startswith(("http://127.0.0.1:", "data:", "about:")) for url in page.requested)


def open_form(page, server) -> None:
    page.open(server.url)
    page.wait_for("!!document.getElementById('send')")


def send(page, **texts: str) -> None:
    for name, text in texts.items():
        page.type_into(name, text)
    page.value("document.getElementById('result').hidden = true")
    page.click("send")
    page.wait_for("!document.getElementById('send').disabled && !document.getElementById('result').hidden")


def test_an_answer_is_highlighted_in_its_paragraph(page, tmp_path):
    with serving(tmp_path, "question-answering", fake=True) as server:
        open_form(page, server)
        context = "\U0001f600 <b>tags</b> & more: Anna Lindqvist\nopened it."
        send(page, question="Anna Lindqvist", context=context)
        assert page.value("document.getElementById('answer').textContent") == "Anna Lindqvist"
        marked = page.value("[...document.querySelectorAll('#result mark')].map(m => m.textContent)")
        assert marked == ["Anna Lindqvist"]  # after a character of two UTF-16 units
        assert page.value("document.querySelector('#result .text').textContent") == context  # as text, not as HTML
        assert page.value("document.querySelectorAll('#result b').length") == 0
        rows = page.value("[...document.querySelectorAll('#result tr')].map(r => r.innerText)")
        assert rows[0].split() == ["Anna", "Lindqvist", "75.0%"] and rows[1].split() == ["(no", "answer)", "25.0%"]
        shown = page.value("getComputedStyle(document.querySelector('#result mark')).backgroundColor")
        assert shown == "rgb(255, 213, 79)"  # the style sheet is there


def test_entities_have_a_colour_for_each_type(page, tmp_path):
    with serving(tmp_path, "token-classification", fake=True) as server:
        open_form(page, server)
        send(page, text="Yesterday Anna went to Malmo.")
        entities = page.value(
            "[...document.querySelectorAll('.entity')].map(e => [e.textContent, getComputedStyle(e).backgroundColor])"
        )
        assert [text for text, _ in entities] == ["AnnaPER", "MalmoLOC"]
        assert len({colour for _, colour in entities}) == 2
        send(page, text="Nobody.")
        assert page.value("document.querySelector('#result .note').textContent") == "(no entity)"


def test_classes_are_bars_and_mistakes_are_shown(page, tmp_path):
    with serving(tmp_path, "sequence-classification", fake=True) as server:
        open_form(page, server)
        send(page, text="A film.")
        assert page.value("document.getElementById('label').textContent") == "good"
        widths = page.value("[...document.querySelectorAll('.bar')].map(b => b.getBoundingClientRect().width)")
        assert widths[0] == pytest.approx(4 * widths[1], rel=0.02) and widths[1] > 5
        page.type_into("text", "refuse")
        page.click("send")
        problem = page.wait_for("!document.getElementById('problem').hidden && problem.textContent")
        assert "no [MASK] in the text" in problem and page.value("document.getElementById('result').hidden")
        page.errors.clear()  # the browser notes the status 422


def test_a_text_has_several_labels_or_none(page, tmp_path):
    with serving(tmp_path, "several-labels", fake=True) as server:
        schemas = server.get("/openapi.json").json()["components"]["schemas"]
        assert schemas["PredictAnswer"]["properties"]["results"]["items"]["$ref"].endswith("/Labels")
        open_form(page, server)
        for text, shown in (("bad, then good", "good, bad"), ("neither", "(no label)")):
            send(page, text=text)
            assert page.value("document.getElementById('label').textContent") == shown


def test_masks_are_filled_and_word_pieces_joined(page, tmp_path):
    with serving(tmp_path, "masked-lm", fake=True) as server:
        open_form(page, server)
        send(page, text="It is read [MASK] now [MASK].")
        assert page.value("document.getElementById('filled').textContent") == "It is reading nowing."
        assert page.value("document.querySelectorAll('#result mark').length") == 2
        assert page.value("document.querySelectorAll('#result table').length") == 2


def test_the_page_waits_for_the_model_and_a_vector_is_shown(page, tmp_path):
    with serving(tmp_path, "encoder", fake=True, ready=False, FAKE_START="2") as server:
        page.open(server.url)
        page.wait_for("document.getElementById('summary')?.textContent.includes('being loaded')")
        page.wait_for("!!document.getElementById('send')")
        page.errors.clear()  # the browser notes the status 503
        send(page, text="four")
        assert page.value("document.getElementById('vector').textContent").startswith("2 numbers: 4.0000, 0.5000")


def test_the_page_of_the_api_needs_no_network(page, tmp_path):
    with serving(tmp_path, "encoder", fake=True) as server:
        page.open(f"{server.url}/docs")
        page.wait_for("document.body?.innerText.includes('/predict')")
        assert "/encode" in page.value("document.body.innerText")
