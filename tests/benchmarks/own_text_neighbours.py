"""Is the plan for own text a good one? Trains it and its neighbours with the same processor time, and compares.

    python -m tests.benchmarks.own_text_neighbours --text FOLDER --minutes 10 --output-dir D --seeds 1 2 3

The neighbours: the model one size up and down, the rate and the vocabulary times 2 and divided by 2, half the batch
with the rate that belongs to it, and the quickstart's beta2. Every training has one core and gets
so many updates as MINUTES of processor time allow, so other work on the machine does not matter. D/results.jsonl keeps
what is finished; a second start goes on. The last lines printed are a table of means over the seeds.

Losses of different vocabularies are made comparable as nats per character: loss x tokens per character of the held-out
text.
"""

import argparse
import dataclasses
import json
import resource
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import BertWordPieceTokenizer

from bert.command_errors import command
from bert.config.command_line import dump_yaml, resolve_config
from bert.own_text import rules
from bert.own_text.candidates import candidates
from bert.own_text.plan import TextPlan, make_plan
from bert.own_text.reading import machine_facts, text_facts
from bert.own_text.request import TextRequest
from bert.own_text.speed import measure_speeds
from bert.pretraining.entry import ENTRY
from data.text.readers import Reading
from tests.benchmarks.processes import markdown, run, run_module

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_PREPARATION_HOURS = 1 / 60  # about what the plan takes off for data and start
_SPEED_UPDATES = {"quickstart": 60, "mini": 12, "small": 5}  # of the shorter of two measurements


@dataclasses.dataclass(frozen=True)
class Variant:
    """A training that is compared: the chosen plan with one thing changed."""

    name: str
    model: str
    settings: dict[str, Any]


def variants(plan: TextPlan) -> list[Variant]:
    """The plan's own settings, and its neighbours."""
    model, chosen = plan.model, plan.settings
    rate, tokens = chosen["learning_rate"], chosen["vocab_size"]
    same = {"global_batch_size": chosen["global_batch_size"], "max_seq_length": chosen["max_seq_length"]}
    found = [Variant("chosen", model, {})]
    place = rules.MODEL_NAMES.index(model)
    found += [Variant("model up", rules.MODEL_NAMES[place + 1], {})] if place + 1 < len(rules.MODELS) else []
    found += [Variant("model down", rules.MODEL_NAMES[place - 1], {})] if place else []
    for name, factor in (("x 2", 2), ("/ 2", 0.5)):
        found.append(Variant(f"rate {name}", model, {**same, "learning_rate": rate * factor}))
        found.append(
            Variant(f"vocabulary {name}", model, {**same, "learning_rate": rate, "vocab_size": int(tokens * factor)})
        )
    batch = chosen["global_batch_size"] // 2
    halved = {"global_batch_size": batch, "learning_rate": float(f"{rate * 0.5**0.5:.2g}")}
    found.append(Variant("batch / 2", model, {**same, **halved}))
    return [*found, Variant("beta2 0.98", model, {**same, "learning_rate": rate, "beta2": 0.98})]


class Comparison:
    """The trainings of one text, below a folder."""

    def __init__(self, text: Path, minutes: float, folder: Path) -> None:
        self.text, self.minutes, self.folder = text, minutes, folder
        self.facts = text_facts([text], Reading())
        self.machine = dataclasses.replace(machine_facts(folder), cores=1)
        self.results = folder / "results.jsonl"
        self.chosen = self.plan()

    def plan(self, model: str | None = None, settings: Mapping[str, Any] | None = None) -> TextPlan:
        hours = self.minutes / 60 + _PREPARATION_HOURS
        request = TextRequest(hours=hours, model=model, settings=dict(settings or {}))
        found = candidates(self.facts, self.machine, request)
        return make_plan(self.facts, self.machine, request, found, measure_speeds(found, self.machine, request))

    def run(self, variant: Variant, seed: int) -> dict[str, Any]:
        """Train a variant, or take its result from an earlier start."""
        done = self.results.read_text().splitlines() if self.results.exists() else []
        for line in map(json.loads, done):
            if (line["name"], line["minutes"], line["seed"]) == (variant.name, self.minutes, seed):
                return line
        plan = self.plan(variant.model, variant.settings) if variant.name != "chosen" else self.chosen
        settings = plan.settings
        vocabulary, shards = self._data(settings)
        settings = {**settings, **variant.settings}
        config = {**settings, "phase": 1, "vocab_file": str(vocabulary), "seed": seed, "visualdl": False}
        config |= {"input_dir": str(shards / "train"), "eval_dir": str(shards / "held_out")}
        seconds = self._seconds_per_update(variant, config)
        steps = max(1, int(self.minutes * 60 / seconds))
        output = self.folder / "runs" / f"{variant.name.replace(' ', '_').replace('/', 'by')}-{seed}"
        often = {"max_steps": steps, "eval_freq": max(1, steps // 4), "num_steps_per_checkpoint": steps}
        cpu = self._train({**config, **often, "output_dir": str(output)})
        summary = json.loads((output / "phase1/summary.json").read_text())
        loss = summary["eval_masked_lm_loss"]
        result = {
            "name": variant.name,
            "minutes": self.minutes,
            "seed": seed,
            "model": variant.model,
            **{name: settings[name] for name in ("vocab_size", "learning_rate", "global_batch_size", "max_seq_length")},
            "steps": steps,
            "cpu_seconds": round(cpu),
            "loss": loss,
            "unigram_entropy": summary["unigram_entropy"],
            "nats_per_character": loss * self._tokens_per_character(vocabulary),
        }
        with open(self.results, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(result) + "\n")
        print(result, flush=True)
        return result

    def _data(self, settings: Mapping[str, Any]) -> tuple[Path, Path]:
        """Vocabulary and shards for the settings, made if they are missing."""
        tokens, length = settings["vocab_size"], settings["max_seq_length"]
        corpus, vocabulary = self.folder / "text", self.folder / f"vocab-{tokens}.txt"
        shards = self.folder / f"shards-{tokens}-{length}"
        flags: tuple[object, ...]
        if not (corpus / "report.json").exists():
            flags = ("--input", self.text, "--output-dir", corpus)
            flags += ("--held-out-fraction", self.chosen.held_out_fraction)
            run_module("data.import_text", *flags, **_ONE_THREAD)
        if not vocabulary.exists():
            source = corpus / "train/source"
            flags = ("--input", source, "--vocab-size", tokens, "--output", vocabulary)
            run_module("data.train_vocabulary", *flags, **_ONE_THREAD)
        duplicates = rules.DUPLICATE_FACTOR if self.facts.num_bytes <= rules.LARGEST_DUPLICATED_TEXT else 1
        for part, number, factor in (("train", 8, duplicates), ("held_out", 1, 1)):
            if not (shards / part).exists():
                flags = ("--text", corpus / part / "source", "--sink", shards / part, "--vocab-file", vocabulary)
                flags += ("--target-seq-length", length, "--num-shards", number, "--duplicate-factor", factor)
                flags += ("--short-seq-prob", rules.SHORT_SHARE)
                run_module("data.preprocess_bert_pretrain", *flags, **_ONE_THREAD)
        return vocabulary, shards

    def _seconds_per_update(self, variant: Variant, config: dict[str, Any]) -> float:
        """Processor seconds: the difference of two benchmarks, without what a start takes."""
        least = _SPEED_UPDATES.get(variant.model, 3)
        benchmark = {**config, "benchmark": True, "benchmark_warmup_steps": 1, "max_steps": 10_000, "eval_dir": None}
        benchmark["output_dir"] = str(self.folder / "benchmark")
        short, long = (self._train({**benchmark, "benchmark_steps": count}) for count in (least, 3 * least))
        return (long - short) / (2 * least)

    def _train(self, settings: dict[str, Any]) -> float:
        """Train; returns the processor seconds."""
        file = self.folder / "settings.yaml"
        settings = {**settings, "report_file": str(Path(settings["output_dir"]) / "report.json")}
        file.write_text(dump_yaml(resolve_config(settings, ENTRY)), encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run([sys.executable, "run_pretraining.py", "--config", file], **_ONE_THREAD)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def _tokens_per_character(self, vocabulary: Path) -> float:
        tokenizer = BertWordPieceTokenizer(str(vocabulary))
        files = (self.folder / "text/held_out/source").rglob("*.txt")
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        encoded = tokenizer.encode_batch(lines, add_special_tokens=False)
        return sum(len(line) for line in encoded) / sum(map(len, lines))


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: each training, means over its seeds, and its loss relative to that of the chosen plan."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_name.setdefault(result["name"], []).append(result)
    chosen = _mean(by_name["chosen"], "nats_per_character")
    head = ("training", "model", "vocabulary", "rate", "updates", "held-out loss / unigram", "nats a character, seeds")
    lines = []
    for name, runs in by_name.items():
        first, nats = runs[0], _mean(runs, "nats_per_character")
        each = ", ".join(f"{run['nats_per_character']:.3f}" for run in runs)
        settings = (name, first["model"], f"{first['vocab_size']:,}", f"{first['learning_rate']:.2g}")
        losses = f"{_mean(runs, 'loss'):.2f} / {first['unigram_entropy']:.2f}"
        lines.append(
            (*settings, f"{_mean(runs, 'steps'):,.0f}", losses, f"{nats:.3f} ({nats / chosen - 1:+.1%}): {each}")
        )
    return markdown(head, lines)


def _mean(runs: list[dict[str, Any]], name: str) -> float:
    return statistics.fmean(run[name] for run in runs)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="processor time of each training")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the trainings; each is one more of all")
    parser.add_argument("--only", nargs="*", help="names of trainings, such as 'rate x 2' (default: all)")
    arguments = parser.parse_args(argv)
    with command(arguments.output_dir, "interrupted; the same command goes on"):
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        comparison = Comparison(arguments.text, arguments.minutes, arguments.output_dir)
        wanted = [
            variant
            for variant in variants(comparison.chosen)
            if not arguments.only or variant.name in ("chosen", *arguments.only)
        ]
        print(table([comparison.run(variant, seed) for seed in arguments.seeds for variant in wanted]))


if __name__ == "__main__":
    main()
