"""Files that are added below --text while a run is under way: found, imported, and mixed in from the next pass on."""

import dataclasses
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from bert.files import read_json, write_atomically
from bert.launching.preparation import Run, Steps
from bert.own_text.corpus import continuing_elsewhere, import_command, shards, shards_command
from bert.own_text.facts import files_of
from bert.own_text.plan import TextPlan
from bert.own_text.request import TextRequest
from bert.own_text.sources import ADDED, pass_over
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME
from bert.samples.mixture import Mix, read_mixture, write_mixture
from bert.samples.shards import count_samples


@dataclasses.dataclass(frozen=True)
class Addition:
    """Files that were added to a run; their samples count from a pass on, which begins after an update."""

    files: int
    documents: int
    samples: int
    from_pass: int
    from_update: int

    def __str__(self) -> str:
        return (
            f"added: {self.files:,} files, {self.documents:,} documents to train on, {self.samples:,} samples; used "
            f"from pass {self.from_pass + 1:,} over the data on, which begins after update {self.from_update:,}"
        )


class Changes:
    """How the files below --text differ from those that were imported.

    Attributes:
        added: `NAME:PATH` in the source -> the file.
        altered: files that are changed or gone.
    """

    def __init__(self, request: TextRequest) -> None:
        self.record = request.output_dir / "data/files.json"
        found = files_of(request.sources, request.follow_links)
        self._now = {name: [size, time] for name, (_, size, time) in found.items()}
        self._next, mixes = self.record.with_name("files-next.json"), read_mixture(shards(request, "train")) or ()
        begun, mixed = read_json(self._next), {Path(folder).name for mix in mixes[-1:] for folder in mix.samples}
        # The files that a start had mixed in and not yet recorded when it was killed were imported too.
        made = begun["files"] if begun.get("folder") in mixed else read_json(self.record)
        self.is_known = bool(made)  # not of a run that an earlier version began
        gone = Counter(tuple(fact) for name, fact in made.items() if name not in self._now)
        self.added: dict[str, Path] = {}
        for name in (name for name in self._now if made and name not in made):
            if gone[fact := tuple(self._now[name])]:  # moved, or renamed
                gone[fact] -= 1
            else:
                self.added[name] = found[name][0]
        self.altered = gone.total() + sum(fact != self._now.get(name, fact) for name, fact in made.items())

    def fingerprint(self) -> str:
        """Of the files that were added."""
        return hashlib.sha256(repr(sorted((name, self._now[name]) for name in self.added)).encode()).hexdigest()

    def begin(self, folder: str) -> None:
        """Record that the files of now are imported as soon as the folder of those that were added is mixed in."""
        write_atomically(self._next, json.dumps({"folder": folder, "files": self._now}).encode())

    def save(self) -> None:
        """Record the files of now as imported."""
        self.record.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.record, json.dumps(self._now).encode())


def note_of_changes(request: TextRequest, made: Mapping, now: Mapping) -> str:
    """What a start of a run that has checkpoints says of files that changed after the data were made; "" if none did.

    Args:
        made, now: `corpus.data_facts` of then and now.
    """
    if not made or made["files"] == now["files"]:
        return ""
    changes, text = Changes(request), " ".join(now["text"])
    if made["text"] != now["text"] and (changes.altered or not changes.is_known):
        raise ValueError(
            f"text={text} differs from {' '.join(made['text'])} of the run in {request.output_dir}; pass another "
            f"--output-dir ({continuing_elsewhere(request.output_dir)} this text)"
        )
    notes = []
    if changes.altered or not changes.is_known:
        number = f"{changes.altered:,} of the files" if changes.altered else "the files"
        notes.append(
            f"warning: {number} of {text} changed after they were imported; the training goes on with them as they "
            f"were ({continuing_elsewhere(request.output_dir)} the new text)"
        )
    if changes.added:
        notes.append(
            f"{len(changes.added):,} files were added below {text}: a training that continues imports them and uses "
            "them from its next pass over the data on; what they repeat of the text before is read again"
        )
    return "\n".join(notes)


def add_files(
    request: TextRequest, plan: TextPlan, config: PretrainingConfig, run: Run, step: int
) -> Addition | int | None:
    """Import the files that were added and mix their samples in; the exit code of a command that failed, None without
    any.

    Args:
        step: of the newest checkpoint. The pass in which it lies ends as it began.
    """
    changes, train = Changes(request), shards(request, "train")
    if not changes.added:
        if not changes.is_known:
            changes.save()
        return None
    name, mixes = f"{ADDED}{changes.fingerprint()[:8]}", read_mixture(train) or (Mix({".": count_samples(train)}),)
    documents, samples = 0, dict[str, int]()
    steps = Steps(request.output_dir / "data/prepared.json", run, changes.fingerprint())
    for source in request.sources:
        prefix = f"{source.name}:"
        files = {key.removeprefix(prefix): path for key, path in changes.added.items() if key.startswith(prefix)}
        if not files:
            continue
        texts = request.output_dir / "data/text" / source.name
        _link(files, texts / name / "files")
        text, sink = texts / name / "imported", train / source.name / name
        earlier = texts / "report.json" if "division" in read_json(texts / "report.json") else None
        if earlier is None and plan.held_out_fraction:
            print(
                f"warning: how {texts} was divided is not known (it was deleted, or made by an earlier version): added "
                "texts may equal held-out ones; pass another --output-dir if that matters",
                flush=True,
            )
        place = [texts / name / "files"]
        command = import_command(request, plan, source, text, place, follow_links=True, held_out_as=earlier)
        if code := steps.step(f"importing {len(files):,} files that were added", command, text / "report.json"):
            return code
        part = "train" if plan.held_out_fraction else "all"
        number = read_json(text / "report.json")["parts"][part]["documents"]
        if number == 0:  # all of them are of groups that are held out
            continue
        source_text = text / (part if plan.held_out_fraction else "") / "source"
        command = shards_command(request, plan, config, source_text, sink)
        if code := steps.step("making their shards", command, sink / MANIFEST_NAME):
            return code
        documents += number
        samples[str(sink.relative_to(train))] = count_samples(sink)
    mix = _next_mix(request, mixes[-1], samples, plan.settings["global_batch_size"], step)
    changes.begin(name)
    if samples:
        write_mixture(train, [*mixes, mix])
    changes.save()
    return Addition(len(changes.added), documents, sum(samples.values()), mix.from_pass, mix.from_update)


def _link(files: Mapping[str, Path], folder: Path) -> None:
    """A folder of links to the files, each at its path in the source, which may decide its group."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, path in files.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.absolute())


def _next_mix(request: TextRequest, last: Mix, samples: Mapping[str, int], global_batch: int, step: int) -> Mix:
    """The mix with further folders, from the next pass on that has not begun at `step`."""
    train = shards(request, "train")
    counts = {
        source.name: {
            folder: count_samples(train / folder, alone=True)
            for folder in (*last.samples, *samples)
            if folder == source.folder() or (f"/{ADDED}" in f"/{folder}" and Path(folder).parent == Path(source.name))
        }
        for source in request.sources
    }
    updates = last.total() // global_batch
    passes = max(0, -(-(step - last.from_update) // updates))
    return Mix(pass_over(request.sources, counts), last.from_pass + passes, last.from_update + passes * updates)
