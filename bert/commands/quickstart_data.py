"""Training data of the fine-tuning quickstarts: example texts of this project, and a small vocabulary made of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert.checkpoints.chosen_weights import weights_folder
from bert.config.entry_point import EntryPoint
from bert.config.setting_sources import resolve_config
from bert.files import refuse_read_only
from bert.help_parser import wrapped
from bert.interpreter import shell_command
from bert.jobs.job import Execution, Step
from bert.jobs.making import Make
from bert.launching.arguments import CommandLine
from bert.launching.processes import module_command
from bert.launching.ranks import gpus_for
from bert.pretraining.quickstart_folder import QUICKSTART_DIR


@dataclass(frozen=True)
class MadeData:
    """Data of a quickstart: the settings that name it, the steps that make it, and its vocabulary."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    vocabulary: "SampleVocabulary | None" = None


def quickstart_data(
    entry: EntryPoint,
    line: CommandLine,
    given: Mapping[str, Any],
    output_dir: Path,
    questions: str | None,
    vocabulary_size: int,
) -> MadeData:
    """The output folder, example data and initial weights of a quickstart, unless flags name others.

    The weights are the result of the pre-training quickstart, or random numbers, with a vocabulary made of the data.

    Args:
        given: settings that the form of the command line gives, its recipe among them.
        questions: of SQuAD: the part of the names of its files that says which ones are read; None: another task.
        vocabulary_size: in tokens, at most.
    """
    # Mistakes are found before data are planned; the vocabulary is one of these.
    resolve_config({**given, "vocab_file": "vocab.txt", **line.training}, entry)
    refuse_read_only(output_dir)
    data, steps = output_dir / "data", list[Step]()
    settings: dict[str, Any] = {"output_dir": output_dir, "report_file": output_dir / "report.json"}
    if questions is not None:
        settings |= {"train_file": data / f"train{questions}.json", "predict_file": data / f"held_out{questions}.json"}
        settings |= {} if gpus_for("auto") else {"device": "cpu"}
        text = data / "train.json"
        command = module_command("data.examples.sample_questions", output_dir=data)
        steps.append(Make("writing questions about texts of this project", tuple(command), text, data))
    else:
        text = Path(dict(entry.recipes[given["config"]]())["train_file"])
    if line.training.keys() & {"from_pretrained_params", "from_checkpoint"}:
        return MadeData(settings, tuple(steps))
    if pretrained := _pretrained_settings():
        return MadeData({**settings, **pretrained}, tuple(steps))
    vocabulary = SampleVocabulary(text, data, vocabulary_size)
    size = vocabulary.size_now()
    settings |= {"bert_model": "bert-quickstart", "vocab_size": size, "vocab_file": vocabulary.product}
    return MadeData(settings, (*steps, vocabulary), vocabulary)


def _pretrained_settings() -> dict[str, Any]:
    """Settings that start from the model of the pre-training quickstart; empty if there is none."""
    folder = QUICKSTART_DIR / "bert-quickstart"
    if folder.is_dir() and weights_folder(folder) != folder:
        print(f"starting from the pre-trained weights in {weights_folder(folder)}", flush=True)
        return {"from_pretrained_params": weights_folder(folder)}
    makes = f"`{shell_command('scripts/run_pretraining.sh')}` makes one; --from-pretrained-params names another."
    without = "so the weights are random, and the scores will be near chance"
    print(wrapped(f"There is no pre-trained model in {folder}, {without}. {makes}"), flush=True)
    return {}


@dataclass(frozen=True)
class SampleVocabulary(Step):
    """The step of a job that makes a small vocabulary from the training file, for a model of random weights.

    Attributes:
        text: questions in SQuAD's JSON, or a table, whose lines are the text.
        data: the folder of the quickstart's data.
        size: tokens of the vocabulary, at most.
    """

    text: Path
    data: Path
    size: int

    @property
    def title(self) -> str:
        return "training the vocabulary"

    @property
    def product(self) -> Path:
        return self.data / "vocab.txt"

    def size_now(self) -> int:
        """Number of tokens of the vocabulary; before it exists, its largest allowed size."""
        return len(self.product.read_text(encoding="utf-8").splitlines()) if self.product.is_file() else self.size

    def is_done(self, execution: Execution) -> bool:
        return self.product.is_file()

    def run(self, execution: Execution) -> int:
        source = self.data / "text"
        source.mkdir(parents=True, exist_ok=True)
        documents = (f"document-{number} {document}\n" for number, document in enumerate(_documents(self.text)))
        (source / "0.txt").write_text("".join(documents), encoding="utf-8")
        options = {"input": source, "vocab_size": self.size, "output": self.product}
        return execution.command(module_command("data.train_vocabulary", **options))


def _documents(file: Path) -> list[str]:
    """The training texts of a file: the paragraphs of SQuAD's JSON, the lines of any other file."""
    content = file.read_text(encoding="utf-8")
    if file.suffix != ".json":
        return [line for line in content.splitlines() if line]
    return [paragraph["context"] for article in json.loads(content)["data"] for paragraph in article["paragraphs"]]
