"""Evaluates a pre-trained model on shards outside of a training: a folder of weights and one of shards -> metrics."""

from pathlib import Path

from bert.conversion.reading import read_pretrained
from bert.conversion.tensor_names import heads_of
from bert.conversion.vocabularies import find_tokens
from bert.inference.paddle_program import Network
from bert.model.objectives import MaskedLMObjective, PretrainingObjective
from bert.pretraining.task import evaluate_pretraining
from bert.runtime.distributed import Collective, Group
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import evaluation_batches, evaluation_unigram_entropy
from bert.samples.masking import MASKED_SHARE, predictions_of
from bert.samples.settings import LoaderSettings
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary import Vocabulary
from program import build_evaluation_program


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
    pretrained = read_pretrained(weights)
    config, tokens = pretrained.config, find_tokens(pretrained.folder, pretrained.vocab_file, None, [])
    if config is None or tokens is None:
        file = "description of the model" if config is None else "vocabulary"
        raise ValueError(f"{weights} has no {file} beside the weights; pass a folder that has one")
    has_head = "next-sentence head" in heads_of(pretrained.parameters)
    dataset = _dataset(shards, tokens.vocabulary, config.max_position_embeddings, seed, has_head)
    network = Network(pretrained.parameters, config, device)
    objective = PretrainingObjective(config) if has_head else MaskedLMObjective(config)
    program = build_evaluation_program(objective)
    network.check("masked-lm", program.main)
    metrics = evaluate_pretraining(
        network.executor,
        program,
        evaluation_batches(dataset, micro_batch_size=batch_size, max_samples=eval_samples),
        Collective(Group(0, 1, device), network.executor),
        network.scope,
        objective.metric_names,
    )
    metrics["eval_unigram_entropy"] = evaluation_unigram_entropy(dataset, eval_samples)
    return {name.removeprefix("eval_"): float(value) for name, value in metrics.items()}


def _dataset(shards: Path, vocabulary: Vocabulary, most_tokens: int, seed: int, pairs: bool) -> PretrainingDataset:
    """The shards with their own length and masks."""
    if not shards.is_dir():
        raise ValueError(
            f"data={shards} must be an existing folder of shards; data.preprocess_bert_pretrain makes them"
        )
    directory = ShardDirectory(shards, vocabulary, most_tokens)
    made_with = directory.made_with
    length = int(made_with.get("pairs", {}).get("target_seq_length") or most_tokens)
    share = made_with.get("masked_lm_ratio", MASKED_SHARE)
    settings = LoaderSettings(
        max_seq_length=length,
        max_predictions_per_seq=int(made_with.get("max_predictions_per_seq") or predictions_of(length, share)),
        masking="static" if directory.masked else "dynamic",
    )
    return PretrainingDataset(shards, vocabulary, settings, seed=seed, next_sentence=pairs)
