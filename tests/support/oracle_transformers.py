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
    "masked-lm": "BertForMaskedLM",
    "question-answering": "BertForQuestionAnswering",
    "sequence-classification": "BertForSequenceClassification",
    "token-classification": "BertForTokenClassification",
    "encoder": "BertModel",
}
OUTPUTS = {
    "pretraining": ("prediction_logits", "seq_relationship_logits"),
    "masked-lm": ("logits",),
    "question-answering": ("start_logits", "end_logits"),
    "sequence-classification": ("logits",),
    "token-classification": ("logits",),
    "encoder": ("last_hidden_state", "pooler_output"),
}


def with_transformers(folder: Path, task: str, feed: dict) -> dict[str, np.ndarray]:
    import torch
    import transformers

    name = CLASSES[task]
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    if kind != "bert":
        name = name.replace("Bert", {"modernbert": "ModernBert", "roberta": "Roberta"}[kind])
        feed = {key: array for key, array in feed.items() if key != "token_type_ids"}
    model, loading = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    missing = [key for key in loading["missing_keys"] if not key.startswith("pooler.")]
    assert not any((missing, loading["unexpected_keys"], loading["mismatched_keys"])), loading
    assert model.config.architectures == [name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if kind == "roberta":
        assert tokenizer.convert_ids_to_tokens(tokenizer("a", "b")["input_ids"])[2:4] == ["</s>", "</s>"]
        assert tokenizer.tokenize("a <mask>.")[1:] == [" <mask>", "."], "the mask takes the space before it"
    else:
        assert tokenizer.tokenize("WORD3") == ["word3"]
        assert tokenizer("word3")["input_ids"][0] == 2, "[CLS] is the third token"
    assert set(tokenizer("word3")) == {*feed}, "the tokenizer gives what the model takes"
    with torch.no_grad():
        outputs = model.eval()(**{name: torch.from_numpy(array) for name, array in feed.items()})
    names = [
        name for name in OUTPUTS[task] if name in outputs and not (name == "pooler_output" and loading["missing_keys"])
    ]
    return {name: outputs[name].numpy() for name in names}


def with_paddlenlp(folder: Path, task: str, feed: dict) -> dict[str, np.ndarray]:
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
    return dict(zip(OUTPUTS[task], (output.numpy() for output in outputs), strict=True))


def main(library: str, job_json: str) -> None:
    job = json.loads(Path(job_json).read_text())
    with np.load(job["feed"]) as arrays:
        feed = dict(arrays)
    run = {"transformers": with_transformers, "paddlenlp": with_paddlenlp}[library]
    found = {}
    for folder, task in job["models"].items():
        for name, array in run(Path(folder), task, feed).items():
            found[f"{Path(folder).name}/{name}"] = array
    np.savez(job["out"], **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
