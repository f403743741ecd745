"""Constants of the planning rules for the user's text, each with its source. `rules.py` applies them.

"anchor" marks a value that a shipped or published recipe has; the table of what was measured between the anchors
stands in tests/research/your_text.md.
"""

import dataclasses

from bert.config.architecture import BUILT_IN_MODELS, BertConfig


@dataclasses.dataclass(frozen=True)
class ModelRule:
    """A model for the user's text, and the recipe for its size.

    Attributes:
        built_in: its name among the built-in models, which gives the sizes.
        rate: LAMB's peak learning rate with `batch_tokens` tokens an update; others scale it by the square root.
        length: longest sequences of the training, in tokens.
        most_tokens: largest vocabulary that is chosen for it.
        dropout: None: by the number of epochs; otherwise always this.
        adamw_share: of AdamW's rate for its width, of a ModernBERT; None: nothing was measured, it has LAMB.
        source: of rate and batch.
    """

    name: str
    built_in: str
    rate: float
    batch_tokens: int
    length: int
    most_tokens: int
    dropout: float | None
    source: str
    adamw_share: float | None = None

    def architecture(self, vocab_size: int, max_positions: int) -> BertConfig:
        """Sizes of the model; small ones get the quickstart's activation and a wider initialisation."""
        sizes = BUILT_IN_MODELS[self.built_in]
        changes: dict[str, object] = {"vocab_size": vocab_size, "max_position_embeddings": max_positions}
        if self.dropout is None:
            spread = round(0.05 * (128 / sizes.hidden_size) ** 0.5, 4)
            changes |= {"hidden_act": "gelu_tanh", "initializer_range": spread}
        return BertConfig.model_validate({**sizes.model_dump(), **changes})


_QUICKSTART_SOURCE, _BETWEEN_SOURCE = "the quickstart's recipe", "between the quickstart and LAMB's table"
_LAMB_SOURCE = "LAMB's table for BERT-large, 5e-3 at 32,768 (You et al., 2020)"

_FILLED = 0.77  # of the length of pairs that are nearly all long, as those recipes have; measured with 64 and 128
SHORT_BATCH = round(32 * 64 * _FILLED)  # tokens of an update; not fewer for a short training

# From the smallest to the largest. mini and small: between the quickstart and the published recipe, by width.
MODELS: tuple[ModelRule, ...] = (
    ModelRule("quickstart", "bert-quickstart", 6e-3, SHORT_BATCH, 128, 8_192, None, _QUICKSTART_SOURCE, 1.0),
    ModelRule("quickstart-deep", "bert-quickstart-deep", 6e-3, SHORT_BATCH, 128, 8_192, None, _BETWEEN_SOURCE, 0.7),
    ModelRule("mini", "bert-mini", 4e-3, round(64 * 128 * _FILLED), 256, 16_384, None, _BETWEEN_SOURCE, 1.0),
    ModelRule("small", "bert-small", 3e-3, round(128 * 128 * _FILLED), 512, 30_528, None, _BETWEEN_SOURCE),
    ModelRule("base", "bert-base-uncased", 5e-3, round(32_768 * 128 * _FILLED), 512, 30_528, 0.1, _LAMB_SOURCE),
    ModelRule("large", "bert-large-uncased", 5e-3, round(32_768 * 128 * _FILLED), 512, 30_528, 0.1, _LAMB_SOURCE),
)
MODEL_NAMES = tuple(rule.name for rule in MODELS)

# (least words of text, tokens). anchor: 4,096 for the quickstart's 0.8 million words, 30,522 for BERT's 3.3 billion.
VOCABULARY_BY_WORDS: tuple[tuple[float, int], ...] = (
    (0, 2_048),
    (3e5, 4_096),
    (3e6, 8_192),
    (2e7, 16_384),
    (1e8, 30_528),
)
CHARACTERS_PER_TOKEN = {2_048: 4.0, 4_096: 4.5, 8_192: 4.8, 16_384: 5.1, 30_528: 5.3}  # English, measured to 4,096
# Lengths are mixed from the first update, so that all positions are trained and short texts are known too: this share
# of the samples has a random length up to the longest, the rest the longest. Measured: tests/research/your_text.md.
SHORT_SHARE = 1.0
# Of the longest length, means of such samples of 128: all tokens, and those of the text itself, which exclude special
# tokens, what is cut from long pairs, and random next sentences.
FILLED_BY_A_SAMPLE, USED_BY_A_SAMPLE = 0.59, 0.444

# Of models with random weights, on the same sentence pairs: next sentences are not learned. Measured: the table in
# tests/research/your_text.md. Weights that are given keep BERT's objective, and with it their pooler.
OBJECTIVE, MASKED_SHARE = "mlm", 0.25
# The block on CPUs; measured: "ModernBERT's block" in tests/research/pretraining.md. Nobody has run it on a GPU.
CPU_MODEL_TYPE = "modernbert"
# The three smallest models have AdamW with that block; larger ones, of which nothing was measured, LAMB. AdamW's rate
# with so many tokens an update at width 128, otherwise inversely by the width; its batch, times LAMB's. Measured, as is
# how this block begins: "Optimizer" in tests/research/your_text.md.
ADAMW_RATE, ADAMW_BATCH_TOKENS, ADAMW_BATCH = 3e-3, round(16 * 128 * FILLED_BY_A_SAMPLE), 0.5
# The rate grows with the batch to 32 such sequences. Four layers at 1.4 times that are worse for labels, though their
# masked words are better: "Depth" in tests/research/finetuning.md.
MOST_ADAMW_GROWTH = 2**0.5

# Tokens that training reads for each parameter of the layers: 20 balances size and time (Hoffmann et al., 2022).
# anchor: the quickstart's first recipe read 19; today's reads 33. Four layers that read 9 guess masked words better
# on two texts of four, and are worse for labels: "Depth" in tests/research/finetuning.md.
TOKENS_PER_PARAMETER = 20.0
# Tokens of text for each of those parameters: with fewer, EPOCHS do not bring enough; a rule of thumb.
TEXT_TOKENS_PER_PARAMETER = 0.4
EPOCHS = 40.0  # most passes over the text that still pay; BERT made about 40 (Devlin et al., 2019)
LITTLE_TEXT = 100_000  # tokens; below it no loss can be expected (tests/research/your_text.md)
DROPOUT_FROM_EPOCHS = 20.0  # below it dropout only slows small models down; anchor: the quickstart has none
DROPOUT = 0.1  # Devlin et al., 2019
DROPOUT_COST = 1.16  # times the time of an update of a small model on a CPU; measured for the quickstart

# Warm-up, then a stable rate, then a decay in the last share of the time.
DECAY_SHARE = 0.15
MOST_UPDATES = 20  # times the updates that are expected; a machine may be far faster than when it was measured
# anchor: 64 sequences of 64 for the 160,000 sequences of the quickstart. The batch grows with the root of the tokens
# that are read: half of a longer training goes into larger batches, half into more updates.
BATCH_ANCHOR, TOKENS_ANCHOR = 64 * 64 * _FILLED, 160_000 * 64 * _FILLED
LEAST_BATCH = 16
LARGEST_BATCH = 65_536  # You et al., 2020
LEAST_MICRO_BATCH = {"cpu": 4, "gpu": 32}  # sequences a rank; below it a device is mostly waiting
MOST_MICRO_BATCH = {"cpu": 32, "gpu": 512}
WARMUP = 0.1  # anchor: the quickstart
WARMUP_LARGE_BATCH, WARMUP_OF_LARGE_BATCHES = 8_192, 0.2843  # anchor: the published recipe (65,536 sequences)
MOST_RATE = 1e-2  # whatever the batch

# Continued pre-training: AdamW with 1e-4 at 256 sequences (Gururangan et al., 2020, task-adaptive), by the root of the
# batch 5e-5 at 64, which is BERT's fine-tuning range. A new masked-LM head needs ten times as much; the
# encoder behind it forgets with 5e-4: "MiniLM adapted" in tests/research/finetuning.md.
CONTINUED_RATE, CONTINUED_BATCH_TOKENS = 1e-4, round(256 * 128 * _FILLED)
NEW_HEAD_RATE, RATE_BELOW_A_NEW_HEAD = 1e-3, 1e-4  # whatever the batch
CONTINUED_LENGTH = {"cpu": 256, "gpu": 512}

DUPLICATE_FACTOR = 5  # sentence pairs made of each document; anchor: the quickstart, which memorises them with fewer
LARGEST_DUPLICATED_TEXT = 200e6  # bytes; more text than this is used once

HELD_OUT_BYTES = 250e3  # about 60,000 tokens, 9,000 of them masked; anchor: the quickstart
LARGEST_HELD_OUT, SMALLEST_HELD_OUT = 0.1, 0.005  # share of the text
LEAST_MASKED_TOKENS = 600  # below it the held-out loss is uncertain by more than 0.1 nats
NATS_OF_ONE_TOKEN = 2.5  # standard deviation of a masked token's loss, as measured with the quickstart

LEAST_WORDS = 2_000  # with fewer there is neither a vocabulary nor a held-out part
MOST_HOURS = 8.0  # without --hours: what EPOCHS take, at most this

MOST_RANKS_ON_CPU = 16
FLOPS_OF_A_SECOND = 0.2e12  # of a core

MOST_SLOWNESS = 4.0  # of the machine, that some seconds can show: other work may end
# Seconds beside the updates, times the slowness of the machine; the steps are set from the time that is really left.
# START: of the ranks. FIRST_STEP: of that until the ranks that measure the speed begin, on an idle machine: a rank on a
# CPU 1.4 to 1.6 in six starts, two ranks, which Paddle's launcher starts, 6.0 to 8.7 in six (two cores of an EPYC).
START_SECONDS = {"cpu": 4.5, "gpu": 12.0}
FIRST_STEP_SECONDS = {"cpu": 1.8, "gpu": 8.0}
LAUNCHER_SECONDS = {"cpu": 5.0, "gpu": 0.0}  # more of several ranks
END_SECONDS = 10.0  # end of the ranks, picture, table, and what the model can do
MOST_ENDS = 7 * END_SECONDS  # seconds of all for each END_SECONDS of the end, at least
MOST_FASTER = 3.0  # than it is estimated a machine may be: models that are too slow even then are not measured
PROBE_TIMEOUT_SECONDS = 600  # of all; a GPU's first program may take minutes to load
EVALUATIONS = 20
EVALUATED_SEQUENCES = {"cpu": 1_000, "gpu": 2_048}  # in each, if the text has so many
# Evaluations without a lower held-out loss that end the training, and the share of the updates before which none
# counts. On 90 kB the loss rose with the rate after the first evaluation and fell below it from a quarter on.
EARLY_STOPPING, EARLY_STOPPING_FROM = 5, 0.25
EVALUATION_COST = 0.4  # time of an evaluated sequence, as a share of a trained one's

# Of text that a plan only assumes (--words): English prose, with the space after a word, in articles of Wikipedia.
CHARACTERS_OF_A_WORD, WORDS_OF_A_DOCUMENT = 6, 500
CORES_OF_A_GPU, MEMORY_OF_A_CORE = 8, 4 << 30  # of a machine that a plan only names
