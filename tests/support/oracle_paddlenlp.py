"""Runs PaddleNLP's BertForPretraining in dygraph: npz of weights and feed in, npz of logits, loss and gradients out.

It is a process of its own, because the project's modules switch Paddle to static graphs and this import takes 8 s.

    python tests/support/oracle_paddlenlp.py CONFIG_JSON INPUT_NPZ OUTPUT_NPZ

Weights are named as PaddleNLP names them; entries of the input that start with `feed:` are not weights.
"""

import json
import sys
import zlib  # noqa: F401 - before Paddle

import numpy as np
import paddle
from paddlenlp.transformers import BertConfig, BertForPretraining


def main(config_json: str, input_npz: str, output_npz: str) -> None:
    model = BertForPretraining(BertConfig(**json.loads(config_json)))
    model.eval()
    with np.load(input_npz) as arrays:
        values = dict(arrays)
    feed = {name.removeprefix("feed:"): paddle.to_tensor(values[name]) for name in values if name.startswith("feed:")}
    unused = {name for name in values if not name.startswith("feed:")}
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        parameter.set_value(values[name])
        unused.discard(name)
    assert not unused, unused
    logits, next_sentence_logits = model(
        feed["input_ids"],
        feed["token_type_ids"],
        attention_mask=feed["attention_mask"],
        masked_positions=feed["masked_lm_positions"],
    )
    loss = paddle.nn.functional.cross_entropy(logits, feed["masked_lm_labels"])
    loss = loss + paddle.nn.functional.cross_entropy(next_sentence_logits, feed["next_sentence_labels"])
    loss.backward()
    gradients = {f"gradient:{name}": parameter.grad.numpy() for name, parameter in parameters.items()}
    np.savez(
        output_npz,
        logits=logits.numpy(),
        next_sentence_logits=next_sentence_logits.numpy(),
        loss=float(loss),
        **gradients,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
