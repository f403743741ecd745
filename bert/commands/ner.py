"""`bash scripts/run_ner.sh`: fine-tunes BERT to find named entities, and scores it."""

from functools import partial

from bert.commands.fine_tuning import ArgumentSettings, FineTuningLauncher, planned_of, recipe_settings
from bert.finetuning.ner.config import ENTRY as NER
from bert.jobs.job import start
from bert.launching.arguments import CommandLine


def _argument_settings(line: CommandLine) -> ArgumentSettings:
    if line.positional:
        raise ValueError(f"{' '.join(line.positional)} must be a flag, there are no positional arguments; see --help")
    has_files = line.training.keys() & {"train_file", "eval_file", "predict_file"}
    return recipe_settings(NER.recipes, line.launch.get("config", "" if has_files else "quickstart_entities"))


LAUNCHER = FineTuningLauncher(
    script="scripts/run_ner.sh",
    entry=NER,
    usage="[--config NAME]",
    description="Fine-tune BERT to find named entities, and score it. Without arguments it trains the quickstart, on "
    "sentences of this project.",
    examples=(
        "--train-file train.conll --eval-file dev.conll --model bert-base-cased",
        "--model results/ner --predict-file new.conll --output-dir results/ner-new",
    ),
    main_settings={
        "train_file": "",
        "eval_file": "",
        "predict_file": "",
        "from_pretrained_params": "",
        "output_dir": "",
        "epochs": "by the number of sentences",
        "learning_rate": "by the number of sentences",
        "batch_size": "by the number of sentences",
    },
    epilog="The same command resumes a stopped run.",
    names={"Recipes": NER.recipes},
    argument_settings=_argument_settings,
)
planned = partial(planned_of, LAUNCHER)
main = partial(start, planned)
