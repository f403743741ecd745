"""A model process without a model: `python tests/serving/fake_model.py TASK [SETTINGS]`. Its texts are orders.

"sleep S" takes S seconds for the batch, "until FILE" until there is the file, "die" ends the process, "hang" never
answers, "refuse" and "fail" are outcomes; any other text gets a result of the task that can be told in advance. Each
batch is noted in the file $FAKE_BATCHES.
"""

import json
import os
import sys
import time

TASK = sys.argv[1]
DESCRIPTION = {
    "name": "fake",
    "task": TASK,
    "summary": f"a fake for {TASK}",
    "labels": {"sequence-classification": ["good", "bad"], "token-classification": ["O", "B-PER", "B-LOC"]}.get(TASK),
    "is_regression": False,
    "num_texts": [2] if TASK == "question-answering" else [1],
    "max_seq_length": 128,
    "top_k": 3,
    "can_encode": True,
    "version": "0",
}


def result(kind: str, texts: list[str], top_k: int) -> dict:
    text = texts[-1]
    if kind == "encode" or TASK == "encoder":
        return {"vector": [float(len(text)), 0.5]}
    if TASK == "question-answering":
        start = max(text.find(texts[0]), 0)
        found = {"probability": 0.75, "start": start, "end": start + len(texts[0])}
        named = text[start : start + len(texts[0])]
        return {"answer": named, **found, "answers": [{"text": named, **found}][:top_k], "no_answer_probability": 0.25}
    if TASK == "sequence-classification":
        return {"label": "good", "probability": 0.8, "probabilities": {"good": 0.8, "bad": 0.2}}
    if TASK == "token-classification":
        places = [(text.find(word), word, kind) for word, kind in (("Anna", "PER"), ("Malmo", "LOC")) if word in text]
        entities = [
            {"text": word, "type": kind, "start": place, "end": place + len(word), "probability": 0.9}
            for place, word, kind in places
        ]
        return {"entities": entities}
    fills = [{"token": token, "probability": 0.5} for token in ("##ing", "is", "was")][:top_k]
    return {"filled": text.replace(" [MASK]", "ing"), "masks": [fills for _ in range(text.count("[MASK]"))]}


def outcome(kind: str, given: dict) -> bytes:
    text = given["texts"][-1]
    if text == "refuse":
        return b'-"no [MASK] in the text"'
    if text == "fail":
        return b'!"the model failed at this input"'
    return b"+" + json.dumps(result(kind, given["texts"], given["top_k"])).encode()


def main() -> None:
    mode = os.environ.get("FAKE_START", "")
    if mode == "refuse":
        print(json.dumps({"error": "nowhere does not exist"}), flush=True)
        sys.exit(2)
    if mode == "die":
        sys.exit(7)
    time.sleep(float(mode or 0))
    print(json.dumps(DESCRIPTION), flush=True)
    for line in sys.stdin:
        batch = json.loads(line)
        texts = [given["texts"][-1] for given in batch["inputs"]]
        if "FAKE_BATCHES" in os.environ:
            with open(os.environ["FAKE_BATCHES"], "a") as file:
                file.write(json.dumps([batch["kind"], batch["rows"], texts]) + "\n")
        if "die" in texts:
            os._exit(9)
        if "hang" in texts:
            time.sleep(1000)
        while any(text.startswith("until ") and not os.path.exists(text.split(" ", 1)[1]) for text in texts):
            time.sleep(0.01)
        time.sleep(max([float(text.split()[1]) for text in texts if text.startswith("sleep ")], default=0.0))
        tokens = sum(3 + len(text) // 4 for text in texts)
        figures = {"tokens": tokens, "padded_tokens": tokens + 1, "seconds": 0.001}
        sys.stdout.buffer.write(
            json.dumps(figures).encode()
            + b"\n"
            + b"".join(outcome(batch["kind"], given) + b"\n" for given in batch["inputs"])
        )
        sys.stdout.buffer.flush()


main()
