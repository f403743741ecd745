"""A fake of `bert.serving.model_process` without a model; texts are orders that it obeys.

"until FILE" takes until there is the file, "die" ends the process, "hang" never
answers, "refuse" and "fail" are outcomes; any other text gets a result of the task that can be told in advance. The end
of a text with "cut" is not read. Each batch is noted in the file $FAKE_BATCHES. `settings.model` is the task, or
"several-labels".
"""

import json
import os
import sys
import time

from bert.conversion.usage import VectorForm
from bert.parent_death import end_with
from bert.serving.messages import ADD, DELETE, DONE, FAILED, INDEX_KINDS, REFUSED, SEARCH, Description, Figures, Outcome

LABELS = {"sequence-classification": ("good", "bad"), "token-classification": ("O", "B-PER", "B-LOC")}


def description(task: str, index: str = "") -> Description:
    num_texts = (2,) if task == "question-answering" else (1,)
    several, task = task == "several-labels", task.replace("several-labels", "sequence-classification")
    summary = f"a fake for {task}"
    labels = LABELS.get(task)
    form = VectorForm(query_prefix="query: ", dimensions=(1,))
    fixed = (128, 3, True, "0", "f", ("note",), several, 2, form)
    return Description("fake", task, summary, labels, False, num_texts, *fixed, index)


def result(task: str, kind: str, texts: tuple[str, ...], top_k: int) -> dict:
    text = texts[-1]
    if kind == "encode" or task == "encoder":
        return {"vector": [float(len(text)), 0.5], "tokens": len(text)}
    if task == "question-answering":
        start = max(text.find(texts[0]), 0)
        found = {"probability": 0.75, "start": start, "end": start + len(texts[0])}
        named = text[start : start + len(texts[0])]
        return {"answer": named, **found, "answers": [{"text": named, **found}][:top_k], "no_answer_probability": 0.25}
    if task == "several-labels":
        labels = [label for label in ("good", "bad") if label in text]
        return {"labels": labels, "probabilities": {"good": 0.8, "bad": 0.7}}
    if task == "sequence-classification":
        return {"label": "good", "probability": 0.8, "probabilities": {"good": 0.8, "bad": 0.2}}
    if task == "token-classification":
        places = [(text.find(word), word, kind) for word, kind in (("Anna", "PER"), ("Malmo", "LOC")) if word in text]
        entities = [
            {"text": word, "type": kind, "start": place, "end": place + len(word), "probability": 0.9}
            for place, word, kind in places
        ]
        return {"entities": entities}
    fills = [{"token": token, "probability": 0.5} for token in ("##ing", "is", "was")][:top_k]
    return {"filled": text.replace(" [MASK]", "ing"), "masks": [fills for _ in range(text.count("[MASK]"))]}


def index_result(kind: str, texts: tuple[str, ...], options) -> dict:
    """Return an index's answer; a search has one hit, whose text is the options."""
    if kind == SEARCH:
        text = json.dumps(options)
        hit = {"id": "a", "part": 0, "source": "", "line": None, "score": 1.0, "text": text, "columns": {}}
        return {"hits": [hit | {"sentence": {"text": text, "start": 0, "end": len(text)}}], "generation": 1}
    if kind == ADD:
        return {"ids": [one or "new" for one in options.ids], "replaced": 0, "generation": 2}
    if kind == DELETE:
        return {"deleted": len(texts), "generation": 3}
    return {"passages": 0, "bytes": 0, "generation": 3, "columns": [], "files": 0, "model": "fake"}


def outcome(task: str, kind: str, texts: tuple[str, ...], top_k) -> Outcome:
    if kind in INDEX_KINDS and texts[-1:] != ("fail",) and texts[-1:] != ("refuse",):
        return Outcome(DONE, json.dumps(index_result(kind, texts, top_k)).encode())
    if texts[-1] == "refuse":
        return Outcome(REFUSED, b'"no [MASK] in the text"')
    if texts[-1] == "fail":
        return Outcome(FAILED, b'"the model failed at this input"')
    return Outcome(DONE, json.dumps(result(task, kind, texts, top_k)).encode(), "cut" in texts[-1])


def run_child(connection, settings, parent: int) -> None:
    """Stand in for `bert.serving.worker.run_child`."""
    end_with(parent)
    os.setsid()
    main(connection, settings)


def main(connection, settings) -> None:
    mode = os.environ.get("FAKE_START", "")
    if mode == "refuse":
        connection.send("nowhere does not exist")
        return
    if mode == "die" or os.path.exists(mode):
        sys.exit(7)
    if mode.startswith("/"):
        open(mode, "w").close()  # the next start dies
    time.sleep(float(mode or 0) if not mode.startswith("/") else 0)
    connection.send(description(settings.model, str(settings.index or "")))
    while (batch := connection.recv()) is not None:
        texts = [given[-1] if given else "" for given, _ in batch.inputs]
        with open(os.environ.get("FAKE_BATCHES", os.devnull), "a") as file:
            file.write(json.dumps([batch.kind, batch.rows, texts]) + "\n")
        if "die" in texts:
            os._exit(9)
        if "hang" in texts:
            time.sleep(1000)
        while any(text.startswith("until ") and not os.path.exists(text.split(" ", 1)[1]) for text in texts):
            time.sleep(0.01)
        tokens = sum(3 + len(text) // 4 for text in texts)
        answers = [outcome(settings.model, batch.kind, given, top_k) for given, top_k in batch.inputs]
        connection.send((Figures(tokens, tokens + 1, 0.001), answers))
