"""Print statistics, samples and problems of a directory of shards.

Prints counts, bins, a histogram of lengths, masking and vocabulary figures, random samples and all problems found. The
exit code is 2 if there are any.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.config.settings_base import Settings
from bert.exit_codes import BAD_INPUT, OK
from bert.printable import printable
from bert.reporting.progress import megabytes
from bert.samples.sample_table import SampleTable
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary import CONTINUATION_PREFIX, Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary
from data.preprocessing.statistics import ShardStatistics, statistics_of

_MAX_TOKENS = (1 << 16) - 1
_BAR_CHARACTERS = 50


def report(directory: ShardDirectory, statistics: ShardStatistics) -> str:
    counts, shards = statistics.counts, directory.shards
    lines = [
        f"{directory.directory}: {len(shards)} {shards[0].kind} shards, {counts['samples']:,} samples, "
        f"{statistics.num_tokens():,} tokens, {megabytes(sum(shard.path.stat().st_size for shard in shards))}",
        f"manifest: {'yes' if directory.manifest else 'no'}; static masks: {'yes' if directory.masked else 'no'}",
        f"random next: {statistics.share('random next'):.1%}; single sequences: "
        f"{statistics.share('single sequences'):.1%}; duplicate samples: {counts['duplicates']:,}",
    ]
    if counts["masks"]:
        lines.append(
            f"masked: {counts['masks'] / statistics.num_tokens():.1%} of the tokens, of these "
            f"{statistics.share('masks shown as [MASK]', 'masks'):.1%} shown as [MASK], "
            f"{statistics.share('masks left unchanged', 'masks'):.1%} unchanged"
        )
    lines += ["", *_bins(statistics), "", *_histogram(statistics.lengths), ""]
    lines += [f"padding {where}: {share:.1%}" for where, share in statistics.padding().items()]
    return "\n".join([*lines, "", *_vocabulary(directory.vocabulary, statistics)])


def _bins(statistics: ShardStatistics) -> list[str]:
    lines = ["bin  files  samples  per file  tokens from  to"]
    for bin_id, sizes in statistics.shard_sizes.items():
        lengths = statistics.lengths_of_bins[bin_id]
        span = f"{min(lengths):>11}  {max(lengths)}" if lengths else "          -  -"
        lines.append(
            f"{'-' if bin_id is None else bin_id:>3}  {len(sizes):>5}  {sum(sizes):>7}  "
            f"{min(sizes)}-{max(sizes)}  {span}"
        )
    return lines


def _histogram(lengths: Counter) -> list[str]:
    """A histogram of lengths: one bar for each sixteenth of their range."""
    if not lengths:
        return ["no samples"]
    width = -(-max(lengths) // 16)
    counts = np.bincount([(length - 1) // width for length in lengths], list(lengths.values())).astype(int)
    return ["tokens      samples"] + [
        f"{bar * width + 1:>4}-{(bar + 1) * width:<4} {count:>9}  "
        + "#" * round(_BAR_CHARACTERS * count / counts.max())
        for bar, count in enumerate(counts.tolist())
    ]


def _vocabulary(vocabulary: Vocabulary, statistics: ShardStatistics) -> list[str]:
    tokens, total = statistics.tokens, max(1, statistics.num_tokens())
    words = vocabulary.replacement_ids()
    continued = tokens[vocabulary.continuations()].sum()
    frequent = words[np.argsort(-tokens[words], kind="stable")[:12]].tolist()
    common = " ".join(vocabulary.shown(index).strip() for index in frequent)
    return [
        f"vocabulary: {int((tokens[words] > 0).sum()):,} of {len(words):,} words occur, "
        f"{int((tokens[words] < 10).sum()):,} fewer than 10 times; most frequent: {common}",
        f"[UNK]: {tokens[vocabulary.id_of('[UNK]')] / total:.2%} of the tokens; {CONTINUATION_PREFIX}...: "
        f"{continued / total:.1%}",
    ]


def sample_text(table: SampleTable, row: int, vocabulary: Vocabulary) -> str:
    """A sample as text: words joined again, masks as [input token|true token]."""
    low, high = table.offsets[row : row + 2]
    tokens = [vocabulary.shown(index) for index in table.token_ids[low:high].tolist()]
    if table.masks:
        first, last = table.masks.offsets[row : row + 2]
        for position, label in zip(table.masks.positions[first:last], table.masks.labels[first:last], strict=True):
            tokens[position] = f" [{tokens[position].strip(' []')}|{vocabulary.shown(label).strip()}]"
    text = ""
    for token in tokens:
        text = vocabulary.insert(f"{text} ", token)
    text = text.strip()
    label = "single" if table.is_single()[row] else "random next" if table.is_random_next[row] else "is next"
    return f"({label}, {high - low} tokens) {text}"


def random_samples(directory: ShardDirectory, number: int, seed: int) -> list[str]:
    """Random samples, drawn evenly from all readable shards."""
    rng = np.random.default_rng(seed)
    counts = np.array([shard.num_samples for shard in directory.shards])
    samples = []
    for index in np.sort(rng.choice(len(counts), number, p=counts / counts.sum())):
        try:
            table = directory.load(int(index))
        except ValueError:
            continue
        text = sample_text(table, int(rng.integers(len(table))), directory.vocabulary)
        samples.append(f"{directory.shards[index].name} {text}")
    return samples


def check_picture(path: Path) -> None:
    """Raise ValueError if no picture can be written: missing folder, or a suffix of no known format."""
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = sorted(FigureCanvasBase.filetypes)
    if path.suffix[1:].lower() not in kinds:
        raise ValueError(f"--png={path}: its name must end in one of .{', .'.join(kinds)}; call it {path.stem}.png")
    if not path.parent.is_dir() or path.is_dir():
        raise ValueError(f"--png={path}: must be a file in a folder that exists; make the folder or name another file")


def write_histogram(path: Path, lengths: Counter) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5))
    axes = figure.subplots()
    axes.bar(list(lengths), list(lengths.values()), width=1.0)
    axes.set(xlabel="tokens", ylabel="samples", title=f"{sum(lengths.values()):,} samples")
    figure.savefig(path, dpi=120, bbox_inches="tight")


class InspectRequest(Settings):
    """The settings of this command, read from its flags."""

    directory: Annotated[Path, Flag(is_positional=True, placeholder="DIR")] = Field(description="folder of the shards")
    vocab_file: Path = Field(description="the vocabulary the shards were made with")
    samples: int = Field(3, ge=0, description="number of samples to print")
    seed: int = Field(0, ge=0, description="seed of the choice of samples to print")
    png: Path | None = Field(None, description="write the histogram of lengths to this picture (default: off)")


_EXAMPLES = ("SHARDS --vocab-file vocab.txt", "SHARDS --vocab-file vocab.txt --samples 5 --png lengths.png")


def main(argv: list[str] | None = None) -> None:
    request = read_flags(InspectRequest, argv, description=__doc__, examples=_EXAMPLES)
    with command():
        if request.png:
            check_picture(request.png)
        directory = ShardDirectory(request.directory, read_vocabulary(request.vocab_file), _MAX_TOKENS)
        statistics = statistics_of(directory)
    if request.png:
        with command(request.png):
            write_histogram(request.png, statistics.lengths)
    with command():
        print(report(directory, statistics))
        for text in random_samples(directory, request.samples, request.seed):
            print(f"\n{printable(text)}")
        print("\n" + ("\n".join(f"problem: {problem}" for problem in statistics.problems) or "no problem found"))
    sys.exit(BAD_INPUT if statistics.problems else OK)


if __name__ == "__main__":
    main()
