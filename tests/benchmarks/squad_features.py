"""CPU time from a SQuAD file to features: ours against the way of Hugging Face's question-answering example.

    python tests/benchmarks/squad_features.py --vocab-file vocab.txt --text DIR --transformers-python PYTHON

Makes a file of SQuAD 1.1's size from the text files below DIR (18,896 paragraphs of about 735 characters, 87,599
questions) and builds its training features twice, each in a process of its own on one thread: reading, tokenising,
labels, arrays on disk. The other side needs transformers and datasets in the interpreter named; it calls the fast
tokenizer with return_overflowing_tokens and return_offsets_mapping, 1,000 questions at a time in `Dataset.map`, as
`run_qa.py` does.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bert import REPOSITORY

NUM_PARAGRAPHS, NUM_QUESTIONS, PARAGRAPH_CHARACTERS = 18_896, 87_599, 735
SINGLE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}
SINGLE_THREAD |= dict.fromkeys(
    ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "ARROW_IO_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)


def make_file(text_dir: Path, path: Path, scale: float, seed: int = 7) -> None:
    """Paragraphs of real text with questions that are made of its words and answers that stand in it."""
    rng = random.Random(seed)
    words = " ".join(file.read_text(encoding="utf-8", errors="ignore") for file in sorted(text_dir.rglob("*.txt")))
    words = words.split()
    num_paragraphs, num_questions = int(NUM_PARAGRAPHS * scale), int(NUM_QUESTIONS * scale)
    paragraphs, position = [], 0
    while len(paragraphs) < num_paragraphs:
        size = max(150, int(rng.lognormvariate(0, 0.45) * PARAGRAPH_CHARACTERS * 0.9))
        chosen = []
        while sum(map(len, chosen)) + len(chosen) < size:
            chosen.append(words[position % len(words)])
            position += 1
        paragraphs.append({"context": " ".join(chosen), "qas": []})
    for number in range(num_questions):
        paragraph = paragraphs[number % num_paragraphs]
        own = paragraph["context"].split(" ")
        first = rng.randrange(len(own))
        answer = " ".join(own[first : first + rng.randint(1, 5)])
        start = len(" ".join(own[:first])) + (first > 0)
        question = "What of " + " ".join(rng.choice(own) for _ in range(8)) + "?"
        paragraph["qas"].append(
            {"id": f"{number:024x}", "question": question, "answers": [{"text": answer, "answer_start": start}]}
        )
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "text", "paragraphs": paragraphs}]}))


def ours(file: Path, vocab_file: Path, out: Path) -> int:
    sys.path.insert(0, str(REPOSITORY))
    from bert.finetuning.squad.examples import read_squad
    from bert.finetuning.squad.features import build_features
    from bert.finetuning.squad.reader_settings import ReaderSettings
    from bert.tokenization.vocabulary import Vocabulary

    _, counts = build_features(read_squad(file), Vocabulary.from_file(vocab_file), ReaderSettings(), training=True)
    return counts["windows"]


def theirs(file: Path, vocab_file: Path, out: Path) -> int:
    from datasets import Dataset
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab_file=str(vocab_file), do_lower_case=True)
    rows = [
        {
            **{name: q[name] for name in ("id", "question")},
            "context": p["context"],
            "answers": {name: [a[name] for a in q["answers"]] for name in ("text", "answer_start")},
        }
        for article in json.loads(file.read_text())["data"]
        for p in article["paragraphs"]
        for q in p["qas"]
    ]

    def features_of(batch):
        # An overlap of 384 - 128 - question tokens is what a stride of 128 means to us; 128 is what the example passes.
        encoded = tokenizer(
            [question.lstrip() for question in batch["question"]],
            batch["context"],
            truncation="only_second",
            max_length=384,
            stride=128,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length",
        )
        sample_of, spans = encoded.pop("overflow_to_sample_mapping"), encoded.pop("offset_mapping")
        encoded["start_positions"], encoded["end_positions"] = [], []
        for window, span in enumerate(spans):
            answer = batch["answers"][sample_of[window]]
            begin = answer["answer_start"][0]
            end = begin + len(answer["text"][0])
            kinds = encoded.sequence_ids(window)
            first = kinds.index(1)
            last = len(kinds) - 1 - kinds[::-1].index(1)
            if span[first][0] > begin or span[last][1] < end:
                first = last = 0
            else:
                while first < len(span) and span[first][0] <= begin:
                    first += 1
                first -= 1
                while span[last][1] >= end:
                    last -= 1
                last += 1
            encoded["start_positions"].append(first)
            encoded["end_positions"].append(last)
        return encoded

    table = Dataset.from_list(rows)
    features = table.map(features_of, batched=True, remove_columns=table.column_names)
    features.save_to_disk(str(out / "features"))
    return len(features)


def measure(side: str, python: str, arguments: argparse.Namespace, file: Path) -> float:
    """CPU seconds of one side in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        command = [python, __file__, "--side", side, "--file", file, "--vocab-file", arguments.vocab_file, "--out", out]
        environment = {**os.environ, **SINGLE_THREAD, "HF_HOME": out, "HF_HUB_OFFLINE": "1"}
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        elapsed, windows = time.monotonic() - started, done.stdout.strip().splitlines()[-1]
        print(f"{side:13} {seconds:7.1f} CPU s  {elapsed:7.1f} s by the clock  {windows} windows", flush=True)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab-file", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="folder of text files")
    parser.add_argument("--transformers-python", help="an interpreter that has transformers and datasets")
    parser.add_argument("--scale", type=float, default=1.0, help="share of SQuAD's size")
    parser.add_argument("--side", choices=("ours", "transformers"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        build = ours if arguments.side == "ours" else theirs
        print(build(arguments.file, arguments.vocab_file, arguments.out))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.json"
        make_file(arguments.text, file, arguments.scale)
        print(f"{file.stat().st_size / 1e6:.1f} MB of SQuAD's form")
        mine = measure("ours", sys.executable, arguments, file)
        if arguments.transformers_python:
            other = measure("transformers", arguments.transformers_python, arguments, file)
            print(f"ratio {other / mine:.1f}")


if __name__ == "__main__":
    main()
