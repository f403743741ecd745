"""The data of a pre-training on own text: import, vocabulary, shards of each phase; each step once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bert.conversion.vocabularies import write_vocabulary
from bert.launching.preparation import Run, Steps, preprocessing_command
from bert.launching.pretraining_text_arguments import TextRequest
from bert.launching.process_runner import module_command
from bert.planning.own_text import TextPlan
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME, Manifest, read_manifest

NUM_SHARDS = 8
SEED = 42  # of the data, whatever the seed of the training
_LARGE_TEXT = 500e6  # bytes; the vocabulary of more text is trained on this much of it
_LEAST_SAMPLES_IN_A_BIN = 50  # times the global batch: with fewer, a bin's last batches are too rare


def vocabulary_file(request: TextRequest) -> Path:
    """The vocabulary of the run, trained or a copy of the one that was given."""
    return request.output_dir / "data/vocab.txt"


def shards(request: TextRequest, phase: int, part: str) -> Path:
    """The folder of the shards of a phase; part: train or held_out."""
    return request.output_dir / f"data/phase{phase}/{part}"


def prepare(request: TextRequest, plan: TextPlan, configs: Mapping[int, PretrainingConfig], run: Run) -> int:
    """Make what is missing; exit code of the first command that failed, else 0."""
    if request.tokens is not None and not vocabulary_file(request).exists():
        vocabulary_file(request).parent.mkdir(parents=True, exist_ok=True)
        write_vocabulary(vocabulary_file(request).parent, request.tokens)
    steps = Steps(request.output_dir / "data/prepared.json", run)
    for title, command, product in commands(request, plan, configs):
        if code := steps.step(title, command, product):
            return code
    return 0


def commands(
    request: TextRequest, plan: TextPlan, configs: Mapping[int, PretrainingConfig]
) -> list[tuple[str, Sequence[str], Path]]:
    """(title, command, product) in order. The vocabulary and the training shards never see the held-out text."""
    text = request.output_dir / "data/text"
    imported = module_command(
        "data.import_text",
        output_dir=text,
        held_out_fraction=plan.held_out_fraction,
        lang=request.language,
        **request.import_options,
    )
    imported += ["--input", *(str(path.absolute()) for path in request.text)]
    found: list[tuple[str, Sequence[str], Path]] = [("importing the text", imported, text / "report.json")]
    if request.tokens is None:
        trained = module_command(
            "data.train_vocabulary",
            input=text / "train/source",
            vocab_size=plan.candidate.model.vocab_size,
            output=vocabulary_file(request),
            no_lowercase=None if request.lowercase else True,
            sample_megabytes=500 if plan.text.num_bytes > _LARGE_TEXT else None,
        )
        found.append(("training the vocabulary", trained, vocabulary_file(request)))
    for phase, config in configs.items():
        for part, num_shards, duplicates in (("train", NUM_SHARDS, plan.duplicate_factor), ("held_out", 1, 1)):
            sink = shards(request, phase, part)
            command = preprocessing_command(
                config,
                text=text / part / "source",
                sink=sink,
                num_shards=num_shards,
                local_n_workers=plan.machine.cores,
                seed=SEED,
                duplicate_factor=duplicates,
                bin_size=bin_size(plan, phase) if part == "train" else None,
                language=request.language,
                no_lowercase=None if request.lowercase else True,
            )
            title = f"making the shards of phase {phase}, {part.replace('_', ' ')}"
            found.append((title, command, sink / MANIFEST_NAME))
    return found


def bin_size(plan: TextPlan, phase: int) -> int | None:
    """Width in tokens of the bins of phase 2, which spare padding; None where they would hold too few samples."""
    length, batch = plan.candidate.lengths[phase], plan.phases[phase].global_batch
    samples = plan.tokens * plan.duplicate_factor / length
    return length // 4 if phase == 2 and samples >= 4 * _LEAST_SAMPLES_IN_A_BIN * batch else None


def check_samples(request: TextRequest, config: PretrainingConfig, world_size: int) -> Manifest:
    """The manifest of the training shards; refuses fewer samples than one update takes.

    Raises:
        ValueError: too little text for the batch.
    """
    manifest = read_manifest(config.data.input_dir)
    assert manifest is not None, "made by `prepare`"
    samples = num_samples(manifest)
    batch = config.batch.resolved_global_batch_size(world_size)
    if samples < batch:
        raise ValueError(
            f"the text gave {samples} samples for phase {config.run.phase} and must give at least one update's, "
            f"global_batch_size={batch}; add text, or pass --global-batch-size {max(1, samples // 2)}"
        )
    return manifest


def num_samples(manifest: Manifest) -> int:
    return sum(record.num_samples for record in manifest.shards.values())
