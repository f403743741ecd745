"""NVIDIA's lddl 0.1.0, run in its own environment (see requirements-lddl.txt) and measured.

    python lddl_commands.py preprocess -- <flags of preprocess_bert_pretrain>
    python lddl_commands.py balance -- <flags of balance_dask_output>
    python lddl_commands.py load DIR VOCAB --batch-size 64 [--num-workers 1] [--seconds 20]
    python lddl_commands.py dump DIR VOCAB OUT.npz     # every row its Paddle loader gives in one epoch
    python lddl_commands.py batches DIR VOCAB OUT.npz --batch-size 8    # its batches of two epochs, in its order

`load` prints one line of JSON. No line of this file is imported by the rest of the project.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import lddl_mending

_MENDING = str(Path(lddl_mending.__file__))


def preprocess(flags):
    """Run LDDL's preprocessor on its local scheduler."""
    os.environ["DASK_DISTRIBUTED__WORKER__PRELOAD"] = json.dumps([_MENDING])
    import dask

    dask.config.refresh()
    dask.config.set({"dataframe.convert-string": False})
    lddl_mending.mend_preprocessor()
    from lddl.dask.bert import pretrain

    pretrain.main(pretrain.attach_args().parse_args(["--schedule", "local", *flags]))


def balance(flags):
    """Run LDDL's balancer in one process."""
    from lddl.dask import load_balance

    load_balance.main(load_balance.attach_args().parse_args(flags))


def _loader(directory, vocabulary, batch_size, num_workers, seed=12345):
    lddl_mending.mend_loader()
    import lddl.paddle
    import paddle

    paddle.set_device("cpu")
    return lddl.paddle.get_bert_pretrain_data_loader(
        directory,
        vocab_file=vocabulary,
        log_level=50,
        base_seed=seed,
        data_loader_kwargs={"batch_size": batch_size, "num_workers": num_workers, "use_shared_memory": False},
    )


def load(options):
    """Measure samples per CPU second, time to the first batch and share of padding, for some seconds of one epoch."""
    lddl_mending.mend_loader()  # imports Paddle, whose seconds are not the loader's
    before, begun = _cpu_seconds(), time.monotonic()
    loader = _loader(options.directory, options.vocabulary, options.batch_size, options.num_workers)
    made = time.monotonic()
    samples = tokens = padded = 0
    first = None
    for batch in loader:
        first = first or time.monotonic() - begun
        mask = batch["attention_mask"].numpy()
        samples += mask.shape[0]
        tokens += int(mask.sum())
        padded += mask.size
        if time.monotonic() - begun > options.seconds:
            break
    seconds = time.monotonic() - begun
    used = _cpu_seconds() - before
    print(
        json.dumps(
            {
                "samples": samples,
                "seconds": seconds,
                "cpu_seconds": used,
                "first_batch_seconds": first,
                "setup_seconds": made - begun,
                "padding": 1 - tokens / padded,
                "tokens": tokens,
            }
        ),
        flush=True,
    )
    os._exit(0)  # workers that have batches left would be waited for


def _cpu_seconds():
    """Return the CPU seconds of this process and of all its children, alive (from /proc) or ended."""
    own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ticks = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            own += (int(fields[11]) + int(fields[12])) / ticks
    return own


def dump(options):
    """Write all rows of one epoch as flat arrays, without padding."""
    import numpy as np

    ids, types, labels, lengths, next_labels = [], [], [], [], []
    for batch in _loader(options.directory, options.vocabulary, options.batch_size, 0):
        mask = batch["attention_mask"].numpy()[:, 0, 0].astype(bool)
        ids.append(batch["input_ids"].numpy()[mask])
        types.append(batch["token_type_ids"].numpy()[mask])
        if "masked_lm_labels" in batch:
            labels.append(batch["masked_lm_labels"].numpy()[mask])
        lengths.append(mask.sum(axis=1))
        next_labels.append(batch["next_sentence_labels"].numpy()[:, 0])
    names = {"ids": ids, "types": types, "lengths": lengths, "next_labels": next_labels, "labels": labels}
    np.savez(options.output, **{name: np.concatenate(parts) for name, parts in names.items() if parts})


def batches(options):
    """Write the arrays of every batch of two epochs of one loader with the seed 42, as EPOCH/NUMBER/NAME."""
    import numpy as np

    loader, arrays = _loader(options.directory, options.vocabulary, options.batch_size, 0, seed=42), {}
    for epoch in range(2):
        for number, batch in enumerate(loader):
            arrays |= {f"{epoch}/{number:03}/{name}": tensor.numpy().astype("int16") for name, tensor in batch.items()}
    np.savez_compressed(options.output, **arrays)


def main():
    command, *rest = sys.argv[1:]
    if command in ("preprocess", "balance"):
        {"preprocess": preprocess, "balance": balance}[command](rest[1:] if rest[:1] == ["--"] else rest)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("vocabulary")
    if command in ("dump", "batches"):
        parser.add_argument("output")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20)
    {"load": load, "dump": dump, "batches": batches}[command](parser.parse_args(rest))


if __name__ == "__main__":
    main()
