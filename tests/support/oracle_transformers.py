"""Runs exported models in transformers or PaddleNLP, in a process of its own.

    python tests/support/oracle_transformers.py transformers|paddlenlp JOB_JSON

JOB_JSON: {"feed": npz, "models": {folder: task}, "out": npz}. Outputs are named "FOLDER NAME/output". Missing or
unexpected weights are an error, except for poolers that a task does not use.
"""

import json
import sys
import zlib  # noqa: F401 - before Paddle
from pathlib import Path

import numpy as np

CLASSES = {
    "pretraining": "BertForPreTraining",
    "question-answering": "BertForQuestionAnswering",
    "sequence-classification": "BertForSequenceClassification",
    "token-classification": "BertForTokenClassification",
    "encoder": "BertModel",
}
OUTPUTS = {
    "pretraining": ("prediction_logits", "seq_relationship_logits"),
    "question-answering": ("start_logits", "end_logits"),
    "sequence-classification": ("logits",),
    "token-classification": ("logits",),
    "encoder": ("last_hidden_state", "pooler_output"),
}


def with_transformers(folder: Path, task: str, feed: dict) -> list[np.ndarray]:
    import torch
    import transformers

    model, loading = getattr(transformers, CLASSES[task]).from_pretrained(folder, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert model.config.architectures == [CLASSES[task]]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("WORD3") == ["word3"]
    assert tokenizer("word3")["input_ids"][0] == 2, "[CLS] is the third token"
    with torch.no_grad():
        outputs = model.eval()(**{name: torch.from_numpy(array) for name, array in feed.items()})
    return [outputs[name].numpy() for name in OUTPUTS[task]]


def with_paddlenlp(folder: Path, task: str, feed: dict) -> list[np.ndarray]:
    import paddle
    import paddlenlp.transformers

    name = CLASSES[task].replace("PreTraining", "Pretraining")
    model = getattr(paddlenlp.transformers, name).from_pretrained(str(folder))
    model.eval()
    tokenizer = paddlenlp.transformers.BertTokenizer.from_pretrained(str(folder))
    assert tokenizer.tokenize("WORD3") == ["word3"]
    with paddle.no_grad():
        outputs = model(**{name: paddle.to_tensor(array) for name, array in feed.items()})
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [output.numpy() for output in outputs]


def main(library: str, job_json: str) -> None:
    job = json.loads(Path(job_json).read_text())
    with np.load(job["feed"]) as arrays:
        feed = dict(arrays)
    run = {"transformers": with_transformers, "paddlenlp": with_paddlenlp}[library]
    found = {}
    for folder, task in job["models"].items():
        for name, array in zip(OUTPUTS[task], run(Path(folder), task, feed), strict=True):
            found[f"{Path(folder).name}/{name}"] = array
    np.savez(job["out"], **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
