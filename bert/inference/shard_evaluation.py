"""Evaluates a pre-trained model on shards outside of a training: a folder of weights and one of shards -> metrics."""

from pathlib import Path

from bert.checkpoints import state as checkpoint
from bert.checkpoints.state import CheckpointError
from bert.config.architecture import BertConfig
from bert.finetuning.model_files import VOCABULARY_FILE, implied_by_weights
from bert.model.objectives import PretrainingObjective
from bert.pretraining.task import evaluate_pretraining
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, static
from bert.samples.loader import PretrainingDataset, evaluation_batches, evaluation_unigram_entropy
from bert.samples.settings import LoaderSettings
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary import Vocabulary
from bert.training.initialization import pretrained_parameters
from program import build_evaluation_program, build_prediction_program

_NEXT_SENTENCE_HEAD = "cls.seq_relationship"


def evaluate_on_shards(
    weights: Path, shards: Path, *, batch_size: int = 32, eval_samples: int = 2048, seed: int = 42, device: str = "cpu"
) -> dict[str, float]:
    """Masked-LM loss (nats) and accuracy, those of next-sentence prediction, and the labels' unigram entropy.

    With the seed, samples and masks of a training the figures are those of its own evaluation.

    Args:
        weights: a folder of weights of any known format, with its vocabulary and the masked-LM head.
        shards: held-out shards; those without static masks are masked as the seed says.
    Returns:
        Metric -> value. Without the head, those of next-sentence prediction are left out.
    """
    implied = implied_by_weights({"from_pretrained_params": weights})
    if missing := [name for name in ("hidden_size", "vocab_file") if name not in implied]:
        file = "description of the model" if missing[0] == "hidden_size" else VOCABULARY_FILE
        raise ValueError(f"{weights} has no {file} beside the weights; pass a folder that has one")
    model = BertConfig(**{name: implied[name] for name in BertConfig.model_fields})
    dataset = _dataset(shards, Vocabulary.from_file(implied["vocab_file"]), model.max_position_embeddings, seed)
    objective = PretrainingObjective(model)
    place = place_of(device)
    executor, scope = static.Executor(place), static.Scope()
    program = build_prediction_program(objective)
    executor.run(program.startup, scope=scope)
    current = {name: checkpoint.read_variable(scope, name) for name in program.parameters}
    parameters, may_lack = pretrained_parameters(weights, model), ("unknown: ", f"missing: {_NEXT_SENTENCE_HEAD}")
    if wrong := [line for line in checkpoint.differences(parameters, current) if not line.startswith(may_lack)]:
        raise CheckpointError("\n  ".join([f"{weights} is not a pre-trained model with its masked-LM head:", *wrong]))
    checkpoint.write_parameters(scope, place, {name: parameters[name] for name in current if name in parameters})
    has_head = all(name in parameters for name in current if name.startswith(_NEXT_SENTENCE_HEAD))
    metrics = evaluate_pretraining(
        executor,
        build_evaluation_program(objective),
        evaluation_batches(dataset, micro_batch_size=batch_size, max_samples=eval_samples),
        Collective(Group(0, 1, device), executor),
        scope,
    )
    metrics["eval_unigram_entropy"] = evaluation_unigram_entropy(dataset, eval_samples)
    named = {name.removeprefix("eval_"): float(value) for name, value in metrics.items()}
    return {name: value for name, value in named.items() if has_head or not name.startswith("next_sentence")}


def _dataset(shards: Path, vocabulary: Vocabulary, most_tokens: int, seed: int) -> PretrainingDataset:
    """The shards with their own length and masks."""
    if not shards.is_dir():
        raise ValueError(
            f"data={shards} must be an existing folder of shards; data.preprocess_bert_pretrain makes them"
        )
    directory = ShardDirectory(shards, vocabulary, most_tokens)
    made_with = directory.manifest.settings if directory.manifest else {}
    length = int(made_with.get("pairs", {}).get("target_seq_length") or most_tokens)
    settings = LoaderSettings(
        max_seq_length=length,
        max_predictions_per_seq=int(made_with.get("max_predictions_per_seq") or max(1, round(length * 0.16))),
        masking="static" if directory.masked else "dynamic",
    )
    return PretrainingDataset(shards, vocabulary, settings, seed=seed)
