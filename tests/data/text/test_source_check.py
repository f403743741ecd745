import random
import shlex
from pathlib import Path

import pytest

from data import import_text, preprocess_bert_pretrain, train_vocabulary
from data.text.lddl_reader import list_sources
from tests.support.commands import refused
from tests.support.corpora import write_vocabulary

PROSE = (
    "The river runs to the sea.\nIt is old and slow.\nThe boats wait there.\nAnd the people come\nto see the boats "
    "in the\nharbour. The river is\nnot deep.\nA fish swims.\nThe end of the day\nis near. The sun\nsets.\n"
) * 3


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", PROSE),
        ("notes.txt", "One line of text."),
        ("deep/in/1.txt", "Chapter one. It begins."),
        ("source/project/notes.txt", PROSE),
        ("source/en/0.txt", PROSE),
        ("poem.txt", "alone\nbefore\ncome down\n"),
        ("list.txt", "1. One thing.\n2. Another thing.\n"),
        ("today.txt", "2020-01-01 It began.\n2020-01-02 It went on.\n"),
        ("marks.txt", "# A title\n- a point\n"),
        ("gutenberg.txt", "\ufeffThe Project Gutenberg eBook\n\nof Alice\n"),
    ],
)
def test_raw_text_is_refused_with_the_command_that_imports_it(tmp_path, name, text):
    with pytest.raises(ValueError, match=r"is raw text; .*data.import_text --input .*-imported"):
        list_sources([put(tmp_path, name, text)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("source/en/0.txt", "".join(f"wiki-{number} The river. It runs.\n" for number in range(30))),
        ("source/0.txt", "Alice_in_Wonderland Alice was tired.\n"),  # LDDL's books
        ("source/en/12.txt", "".join(f"{word} The text of it.\n" for word in "one two three four five six".split())),
        ("0.txt", "0123-abc The river.\n0124-abc It runs.\n"),
        ("texts/en.txt", "".join(f"https://example.org/{number} The text.\n" for number in range(5))),
        ("texts/a.txt", "".join(f"sub/notes:{number} The text.\n" for number in range(20_000))),  # cut inside an id
        ("source/en/0.txt", "id One.\n" * 20),
        ("a.txt", "id-1 One.\n\n\nid-2\n"),
    ],
)
def test_source_text_is_accepted(tmp_path, name, text):
    assert len(list_sources([put(tmp_path, name, text)])) == 1


def test_what_our_import_wrote_is_accepted_whatever_its_ids(tmp_path):
    for stem in "abcdefgh":
        for suffix in ("txt", "md", "rst"):
            put(tmp_path / "raw", f"{stem}.{suffix}", f"Text of {suffix} {stem}. " * 20)
    import_text.main(["--input", str(tmp_path / "raw"), "--output-dir", str(tmp_path), "--held-out-fraction", "0.3"])
    assert len(list_sources([tmp_path / "train"])) == len(list_sources([tmp_path / "held_out/source/en"])) == 1
    with pytest.raises(ValueError, match="is raw text"):
        list_sources([tmp_path / "raw"])


def test_the_printed_command_gives_what_both_commands_read(tmp_path, capsys, monkeypatch):
    """Nothing of the text is lost."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(1)
    put(tmp_path, "my texts/a.txt", PROSE + " ".join(f"w{rng.randrange(99)}" for _ in range(50)))
    write_vocabulary(tmp_path / "vocab.txt")
    shards = ["--sink", "out", "--vocab-file", "vocab.txt", "--target-seq-length", "64", "--local-n-workers", "1"]
    with refused("a.txt: is raw text"):
        preprocess_bert_pretrain.main(["--text", "my texts", *shards])
    with refused("a.txt: is raw text"):
        train_vocabulary.main(["--input", "my texts", "--output", "new.txt"])
    assert not Path("out").exists() and not Path("new.txt").exists()
    with pytest.raises(ValueError) as error:
        list_sources(["my texts"])
    words = shlex.split(str(error.value).partition("data.import_text ")[2].partition(" (if")[0])
    import_text.main(words)
    source = words[words.index("--output-dir") + 1] + "/source"
    train_vocabulary.main(["--input", source, "--vocab-size", "200", "--output", "new.txt"])
    preprocess_bert_pretrain.main(["--text", source, *shards])
    text = " ".join(Path("my texts/a.txt").read_text().split())
    assert Path(source, "en/0.txt").read_text() == f"a {text}\n"
    assert f"{source} instead of my texts" in str(error.value)
