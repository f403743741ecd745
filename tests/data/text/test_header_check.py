"""Whether the first line of a table holds column names: each criterion by itself, and all together on tables."""

import pytest

from data.text.header_check import (
    ColumnSample,
    NoHeaderError,
    is_fraction,
    is_longer_than_names,
    is_number_among_numbers,
    is_one_of_the_labels,
    is_sentence_among_sentences,
    refuse_without_header,
)

TWO_LABELS, SIX_LABELS = ["spam", "ham"] * 6, ["a", "b", "c", "d", "e", "f"] * 2
DIFFERENT = [f"x{number}" for number in range(12)]
SENTENCES = [f"The pump number {number} in the hall leaks." for number in range(12)]
QUESTIONS = [f"What is wrong with pump number {number}?" for number in range(12)]
SHORT = [f"Pump {number} is broken." for number in range(4)]
CHINESE = ["\u6cf5\u6f0f\u6c34\u4e86\u4e94\u3002", "\u6cf5\u574f\u4e86\u8981\u4fee\u3002"]

CASES = [
    # sign, name, values, expected
    (is_fraction, "0.5", [], True),
    (is_fraction, "-12,25", [], True),
    (is_fraction, "12 %", [], True),
    (is_fraction, "7.5%", [], True),
    (is_fraction, "12", [], False),  # a whole number may be a name
    (is_fraction, "0.5 mg", [], False),
    (is_fraction, "v1.5", [], False),
    (is_one_of_the_labels, "spam", TWO_LABELS, True),
    (is_one_of_the_labels, "group", TWO_LABELS, False),
    (is_one_of_the_labels, "f", SIX_LABELS, True),  # each occurs twice in the mean
    (is_one_of_the_labels, "f", [*SIX_LABELS[:6], *DIFFERENT], False),  # each seldom repeats
    (is_one_of_the_labels, "x3", DIFFERENT[:9], True),  # nine rows are few
    (is_one_of_the_labels, "x3", DIFFERENT[:10], False),
    (is_one_of_the_labels, "yes", ["yes", ""] * 6, False),  # a check box
    (is_one_of_the_labels, "yes", ["yes", "", "no"] * 4, True),
    (is_one_of_the_labels, "yes", ["yes", None] * 6, True),
    (is_one_of_the_labels, "yes", ["yes"] * 12, True),
    (is_one_of_the_labels, "spam", [], False),
    (is_number_among_numbers, "3", ["1", "2", "5"] * 4, True),
    (is_number_among_numbers, "123", ["1", "2", "5"] * 4, True),  # up to three digits
    (is_number_among_numbers, "2020", ["1", "2", "5"] * 4, False),  # a year above counts
    (is_number_among_numbers, "2020", ["1999", "2021"] * 6, True),
    (is_number_among_numbers, "3", ["1", "2", ""] * 4, False),
    (is_number_among_numbers, "3", ["1", "2", "x"] * 4, False),
    (is_number_among_numbers, "3", [str(number) for number in range(12)], False),  # as a running number
    (is_number_among_numbers, "x", ["1", "2", "5"] * 4, False),
    (is_number_among_numbers, "3", [], False),
    (is_sentence_among_sentences, SENTENCES[0], SENTENCES, True),
    (is_sentence_among_sentences, "note", SENTENCES, False),
    (is_sentence_among_sentences, "", SENTENCES, False),  # pandas does not name the column of its index
    (is_sentence_among_sentences, SENTENCES[0], DIFFERENT, False),
    (is_sentence_among_sentences, SENTENCES[0], [*SENTENCES[:6], *DIFFERENT[:6]], True),  # 7 of 13
    (is_sentence_among_sentences, SENTENCES[0], [*SENTENCES[:5], *DIFFERENT[:6]], False),  # 6 of 12
    (is_sentence_among_sentences, SENTENCES[0], SENTENCES[:2] * 6, False),  # sentences that repeat are labels
    (is_sentence_among_sentences, "What is wrong with pump number 12 in it?", SENTENCES, False),  # heads its answers
    (is_sentence_among_sentences, "What is wrong with pump number 12 in it?", QUESTIONS, True),
    (is_sentence_among_sentences, "What is wrong with pump number 12 in it:", QUESTIONS, False),
    (is_sentence_among_sentences, "x" * 18 + " of pumps.", SENTENCES, False),  # 28 characters, fewer than 0.8 x 36
    (is_sentence_among_sentences, "x" * 19 + " of pumps.", SENTENCES, True),
    (is_sentence_among_sentences, "Pump 9 is broken.", [*SHORT[:4], *SENTENCES[:8]], True),  # as long as a quarter
    (is_sentence_among_sentences, "Pump 9 is broken.", [*SHORT[:3], *SENTENCES[:9]], False),
    (is_sentence_among_sentences, CHINESE[0], CHINESE, True),
    (is_sentence_among_sentences, SENTENCES[0], [], False),
]


@pytest.mark.parametrize(("sign", "name", "values", "expected"), CASES)
def test_each_sign_of_a_row(sign, name, values, expected):
    assert sign(ColumnSample(name, values)) is expected


def test_a_name_has_at_most_60_characters():
    assert not is_longer_than_names("x" * 60) and is_longer_than_names("x" * 61)


@pytest.mark.parametrize(
    ("names", "columns", "is_row"),
    [
        (["note", "group"], [SENTENCES, ["a", "b"] * 6], False),
        ([SENTENCES[0], "group"], [SENTENCES, ["a", "b"] * 6], True),  # a sentence among sentences
        (["What is wrong with it?", "group"], [SENTENCES, ["a", "b"] * 6], False),  # a question among statements
        (["Pumps of ours.", "group"], [SENTENCES, ["a", "b"] * 6], False),  # much shorter
        (["words", "spam"], [SENTENCES, ["spam", "ham"] * 6], True),  # a label of others
        (["text", "spam"], [SENTENCES, ["spam", "ham"] * 6], False),  # beside a usual name
        (["words", "yes"], [SENTENCES, ["yes", ""] * 6], False),  # a check box
        (["words", "spam"], [SENTENCES, ["spam", *map(str, range(11))]], False),  # many rows, seldom repeated
        (["words", "spam"], [SENTENCES[:4], ["spam", "x", "y", "z"]], True),  # few rows
        (["words", "3"], [SENTENCES, ["1", "2", "5"] * 4], True),  # a number among few others
        (["words", "2020"], [SENTENCES, ["1", "2", "5"] * 4], False),  # a year above small numbers
        (["2020", "2021"], [["1", "2"] * 6, ["3", "4"] * 6], False),  # several years
        (["2020", "2021"], [["1500", "1600"] * 6, ["1700", "1800"] * 6], False),  # above numbers as long as they
        (["place", "2020"], [DIFFERENT, ["1500", "1600"] * 6], True),
        (["words", "0.5"], [SENTENCES, ["x"] * 12], True),
        (["words", "12 %"], [SENTENCES, ["x"] * 12], True),
        (["0", "1"], [SENTENCES, ["1", "0"] * 6], False),  # pandas' names
        (["", "remark"], [[str(number) for number in range(12)], SENTENCES], False),  # pandas' index
        (["x" * 61, "text"], [SENTENCES, DIFFERENT], True),  # even beside a usual name
    ],
)
def test_a_first_line_that_is_a_row_is_refused(names, columns, is_row):
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if is_row:
        with pytest.raises(
            NoHeaderError, match=r"has no names of columns in its first line, which is a row .*--no-header"
        ):
            refuse_without_header(rows)
    else:
        refuse_without_header(rows)
    refuse_without_header([])


def test_a_header_that_is_repeated_among_the_rows_is_one():
    rows = [{"words": f"x{number}", "spam": "ham"} for number in range(4)] + [{"words": "words", "spam": "spam"}]
    refuse_without_header(rows)


def test_the_error_names_the_first_wrong_name_in_60_characters_and_the_flags():
    long = "The first " * 7
    rows = [{"spam": label, long: sentence} for label, sentence in zip(TWO_LABELS, SENTENCES, strict=True)]
    with pytest.raises(NoHeaderError) as error:
        refuse_without_header(rows, "--text-column")
    assert str(error.value) == (
        "has no names of columns in its first line, which is a row ("
        f"{long[:60]!r}); add a line of names, or pass --text-column"
    )
    with pytest.raises(NoHeaderError, match=r"\('spam'\); add a line of names$"):
        refuse_without_header([{"spam": label, "x": "y"} for label in TWO_LABELS], "")
