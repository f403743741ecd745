"""The models that can be trained on a text and a machine: sizes, vocabulary, lengths, ranks, what fits in memory."""

import dataclasses
import math

from bert.config.architecture import BertConfig
from bert.config.training_settings import PrecisionSettings
from bert.own_text import rules
from bert.own_text.facts import MachineFacts, TextFacts, Wishes
from bert.planning.estimates import activation_bytes_per_sequence
from bert.samples.masking import MASKED_SHARE, predictions_of

_FLOAT32 = 4  # bytes
_STATES = 5  # weights, gradients, the buffer they are accumulated in, two moments
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model as it would be trained here.

    Attributes:
        rule: None for pre-trained weights, which bring their sizes.
        lengths: of each phase, in tokens.
        most_sequences: largest micro-batch of each phase that fits on a rank.
        masked_shares: of the tokens, in each phase.
    """

    name: str
    rule: rules.ModelRule | None
    model: BertConfig
    lengths: dict[int, int]
    precision: PrecisionSettings
    device: str
    ranks: int
    threads: int
    most_sequences: dict[int, int]
    masked_shares: dict[int, float]

    def predictions(self, phase: int) -> int:
        """Most masked positions of a sequence."""
        return predictions_of(self.lengths[phase], self.masked_shares[phase])


def candidates(text: TextFacts, machine: MachineFacts, wishes: Wishes) -> tuple[Candidate, ...]:
    """The models to choose from, the smallest first; one if the user named it, or its weights."""
    if text.learnable_words() < rules.LEAST_WORDS:
        raise ValueError(
            f"the text has {text.learnable_words():,.0f} words and must have at least {rules.LEAST_WORDS:,} to learn "
            "from; add text"
        )
    if wishes.weights is not None:
        return (_candidate(wishes.weights.name, None, text, machine, wishes),)
    named = tuple(rule for rule in rules.MODELS if rule.name == wishes.model)
    affordable = tuple(rule for rule in rules.MODELS if rule is rules.MODELS[0] or has_enough_text(rule, text, wishes))
    if any(wishes.setting(1, name) for name in _SIZES) and not named:
        named = rules.MODELS[:1]
    found = []
    for rule in named or affordable:
        try:
            found.append(_candidate(rule.name, rule, text, machine, wishes))
        except ValueError:
            if named or not found:
                raise
            break  # the larger ones do not fit either
    return tuple(found)


def has_enough_text(rule: rules.ModelRule, text: TextFacts, wishes: Wishes) -> bool:
    """Whether the text has tokens enough for the parameters of the model."""
    tokens = text_tokens(text, vocabulary_size(text, rule, wishes))
    return tokens >= rules.TEXT_TOKENS_PER_PARAMETER * layer_parameters(rule.architecture(4096, 512))


def layer_parameters(model: BertConfig) -> int:
    """Parameters of the Transformer layers, without embeddings, biases and norms."""
    return model.num_hidden_layers * (4 * model.hidden_size**2 + 2 * model.hidden_size * model.intermediate_size)


def vocabulary_size(text: TextFacts, rule: rules.ModelRule, wishes: Wishes) -> int:
    """Tokens of the vocabulary: those of the file or flag that was given, otherwise by the words of the text.

    Characters are tokens, at the beginning of words and inside of them; Chinese ones are words, and thousands.
    """
    if wishes.vocab_tokens or wishes.setting(1, "vocab_size"):
        return wishes.vocab_tokens or wishes.setting(1, "vocab_size")
    by_words = [tokens for least, tokens in rules.VOCABULARY_BY_WORDS if text.learnable_words() >= least][-1]
    least = max(4 * min(text.distinct_characters, 1000), 0 if text.has_spaces() else 1.3 * text.distinct_characters)
    sizes = [tokens for _, tokens in rules.VOCABULARY_BY_WORDS]
    for_characters = next((size for size in sizes if size >= least), sizes[-1])
    return max(min(by_words, rule.most_tokens), for_characters)


def text_tokens(text: TextFacts, vocab_size: int) -> float:
    """Estimated tokens of the text."""
    nearest = min(rules.CHARACTERS_PER_TOKEN, key=lambda size: abs(math.log(size / vocab_size)))
    return text.characters / (rules.CHARACTERS_PER_TOKEN[nearest] if text.has_spaces() else 1.2)


def _candidate(
    name: str, rule: rules.ModelRule | None, text: TextFacts, machine: MachineFacts, wishes: Wishes
) -> Candidate:
    device = _device(machine, wishes)
    lengths = _lengths(rule, device, wishes)
    model = _architecture(rule, text, wishes, max(lengths.values()))
    for phase, length in lengths.items():
        if length > model.max_position_embeddings:
            raise ValueError(
                f"max_seq_length={length} of phase {phase} must be at most the {model.max_position_embeddings} "
                f"positions of the model; pass --phase{phase}-max-seq-length {model.max_position_embeddings}"
            )
    precision = PrecisionSettings(amp=wishes.setting(1, "amp", device == "gpu"))
    shares = {phase: wishes.setting(phase, "masked_lm_ratio", MASKED_SHARE) for phase in lengths}
    draft = Candidate(name, rule, model, lengths, precision, device, 1, 1, {}, shares)
    ranks = _ranks(draft, machine, wishes)
    threads = wishes.setting(1, "cpu_threads") or max(1, machine.cores // ranks)
    for phase in lengths:
        _refuse_what_cannot_be_divided(ranks, phase, wishes)
    sized = dataclasses.replace(draft, ranks=ranks, threads=threads if device == "cpu" else 0)
    fits = {phase: _most_sequences(sized, machine, phase) for phase in wishes.phases}
    for phase, most in fits.items():
        _refuse_what_does_not_fit(sized, machine, phase, most, wishes)
    return dataclasses.replace(sized, most_sequences=fits)


def _device(machine: MachineFacts, wishes: Wishes) -> str:
    device = wishes.setting(1, "device", "auto")
    if device == "gpu" and not machine.gpus:
        raise ValueError(f"device=gpu must be a GPU of this machine, which has none{machine.note}; pass --device cpu")
    return ("gpu" if machine.gpus else "cpu") if device == "auto" else device


def _lengths(rule: rules.ModelRule | None, device: str, wishes: Wishes) -> dict[int, int]:
    first, second = rule.lengths if rule is not None else rules.CONTINUED_LENGTHS[device]
    if rule is None and wishes.weights is not None:
        positions = wishes.weights.config.max_position_embeddings
        first, second = min(first, positions), min(second, positions)
    usual = {1: first, 2: second}
    return {phase: wishes.setting(phase, "max_seq_length", usual[phase]) for phase in wishes.phases}


def _architecture(rule: rules.ModelRule | None, text: TextFacts, wishes: Wishes, longest: int) -> BertConfig:
    if rule is None:
        assert wishes.weights is not None
        base = wishes.weights.config
    else:
        base = rule.architecture(vocabulary_size(text, rule, wishes), max(longest, rule.lengths[1]))
    given = {name: value for name in BertConfig.model_fields if (value := wishes.setting(1, name)) is not None}
    if wishes.vocab_tokens is not None:
        given["vocab_size"] = wishes.vocab_tokens
    return BertConfig(**{**base.model_dump(), **given})


def _ranks(candidate: Candidate, machine: MachineFacts, wishes: Wishes) -> int:
    """All GPUs; on a CPU the largest power of two up to the cores, as most operators use one core; fewer if memory is
    short. Raises ValueError for more than there are."""
    available = machine.gpus if candidate.device == "gpu" else machine.cores
    asked = wishes.num_processes
    if asked is not None:
        if candidate.device == "gpu" and asked > available:
            raise ValueError(f"num_gpus={asked} must be at most the {available} GPUs of this machine; lower it")
        return asked
    if candidate.device == "gpu":
        return available
    ranks = 1 << (min(available, rules.MOST_RANKS_ON_CPU).bit_length() - 1)
    while ranks > 1 and any(
        _most_sequences(dataclasses.replace(candidate, ranks=ranks), machine, phase) < rules.LEAST_MICRO_BATCH["cpu"]
        for phase in candidate.lengths
    ):
        ranks //= 2
    return ranks


def rank_bytes(candidate: Candidate, phase: int, sequences: int) -> float:
    """Memory of one rank with a micro-batch of `sequences`."""
    length, device = candidate.lengths[phase], candidate.device
    activations = activation_bytes_per_sequence(
        candidate.model, length, candidate.predictions(phase), candidate.precision, fuse_attention=False
    )
    states = _STATES * _FLOAT32 * candidate.model.num_parameters()
    return rules.FRAMEWORK_BYTES[device] + states + sequences * activations * rules.ACTIVATION_COPIES[device]


def usable_bytes(candidate: Candidate, machine: MachineFacts) -> float:
    """Memory that a rank may take."""
    free = machine.gpu_bytes if candidate.device == "gpu" else machine.memory_bytes / candidate.ranks
    return free * rules.USABLE_MEMORY


def _most_sequences(candidate: Candidate, machine: MachineFacts, phase: int) -> int:
    """The largest power of two of sequences that fits; 0 if not even one does."""
    sequences = rules.MOST_MICRO_BATCH[candidate.device]
    while sequences and rank_bytes(candidate, phase, sequences) > usable_bytes(candidate, machine):
        sequences //= 2
    return sequences


def _refuse_what_cannot_be_divided(ranks: int, phase: int, wishes: Wishes) -> None:
    batch, pass_size = wishes.setting(phase, "global_batch_size"), wishes.setting(phase, "batch_size", 1) * ranks
    if batch and batch % pass_size:
        raise ValueError(
            f"global_batch_size={batch} must be a multiple of batch_size x ranks = {pass_size // ranks} x {ranks}; "
            f"pass --global-batch-size {-(-batch // pass_size) * pass_size}, or other --num-processes"
        )


def _refuse_what_does_not_fit(
    candidate: Candidate, machine: MachineFacts, phase: int, most: int, wishes: Wishes
) -> None:
    asked, room = wishes.setting(phase, "batch_size"), usable_bytes(candidate, machine)
    needed = rank_bytes(candidate, phase, asked or 1)
    if needed <= room:
        return
    sizes = f"needs about {needed / 1e9:.1f} GB on a rank, of which {room / 1e9:.1f} GB are free"
    if most:
        raise ValueError(f"batch_size={asked} of phase {phase} {sizes}; pass --batch-size {most}, or drop it")
    raise ValueError(f"the model {candidate.name} {sizes}; pass a smaller one (--config), or fewer ranks")
