"""The models that can be trained on a text with a machine: sizes, vocabulary, length, ranks, memory."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert.config.architecture import BertConfig
from bert.config.optimizer_settings import PrecisionSettings
from bert.own_text import constants
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.length import Length
from bert.own_text.request import TextRequest
from bert.planning.estimates import rank_bytes
from bert.samples.settings import MASKED_SHARE, predictions_of

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices, ranks and threads of a training, and its micro-batch.

    Attributes:
        most_sequences: largest micro-batch that fits on a rank.
    """

    device: str
    ranks: int
    threads: int
    most_sequences: int


@dataclasses.dataclass(frozen=True)
class NetworkSize:
    """Sizes of a training that decide the memory of a device.

    Attributes:
        length: of the longest sequences, in tokens.
    """

    name: str
    model: BertConfig
    length: int
    precision: PrecisionSettings

    def rank_bytes(self, device: str, num_sequences: int) -> float:
        """Memory of a rank with a micro-batch of so many sequences, in bytes."""
        masked = predictions_of(self.length)
        return rank_bytes(self.model, self.length, masked, self.precision, device, num_sequences)

    def most_sequences(self, device: str, room: float) -> int:
        """Largest power of two of sequences that fits in memory; 0 if none fits."""
        sequences = constants.MOST_MICRO_BATCH[device]
        while sequences and self.rank_bytes(device, sequences) > room:
            sequences //= 2
        return sequences


@dataclasses.dataclass(frozen=True)
class ModelCandidate(NetworkSize):
    """A model that could be trained on the text.

    Attributes:
        rule: None for pre-trained weights, which bring their sizes.
        objective: as --objective.
        masked_share: of the tokens.
        optimizer: as --optimizer.
    """

    rule: constants.ModelRule | None
    placement: Placement
    objective: str
    masked_share: float
    optimizer: str

    def is_small_with_adamw(self) -> bool:
        """Whether to use the learning rate and batch measured for AdamW with small random models."""
        return self.has_free_dropout() and self.optimizer == "AdamW"

    def has_free_dropout(self) -> bool:
        """Whether dropout follows from the number of epochs; speed is then measured without dropout."""
        return self.rule is not None and self.rule.dropout is None

    def mean_length(self) -> float:
        """Mean number of tokens in a sequence, without padding."""
        return self.length * constants.FILLED_BY_A_SAMPLE

    def text_tokens_of_sample(self) -> float:
        """Number of text tokens in a sample."""
        return self.length * constants.USED_BY_A_SAMPLE

    def predictions(self) -> int:
        """Largest number of masked positions in a sequence."""
        return predictions_of(self.length, self.masked_share)

    def settings(self) -> dict[str, Any]:
        """Flat settings of a training of this model."""
        return {
            **self.model.model_dump(),
            "bert_model": self.rule.built_in if self.rule is not None else "bert-continued",
            "amp": self.precision.amp,
            "max_seq_length": self.length,
            "max_predictions_per_seq": self.predictions(),
            "objective": self.objective,
            "masked_lm_ratio": self.masked_share,
            "optimizer": self.optimizer,
            **({"initial_attention": "neighbours"} if self.rule is not None and self.model.is_modern() else {}),
        }


def list_candidates(text: TextFacts, machine: MachineFacts, request: TextRequest) -> tuple[ModelCandidate, ...]:
    """Candidate models, the smallest first; only one if the user named it or its weights.

    Raises:
        ValueError: the text is too small, or the named model contradicts the machine or other settings.
    """
    if text.learnable_words() < constants.LEAST_WORDS:
        raise ValueError(
            f"the text has {text.learnable_words():,.0f} words and must have at least {constants.LEAST_WORDS:,} to "
            "learn from; add text"
        )
    if request.weights is not None:
        return (_candidate(request.weights.path.name, None, text, machine, request),)
    smallest, *larger = constants.MODELS
    named = [rule for rule in constants.MODELS if rule.name == request.model]
    if any(request.setting(name) for name in _SIZES) and not named:
        named = [smallest]
    fitting: list[ModelCandidate] = []
    for rule in named or [smallest, *(rule for rule in larger if has_enough_text(rule, text, request))]:
        try:
            fitting.append(_candidate(rule.name, rule, text, machine, request))
        except ValueError:
            if not fitting:
                raise
            break  # the larger ones do not fit either
    return tuple(fitting)


def has_enough_text(rule: constants.ModelRule, text: TextFacts, request: TextRequest) -> bool:
    """Whether the text has enough tokens for the model's parameters."""
    tokens = text_tokens(text, vocabulary_size(text, rule, request))
    return tokens >= constants.TEXT_TOKENS_PER_PARAMETER * layer_parameters(rule.architecture(4096, 512))


def affordable(
    candidates: Sequence[ModelCandidate], text: TextFacts, length: Length, seconds: float, speeds: Mapping[str, float]
) -> tuple[ModelCandidate, ...]:
    """The smallest candidate, and all candidates that read enough tokens per parameter in the time.

    Args:
        seconds: for the updates, and for what follows them.
        speeds: sequences per second of all ranks, by the names of the models.
    """
    fitting = [candidates[0]]
    for candidate in candidates[1:]:
        read = candidate.text_tokens_of_sample() * seconds * speeds.get(candidate.name, 0.0)
        if length.epochs is not None:
            read = min(read, length.epochs * text_tokens(text, candidate.model.vocab_size))
        if read >= constants.TOKENS_PER_PARAMETER * layer_parameters(candidate.model):
            fitting.append(candidate)
    return tuple(fitting)


def layer_parameters(model: BertConfig) -> int:
    """Number of parameters in the Transformer layers, without embeddings, biases and norms."""
    feed_forward = model.feed_forward_products() * model.hidden_size * model.intermediate_size
    return model.num_hidden_layers * (4 * model.hidden_size**2 + feed_forward)


def vocabulary_size(text: TextFacts, rule: constants.ModelRule, request: TextRequest) -> int:
    """Size of the vocabulary: from the file or flag, otherwise by the number of words in the text.

    Characters are tokens, at the beginning of words and inside of them; Chinese ones are words, and thousands.
    """
    if (size := request.vocab_size()) is not None:
        return size
    by_words = [tokens for least, tokens in constants.VOCABULARY_BY_WORDS if text.learnable_words() >= least][-1]
    least = max(4 * min(text.distinct_characters, 1000), 0 if text.has_spaces() else 1.3 * text.distinct_characters)
    sizes = [tokens for _, tokens in constants.VOCABULARY_BY_WORDS]
    for_characters = next((size for size in sizes if size >= least), sizes[-1])
    return max(min(by_words, rule.most_tokens), for_characters)


def text_tokens(text: TextFacts, vocab_size: int) -> float:
    """Estimate the tokens of the text from a sample, scaled to another vocabulary size as English text scales."""
    usual = _characters_per_token(vocab_size, text)
    if text.characters_per_token is not None:
        usual *= text.characters_per_token / _characters_per_token(text.sampled_tokens, text)
    return text.characters / usual


def _characters_per_token(vocab_size: int, text: TextFacts) -> float:
    nearest = min(constants.CHARACTERS_PER_TOKEN, key=lambda size: abs(math.log(size / vocab_size)))
    return constants.CHARACTERS_PER_TOKEN[nearest] if text.has_spaces() else 1.2


def _candidate(
    name: str, rule: constants.ModelRule | None, text: TextFacts, machine: MachineFacts, request: TextRequest
) -> ModelCandidate:
    device = machine.device(request.setting("device", "auto"))
    if rule is not None:
        usual = rule.length
    else:
        assert request.weights is not None
        usual = min(constants.CONTINUED_LENGTH[device], request.weights.config.max_position_embeddings)
    length = request.setting("max_seq_length", usual)
    model = _architecture(rule, text, request, length, device)
    if length > model.max_position_embeddings:
        raise ValueError(
            f"max_seq_length={length} must be at most the {model.max_position_embeddings} positions of the model; "
            f"pass --max-seq-length {model.max_position_embeddings}"
        )
    precision = PrecisionSettings(amp=request.setting("amp", device == "gpu"))
    network = NetworkSize(name, model, length, precision)
    placement = place(network, machine, request)
    learns_pairs = request.weights is not None and "next-sentence head" in request.weights.heads
    objective = request.setting("objective", "mlm_nsp" if learns_pairs else constants.OBJECTIVE)
    masked_share = request.setting("masked_lm_ratio", MASKED_SHARE if learns_pairs else constants.MASKED_SHARE)
    has_lamb = rule is not None and (rule.adamw_share is None or not model.is_modern())
    optimizer = request.setting("optimizer", "Lamb" if has_lamb else "AdamW")
    return ModelCandidate(
        **vars(network),
        rule=rule,
        placement=placement,
        objective=objective,
        masked_share=masked_share,
        optimizer=optimizer,
    )


def _architecture(
    rule: constants.ModelRule | None, text: TextFacts, request: TextRequest, length: int, device: str
) -> BertConfig:
    if rule is None:
        assert request.weights is not None
        base = request.weights.config
        sizes = {**base.model_dump(), "vocab_size": base.vocab_size + (request.add_words or 0)}
    else:
        base = rule.architecture(vocabulary_size(text, rule, request), max(length, rule.length))
        sizes = base.model_dump()
        is_small = rule.dropout is None  # base and large are published as they are
        if is_small and device == "cpu" and request.setting("objective", constants.OBJECTIVE) == "mlm":
            sizes["model_type"] = constants.CPU_MODEL_TYPE
        if request.setting("model_type", sizes["model_type"]) == "modernbert":  # as many parameters in 3 matrices
            sizes |= {"intermediate_size": -(-2 * base.intermediate_size // 24) * 8, "layer_norm_eps": 1e-5}
            sizes["classifier_pooling"] = "mean"
    requested = {name: value for name in BertConfig.model_fields if (value := request.setting(name)) is not None}
    return BertConfig(**{**sizes, **requested})


def place(
    network: NetworkSize, machine: MachineFacts, request: TextRequest, batch_of_run: int | None = None
) -> Placement:
    """Ranks, threads and largest micro-batch of a network on a machine.

    All GPUs; on a CPU the largest power of two up to the cores, as most operators use one core; fewer if memory is
    short, or if they would not divide the batch of a run that has begun.

    Args:
        batch_of_run: the global batch of such a run.
    Raises:
        ValueError: what was asked for is not there, does not fit, or does not divide the batch.
    """
    device, asked = machine.device(request.setting("device", "auto")), request.num_processes
    if device == "gpu" and (asked or 0) > machine.gpus:
        raise ValueError(f"num_gpus={asked} must be at most the {machine.gpus} GPUs of this machine; lower it")
    micro = request.setting("batch_size") or 1
    ranks = asked or (machine.gpus if device == "gpu" else _ranks_on_cpu(network, machine))
    if batch_of_run is not None and asked is None:
        ranks = next((number for number in range(ranks, 0, -1) if batch_of_run % (number * micro) == 0), ranks)
    _refuse_batch(request.setting("global_batch_size") or batch_of_run, micro, ranks, batch_of_run is not None)
    room = machine.usable_bytes(device, ranks)
    most, needed = network.most_sequences(device, room), network.rank_bytes(device, micro)
    if needed > room:
        sizes = f"needs about {needed / 1e9:.1f} GB on a rank, of which {room / 1e9:.1f} GB are free"
        if most:
            raise ValueError(f"batch_size={micro} {sizes}; pass --batch-size {most}, or drop it")
        raise ValueError(f"the model {network.name} {sizes}; pass a smaller one (--config), or fewer ranks")
    threads = request.setting("cpu_threads") or max(1, machine.cores // ranks)
    return Placement(device, ranks, threads if device == "cpu" else 0, most)


def _ranks_on_cpu(network: NetworkSize, machine: MachineFacts) -> int:
    ranks, least = 1 << (min(machine.cores, constants.MOST_RANKS_ON_CPU).bit_length() - 1), constants.LEAST_MICRO_BATCH
    while ranks > 1 and network.most_sequences("cpu", machine.usable_bytes("cpu", ranks)) < least["cpu"]:
        ranks //= 2
    return ranks


def _refuse_batch(batch: int | None, micro: int, ranks: int, has_begun: bool) -> None:
    """Raise ValueError for a global batch that the ranks do not divide; a resumed run keeps its batch."""
    if not batch or batch % (one_pass := ranks * micro) == 0:
        return
    remedy = f"--global-batch-size {-(-batch // one_pass) * one_pass}, or other --num-gpus"
    if has_begun:
        fits = [number for number in range(1, ranks) if batch % (number * micro) == 0]
        remedy = f"--num-gpus {fits[-1]}" if fits else "a --batch-size that divides it"
    raise ValueError(
        f"global_batch_size={batch} must be a multiple of batch_size x ranks = {micro} x {ranks}; pass {remedy}"
    )
