"""Initial weights with which attention looks at the neighbours of a token before anything is learned.

From random ones a small model learns how frequent words are, and stays there until it has found that a word's
neighbours tell most about it. Here queries and keys of the first layers have a part that depends on nothing but the
position, so that a head's scores are largest for the token before, or after. All of it can be unlearned. Its value:
"Initial attention" in bert/own_text/MEASUREMENTS.md; the idea of drawing weights that act like trained ones is of
Trockman & Kolter (2023).
"""

import math

import numpy as np

from bert.config.architecture import BertConfig
from bert.model.modeling import layer_name
from bert.runtime.paddle_api import read_variable, write_variable

_LAYERS = 2  # the first; of larger models nothing else was measured
_HEIGHT = 7.2  # of the scores at the offset, above those of tokens far away


def attend_to_neighbours(config: BertConfig, scope, place) -> None:
    """Add to the random weights of a ModernBERT what makes heads attend to the tokens before and after, in turn.

    Half of every word embedding, by its square, becomes a direction that all have in common: queries and keys that are
    read from it are the same everywhere, and rotary positions turn them apart. The tied decoder adds one number to all
    logits for it, which changes no probability.
    """

    def add(name: str, part: np.ndarray) -> None:
        value = read_variable(scope, name)
        write_variable(scope, name, value + part.astype(value.dtype), place)

    hidden, size = config.hidden_size, config.head_size()
    words = "bert.embeddings.word_embeddings.weight"
    common = np.resize([1.0, -1.0], hidden)  # its mean is 0, which LayerNorm would take away
    add(words, read_variable(scope, words).std() * common)
    read = common / hidden * math.sqrt(2)  # times a normalised embedding: 1
    turned = max(1, size // 8)  # pairs of a head, the fastest
    for layer in range(min(_LAYERS, config.num_hidden_layers)):
        theta = config.local_rope_theta if config.uses_local_positions(layer) else config.global_rope_theta
        speeds = theta ** (-2 * np.arange(turned) / size)
        length = math.sqrt(_HEIGHT * math.sqrt(size) / turned)
        queries, keys = (np.zeros([config.num_attention_heads, 2, size // 2]) for _ in range(2))
        for head, query in enumerate(queries):
            angles = speeds * (1 if head % 2 else -1)
            query[:, :turned] = length * np.array([np.cos(angles), np.sin(angles)])
        keys[:, 0, :turned] = length
        for part, values in (("query", queries), ("key", keys)):
            add(f"{layer_name(layer)}.attention.self.{part}.weight", np.outer(read, values))
