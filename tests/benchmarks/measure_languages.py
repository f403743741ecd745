"""Measures how many languages' words are tokenised, and what a training on the user's text learns from them.

    python -m tests.benchmarks.measure_languages TEXTS [--train OUTPUT_DIR --hours 0.1] [--only de th]

TEXTS/LANGUAGE/*.txt. A row for each language: the running words of which BERT's lower-casing changes only
capitals; then so lower-cased, without segmenter ("uncased"), and as own text is read now ("now"): [UNK] among the
tokens, and tokens a word, of every tenth file, by a vocabulary that was trained on the others (of all files if they are
few: *). Words of scripts without spaces are ICU's in both. With --train, own text is trained for so many hours on one
process, and the row has its held-out loss; a language that is done is not trained again.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from bert.files import read_json
from bert.help_parser import HelpParser
from bert.tokenization.library import text_tokenizer
from bert.tokenization.normalization import UNCASED, Normalization
from bert.tokenization.segmentation import ZERO_WIDTH_SPACE, with_spaces
from data.preprocessing.problems import unknown_words
from data.text.script_facts import ScriptFacts, segmenter_of
from data.text.vocabulary_training import learn_vocabulary

VOCAB_SIZE = 8_192
LEAST_HELD_OUT = 20_000  # characters; with fewer the vocabulary is measured on the text that it was trained on


def measured(train: Sequence[str], held_out: Sequence[str], normalization: Normalization) -> tuple[float, float]:
    """Return the share of [UNK], and the tokens per word."""
    vocabulary = learn_vocabulary(lambda: iter(train), VOCAB_SIZE, normalization=normalization)
    unknown = unknown_words(held_out, text_tokenizer(vocabulary, normalization))
    return unknown.share, unknown.tokens / sum(
        len(with_spaces(text.replace(ZERO_WIDTH_SPACE, " "), "icu").split()) for text in held_out
    )


def row(folder: Path) -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    facts = ScriptFacts()
    for text in texts:
        facts.add(text)
    train, held_out = [text for place, text in enumerate(texts) if place % 10], texts[::10]
    if is_small := sum(map(len, held_out)) < LEAST_HELD_OUT:
        train = held_out = texts
    case, segmenter = facts.case(), segmenter_of(facts.cutter(), "auto")
    now = Normalization(case.lowercase, case.strip_accents, segmenter)
    cells = [folder.name + "*" * is_small, f"{sum(len(text.encode()) for text in texts) / 1e6:.2f}"]
    cells += [f"{1 - facts.changed_share():.1%}", f"{now}{f', {segmenter}' if segmenter else ''}"]
    for normalization in (UNCASED, now):
        unknown, tokens = measured(train, held_out, normalization)
        cells += [f"{unknown:.2%}", f"{tokens:.2f}"]
    return cells


def trained(folder: Path, output: Path, hours: float) -> list[str]:
    """Return the held-out loss, and how far it is below the unigram entropy, in nats."""
    summary = output / "phase1/summary.json"
    if not (found := next(output.glob("*/phase1/summary.json"), summary)).exists():
        command = ["bash", "scripts/run_pretraining.sh", "--text", str(folder), "--hours", str(hours)]
        command += ["--num-processes", "1", "--output-dir", str(output)]
        with open(output.with_suffix(".log"), "w") as log:
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            return [f"exit code {code}, {output.with_suffix('.log')}", ""]
        found = next(output.glob("*/phase1/summary.json"), summary)
    values = read_json(found)
    loss, entropy = values["eval_masked_lm_loss"], values["unigram_entropy"]
    return [f"{loss:.2f}", f"{entropy - loss:.2f}"]


def main() -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--hours", type=float, default=0.1)
    parser.add_argument("--only", nargs="+", default=())
    arguments = parser.parse_args()
    columns = ["language", "MB", "unchanged words", "now", "[UNK], uncased", "tokens a word", "[UNK], now"]
    columns += ["tokens a word", *(["held-out loss", "below the entropy"] if arguments.train else [])]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for folder in sorted(path for path in arguments.texts.iterdir() if path.is_dir()):
        if not arguments.only or folder.name in arguments.only:
            cells = row(folder)
            if arguments.train:
                arguments.train.mkdir(parents=True, exist_ok=True)
                cells += trained(folder, arguments.train / folder.name, arguments.hours)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
