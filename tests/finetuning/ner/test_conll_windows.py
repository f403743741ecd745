"""Sentences, documents and comments of random files, whole and in parts, compared with plain reading of lines."""

import random

import pytest

from bert.finetuning.ner.conll import ConllFormat, TaggedText, count_sentences, predicted_lines, tagged_windows
from bert.finetuning.ner.tags import Span
from data.text.encodings import DETECTED

SEED_FILES = 60


def random_lines(rng: random.Random) -> list[str]:
    """Return lines: comments before sentences, blank lines with or without spaces, documents, words that begin with
    #."""
    lines, separator = [], rng.choice((" ", "\t", "  "))
    for _ in range(rng.randint(1, 9)):
        lines += ["-DOCSTART- O"] * rng.choice((0, 0, 1, 2)) + [rng.choice(("", "  "))] * rng.randint(1, 2)
        lines += [f"# text {number} of it" for number in range(rng.choice((0, 0, 1, 2)))]
        lines += [f"{rng.choice('ab#')}{number}{separator}O" for number in range(rng.randint(1, 4))]
    return lines


def read_plainly(lines: list[str]) -> tuple[list[list[str]], list[int], int]:
    """Return the words of each sentence, its document counted from 0, and the number of comments."""
    sentences: list[list[str]] = []
    documents: list[int] = []
    comments, document, is_new, is_open = 0, 0, False, False
    for line in lines:
        if line.startswith("-DOCSTART-"):
            is_new, is_open = True, False
        elif not line.strip():
            is_open = False
        elif not is_open and line.startswith("# "):
            comments += 1
        else:
            if not is_open:
                document += is_new and bool(sentences)
                sentences.append([])
                documents.append(document)
                is_new, is_open = False, True
            sentences[-1].append(line.split()[0])
    return sentences, documents, comments


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def windows_of(path, **limits) -> list[TaggedText]:
    return list(tagged_windows(path, ConllFormat(), **limits))


@pytest.mark.parametrize("whole_documents", [False, True])
def test_windows_hold_all_sentences_in_their_documents(tmp_path, whole_documents):
    rng, path = random.Random(11), tmp_path / "a.conll"
    for _ in range(SEED_FILES):
        sentences, documents, comments = read_plainly(lines := random_lines(rng))
        most = rng.randint(1, 4)
        windows = windows_of(write(path, lines), most_sentences=most, whole_documents=whole_documents)
        assert [words for window in windows for words in window.sentences()] == sentences
        assert sum(window.comments for window in windows) == comments
        assert [line for window in windows for line in window.lines] == lines
        numbers = [number for window, base in places(windows) for number in base + window.line_numbers]
        assert [lines[number].split()[0] for number in numbers] == [word for words in sentences for word in words]
        if comments == 0:
            assert count_sentences(path, DETECTED) == len(sentences)
        at = 0
        for number, window in enumerate(windows):
            size = len(window)
            own = documents[at : at + size]
            assert window.document_of_sentence.tolist() == [document - own[0] for document in own]
            is_last = number == len(windows) - 1
            ends_a_document = is_last or documents[at + size] != own[-1]
            assert is_last or size >= most
            assert ends_a_document if whole_documents else size <= most
            if whole_documents and size > most:  # it went on to the end of the document that filled it
                assert own[most - 1] == own[-1]
            at += size


def places(windows: list[TaggedText]):
    """Return each window with the number of lines before it."""
    base = 0
    for window in windows:
        yield window, base
        base += len(window.lines)


def test_a_window_is_full_when_its_lines_have_enough_characters(tmp_path):
    lines = ["aaaa O", "", "bbbb O", "", "c O", "", "dddd O"]  # 6, 6, 3 and 6 characters
    for characters, sizes in ((1, [1, 1, 1, 1]), (6, [1, 1, 2]), (7, [2, 2]), (12, [2, 2]), (13, [3, 1]), (99, [4])):
        windows = windows_of(write(tmp_path / "a.conll", lines), most_characters=characters)
        assert [len(window) for window in windows] == sizes, characters


def test_an_error_in_a_later_window_names_the_line_of_the_file(tmp_path):
    path = write(tmp_path / "a.conll", ["a O", "", "b O", "", "c X"])
    with pytest.raises(ValueError, match=r"a\.conll:5: tag 'X'"):
        windows_of(path, most_sentences=1)


def test_predictions_of_windows_are_those_of_the_file(tmp_path):
    path = write(tmp_path / "a.conll", ["-DOCSTART- O", "", "a O", "b\tO", "", "c O"])
    (whole,), (first, second) = windows_of(path), windows_of(path, most_sentences=1)
    shown = predicted_lines(whole, [Span("X", 0, 1), Span("X", 2, 3)])
    assert shown == b"-DOCSTART- O O\n\na O B-X\nb\tO\tO\n\nc O B-X\n"
    assert predicted_lines(first, [Span("X", 0, 1)]) + predicted_lines(second, [Span("X", 0, 1)]) == shown


def test_columns_are_counted_from_either_end(tmp_path):
    path = write(tmp_path / "a.conll", ["x a O y"])
    for word, tag in ((1, 2), (-3, -2), (1, -2), (-3, 2)):
        (text,) = tagged_windows(path, ConllFormat(word, tag))
        assert text.words == ["a"] and text.spans == []
    for word, tag, wrong in ((4, 2, "word_column=4"), (-5, 2, "word_column=-5"), (0, 4, "tag_column=4")):
        with pytest.raises(ValueError, match=f"{wrong}, but its lines have 4 columns, 0 to 3"):
            list(tagged_windows(path, ConllFormat(word, tag)))


def test_blanks_around_a_line_are_no_columns(tmp_path):
    path = write(tmp_path / "a.conll", [" a O ", "\tb  O\t", "c O"])
    (text,) = windows_of(path)
    assert text.words == ["a", "b", "c"] and len(text) == 1
