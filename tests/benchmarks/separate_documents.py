"""CPU time of masked LM on short documents: several in a sequence, kept apart, against a sequence for each.

    .venv/bin/python -m tests.benchmarks.separate_documents SHARDS vocab.txt [--updates 20]

SHARDS are made with `--objective mlm --separate-documents`; the model is bert-mini, a micro-batch has 32 sequences.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert.config.architecture import BUILT_IN_MODELS, FusedKernels
from bert.model.objectives import MaskedLMObjective
from bert.randomness import stream_key
from bert.samples.collation import CollationRule, MicroBatch
from bert.samples.masking import MaskingRule
from bert.samples.sample_table import SampleTable, concatenate
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.support import tiny

BATCH_SIZE, LENGTH, MULTIPLE = 32, 128, 8


def one_document_a_row(table: SampleTable, cls_id: int) -> SampleTable:
    edges = np.append(np.flatnonzero(table.token_ids == cls_id), len(table.token_ids))
    lengths = np.diff(edges).astype(np.int32)
    return SampleTable(table.token_ids, edges, lengths, np.zeros(len(lengths), bool))


def batches(table: SampleTable, rule: CollationRule) -> Iterator[MicroBatch]:
    key = stream_key(0, "benchmark")
    order = np.random.RandomState(0).permutation(len(table))
    for rows in np.array_split(order, len(order) // BATCH_SIZE):
        yield rule.collate(table, rows, key, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("vocab_file", type=Path)
    parser.add_argument("--updates", type=int, default=20)
    arguments = parser.parse_args()
    vocabulary = read_vocabulary(arguments.vocab_file)
    folder, cls_id = ShardDirectory(arguments.shards, vocabulary, LENGTH), vocabulary.id_of("[CLS]")
    together = concatenate([folder.load(index).unmasked() for index in range(len(folder.shards))])
    masking = MaskingRule.of(vocabulary, masked_lm_ratio=0.15, max_predictions_per_seq=20)
    alone_rule = CollationRule(LENGTH, MULTIPLE, vocabulary.id_of("[PAD]"), masking, True, False)
    model = BUILT_IN_MODELS["bert-mini"].model_copy(update={"vocab_size": len(vocabulary)})
    cases = {
        "a sequence for each": (one_document_a_row(together, cls_id), alone_rule, MaskedLMObjective(model)),
        "several in a sequence": (
            together,
            replace(alone_rule, cls_id=cls_id),
            MaskedLMObjective(model, separate_documents=True),
        ),
    }
    print("| documents | program | tokens an update | padding | tokens per CPU second |\n|---|---|---|---|---|")
    for name, (table, rule, objective) in cases.items():
        for unpad in (False, True):
            objective = replace(objective, kernels=FusedKernels(unpad=unpad))
            session = tiny.Session(objective=objective, num_steps=1, warmup_steps=0)
            seconds, tokens, padded = [], [], []
            for step, batch in zip(range(arguments.updates), batches(table, rule), strict=False):
                begin, packed = time.process_time(), batch.packed(objective.packing())
                session.micro_step(packed.feed, step)
                seconds.append(time.process_time() - begin)
                tokens.append(batch.num_tokens)
                padded.append(packed.num_padded_tokens)
            print(
                f"| {name} | {'packed' if unpad else 'padded'} | {np.mean(tokens):,.0f} | "
                f"{1 - sum(tokens) / sum(padded):.1%} | {np.median(np.divide(tokens, seconds)):,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
