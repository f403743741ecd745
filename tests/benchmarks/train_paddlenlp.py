"""PaddleNLP's BertForPretraining in dygraph on a task of the benchmark; see measuring.py.

It gets what ours gives itself: the threads, MKL's kernels for this processor, logits at masked positions only.
"""

from tests.benchmarks.measuring import Task, best_rate, decays, measure, task_of_command_line
from tests.support.foreign import paddlenlp_name

_ACTIVATIONS = {"gelu_tanh": "gelu_new"}


def main(task: Task) -> None:
    from bert.runtime.paddle_api import paddle, set_cpu_threads

    paddle.disable_static()
    from paddlenlp.transformers import BertConfig, BertForPretraining

    set_cpu_threads(task.threads)
    model = task.model | {"hidden_act": _ACTIVATIONS.get(task.model["hidden_act"], task.model["hidden_act"])}
    model.pop("layer_norm_eps")  # fixed there, at 1e-5
    network = BertForPretraining(BertConfig(**model))
    parameters = dict(network.named_parameters())
    for name, value in task.weights().items():
        parameters.pop(paddlenlp_name(name)).set_value(value)
    assert not parameters, parameters.keys()
    decaying = {parameter.name for name, parameter in network.named_parameters() if decays(name)}
    optimizer = paddle.optimizer.AdamW(
        task.learning_rate,
        epsilon=task.epsilon,
        weight_decay=task.weight_decay,
        parameters=network.parameters(),
        apply_decay_param_fun=lambda name: name in decaying,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(task.max_grad_norm),
    )

    def loss_of(batch: dict):
        feed = {name: paddle.to_tensor(value) for name, value in batch.items()}
        logits, next_sentence_logits = network(
            feed["input_ids"],
            feed["token_type_ids"],
            attention_mask=feed["attention_mask"],
            masked_positions=feed["masked_lm_positions"],
        )
        each = paddle.nn.functional.cross_entropy(logits, feed["masked_lm_labels"], reduction="none")
        masked_lm = (each.reshape([-1]) * feed["masked_lm_weights"]).sum() / feed["masked_lm_normalizer"].sum()
        return masked_lm + paddle.nn.functional.cross_entropy(next_sentence_logits, feed["next_sentence_labels"])

    def train(batch: dict) -> None:
        network.train()
        loss_of(batch).backward()
        optimizer.step()
        optimizer.clear_grad()

    def evaluate(batch: dict) -> float:
        network.eval()
        with paddle.no_grad():
            return float(loss_of(batch))

    left, right = paddle.ones([1024, 1024]), paddle.full([1024, 1024], 1 / 1024)
    paddle.seed(12)
    measure(task, train, evaluate, best_rate(lambda: float(paddle.matmul(left, right)[0, 0]), 2 * 1024**3))


if __name__ == "__main__":
    main(task_of_command_line())
