"""Tests that greetings, signatures and quotations of many rows are counted and removed before pairs are made."""

import csv

import pytest

from bert.vectors.pairs import cleaned, divided, table_pairs, text_pairs, without_repeated_parts
from bert.vectors.repeated_parts import RepeatedParts, parts_of
from bert.vectors.settings import _repeated_share
from data.text.encodings import DETECTED

QUOTED = "> How do I reset it?\n"
FREE = "All of this text is free to use."
FOOT = "Kind regards,\nAnna Berg\nSupport team, floor 2"


def tickets(number: int) -> list[str]:
    """Return rows of a support table: a greeting, two sentences of their own, often a quotation, and a signature."""
    bodies = [f"The printer of room{n} blinks{n}. It printed page{n} before." for n in range(number)]
    return [
        f"{('Hello,', 'Dear all,')[n % 2]}\n\n{body}\n{QUOTED * (n % 3 == 0)}\n{FOOT}" for n, body in enumerate(bodies)
    ]


def write_table(path, header: str, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Hello,\n\nIt broke. Help!\n", ["Hello,\n\n", "It broke. ", "Help!\n"]),
        ("Dear Anna, it broke.", ["Dear Anna, ", "it broke."]),
        ("It broke on Monday in the evening, again.", ["It broke on Monday in the evening, again."]),
        ("\u6211\u7684\u3002\u4f60\u7684\u3002", ["\u6211\u7684\u3002", "\u4f60\u7684\u3002"]),
        ("Version 1.5 is out", ["Version 1.5 is out"]),
        ("", []),
    ],
)
def test_a_text_is_its_lines_sentences_and_greeting(text, parts):
    assert parts_of(text) == parts and "".join(parts) == text


def test_parts_of_more_than_the_share_of_the_rows_are_taken_out_and_counted():
    repeated = RepeatedParts.of(tickets(60), 0.05)
    counts = {"hello": 30, "dear all": 30, "how do i reset it": 20, "kind regards": 60, "anna berg": 60}
    assert repeated.counts == {**counts, "support team": 60, "floor 2": 60} and repeated.texts == 60
    assert repeated.removed_from(tickets(60)[3]) == "The printer of room3 blinks3. It printed page3 before."
    assert RepeatedParts.of(tickets(60), 0.4).counts.keys() == repeated.counts.keys() - {"how do i reset it"}
    assert not RepeatedParts.of(tickets(60), 1.0).counts
    (note,) = repeated.notes(0.05, "the texts of a.csv")
    most = "'anna berg' 60, 'floor 2' 60, 'kind regards' 60, 'support team' 60, 'dear all' 30, ..."
    found = f"7 parts of over 5% of the 60 different ones ({most})"
    assert note == f"taken out of the texts of a.csv: {found}; --repeated-share 1 keeps all"


def test_headings_few_rows_and_texts_that_come_again_as_a_whole_lose_nothing():
    assert not RepeatedParts.of([f"# Steps\nWord{n} is new." for n in range(50)], 0.05).counts
    assert not RepeatedParts.of(tickets(5), 0.05).counts
    assert not RepeatedParts.of(["A lock is taken. It is free."] * 90 + ["Else."], 0.05).counts
    assert RepeatedParts.of(["# Steps\nA."], 0.05).removed_from("# Steps\nA.") == "# Steps\nA."


def test_the_pairs_of_a_support_folder_are_no_longer_alike(tmp_path):
    """In an earlier version the pairs of all mails were a closing and a name."""
    closing = "Kind regards\n\nAnna Berg of the support team says thanks."
    rows = [
        [n, f"Hello,\nroom{n} has a printer{n} that blinks. It printed page{n} before.\n\n{closing}"]
        for n in range(300)
    ]
    file = write_table(tmp_path / "tickets.csv", "id,text", rows)
    pairs = cleaned(text_pairs(file, DETECTED, notes := [], None, 0.05), file, notes)
    assert pairs["query"][7] == "room7 has a printer7 that blinks."
    assert pairs.passage[7] == "It printed page7 before."
    train, held_out = divided(pairs, 0.1, 42, notes)
    assert (len(train), len(held_out)) == (270, 30) and not any("warning" in note for note in notes)
    with pytest.raises(ValueError, match=r"nothing to tell apart: .*; warning: 100% of the pairs are left out"):
        cleaned(text_pairs(file, DETECTED, notes := [], None, 1.0), file, notes)


def test_text_files_keep_what_they_share(tmp_path):
    for number in range(30):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\nWord{number} is new.\n\n{FREE}\n")
    assert FREE in {pair["passage"] for pair in text_pairs(tmp_path, DETECTED, [], None, 0.05)}


def test_both_sides_of_a_table_of_pairs_are_cleaned_but_never_emptied(tmp_path):
    rows = [[f"Hello, where is room{n}?", f"Room{n} is upstairs. Please rate this answer."] for n in range(40)]
    rows += [["Hello,", "Please rate this answer."]]
    file = write_table(tmp_path / "pairs.csv", "query,passage", rows)
    pairs = without_repeated_parts(table_pairs(file, None, None, DETECTED, []), 0.05, notes := [])
    assert (pairs[3]["query"], pairs[3]["passage"]) == ("where is room3?", "Room3 is upstairs.")
    assert (pairs[-1]["query"], pairs[-1]["passage"]) == ("Hello,", "Please rate this answer.")
    assert [note.partition(":")[0] for note in notes] == ["taken out of queries", "taken out of passages"]
    again = write_table(
        tmp_path / "again.csv", "query,passage", [[f"room{n}?", "It is upstairs, as all."] for n in range(40)]
    )
    pairs = without_repeated_parts(table_pairs(again, None, None, DETECTED, []), 0.05, notes := [])
    assert {pair["passage"] for pair in pairs} == {"It is upstairs, as all."} and not notes, (
        "one passage of many queries"
    )


def test_a_run_that_goes_on_takes_out_what_it_took_out(tmp_path):
    assert _repeated_share({"output_dir": tmp_path}) == 0.05
    (tmp_path / "vectors.yaml").write_text(f"output_dir: {tmp_path}\n")
    assert _repeated_share({"output_dir": tmp_path}) == 1.0, "of a version that took nothing out"
    (tmp_path / "vectors.yaml").write_text(f"output_dir: {tmp_path}\nrepeated_share: 0.2\n")
    assert _repeated_share({"output_dir": tmp_path}) == 0.2
