"""Choice of a table's text column, matching of column names, and how much of a table is read for it."""

import pytest

from data.text.columns import (
    SAMPLE_CHARACTERS,
    SAMPLE_ROWS,
    NoColumnError,
    Row,
    TableForm,
    TextColumn,
    first_items,
    fitting,
    places_of,
    row_size,
    texts_inside,
)

TEXT = "a pump in the hall leaks"  # 24 characters


def rows_of(**columns: list) -> list[dict]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize(
    ("field", "columns", "chosen"),
    [
        (None, ["id", "text"], "text"),
        ("note", ["text", "note"], "note"),
        ("body, note", ["text", "note", "body"], "body"),
        ("body, note", ["text", "note"], "note"),
        ("a, b", ["a, b"], "a, b"),
    ],
)
def test_the_named_column_is_chosen(field, columns, chosen):
    column = TextColumn(field)
    assert column.choose(columns, []) == chosen and column.names == [chosen] and column.guess is None


@pytest.mark.parametrize(
    ("texts", "is_text"),
    [
        ([TEXT] * 4, False),  # 24 characters in the mean
        ([TEXT + " again"] * 4, True),  # 30
        ([TEXT + " again"] * 3, False),  # 90 in all
        (["a pump in the hall leaks a lot"] * 4, True),
        (["word-" * 20] * 4, False),  # one word each
        (["two " + "words" * 20] * 4, False),
        (["\u6cf5\u6f0f\u6c34" * 10] * 4, True),  # no spaces in its script
    ],
)
def test_without_a_usual_name_the_longest_text_is_guessed_if_it_is_long_enough(texts, is_text):
    rows = rows_of(number=[str(10**40)] * len(texts), remarks=texts)
    column = TextColumn(None)
    if is_text:
        assert column.choose(["number", "remarks"], rows) == "remarks" and column.guess == "remarks"
    else:
        with pytest.raises(NoColumnError, match=r"has no column 'text', only \['number', 'remarks'\]$"):
            column.choose(["number", "remarks"], rows)


def test_a_column_that_was_named_is_not_guessed_but_the_likeliest_is_told():
    rows = rows_of(titel=["x"], remarks=[TEXT * 9])
    for field, hint in (("remark", "remarks"), ("title", "titel"), ("none", "remarks")):
        with pytest.raises(NoColumnError, match=rf"has no column '{field}', only .* \(did you mean '{hint}'\?\)"):
            TextColumn(field).choose(["titel", "remarks"], rows)
    inside = [{"data": {"notes": [{"said": TEXT * 9}]}}]
    with pytest.raises(NoColumnError, match=r"did you mean 'data.notes\[\].said'\?"):
        TextColumn("none").choose(["data"], inside)


def test_texts_inside_of_a_row_have_paths_down_to_ten_levels():
    assert list(texts_inside({"a": ["x", {"b": "y"}], "c": 1, "d": {"e": "z"}})) == [
        {"a[]": "x"},
        {"a[].b": "y"},
        {"d.e": "z"},
    ]
    deep: object = "x"
    for _ in range(10):
        deep = [deep]
    assert list(texts_inside(deep)) == [{"[]" * 10: "x"}] and list(texts_inside([deep])) == []


def test_rows_may_have_their_text_under_different_names():
    column = TextColumn("body, note")
    assert column.value({"note": "n", "body": "b"}) == ("body", "b") and column.value({"note": "n"}) == ("note", "n")
    assert column.value({"body": 3, "note": "n"}) == ("note", "n"), "a text before what is none"
    assert column.value({"body": 3}) == ("body", 3) and column.value({}) == ("body", None)


def test_names_are_found_exactly_or_in_any_case():
    keys = (("sentence1", "sentence2"), ("Text",))
    assert fitting(keys, ["Sentence1", "SENTENCE2", "Text"]) == ("Text",), "exactly before another case"
    assert fitting(keys, ["Sentence1", "SENTENCE2", "x"]) == ("Sentence1", "SENTENCE2")
    assert fitting([("text",)], ["TEXT", "Text"]) == ("TEXT",) and fitting(keys, ["sentence1"]) is None


def test_columns_have_their_places_and_must_be_named_once():
    assert places_of(["a", "b", "c"], ["c", "a"], "b") == {"c": 2, "a": 0, "b": 1}
    assert places_of(["a", "b"], [1], "x") == {1: 1} and list(places_of(["a", "b"], ["b"], "b")) == ["b"]
    for names, text, is_repeated in (
        (["a"], "has no column 'b', only", False),
        (["b", "b"], "has 2 columns 'b'; give each of them a name of its own", True),
    ):
        with pytest.raises(NoColumnError, match=text) as error:
            places_of(names, ["b"], None)
        assert (error.value.column, error.value.names, error.value.is_repeated()) == ("b", names, is_repeated)


def test_a_sample_of_rows_is_bounded():
    assert len(first_items(iter(["x"] * 9999), len)) == SAMPLE_ROWS == 500
    half = "x" * (SAMPLE_CHARACTERS // 2)
    assert len(first_items(iter([half] * 9), len)) == 3, "until there is more than 2^20 characters"
    items = iter(range(9))
    assert first_items(items, lambda _: 0, lambda item: item == 2) == [0, 1, 2] and next(items) == 3
    assert (
        row_size(Row(1, {"a": "xyz", "b": [1, 2], "c": 7, "d": {"e": 1}})) == 6 and row_size(Row(1, None, "bad")) == 0
    )


def test_a_form_knows_its_columns():
    form = TableForm(["label", "a.b", "c[]"], text=TextColumn("note"), optional="id.x")
    assert form.paths() == ["a.b", "c[]", "id.x"]
    assert form.is_named_by(["note", "label", "a.b", "c[]", "z"]) and not form.is_named_by(["label", "a.b", "c[]"])
    assert not form.is_named_by(["note", "label", "a.b"])
    assert form.all_columns(["note", "z"], []) == ["note", "label", "a.b", "c[]"]
    everything = TableForm(None, expected=(("premise", "hypothesis"),))
    assert everything.is_named_by(["Premise", "HYPOTHESIS", "x"]) and not everything.is_named_by(["premise"])
    assert everything.all_columns(["x", "y"], []) == ["x", "y"]
