"""Initial weights with which attention looks at neighbouring tokens before training.

From random ones a small model learns how frequent words are, and stays there until it has found that a word's
neighbours tell most about it. Here queries and keys of the first layers have a part that depends on nothing but the
position, so that a head's scores are largest for the token before, or after. All of it can be unlearned. Its value:
your_text.md (ModernBERT) and pretraining.md (BERT) in tests/research. The idea of drawing weights that act like trained
ones is of Trockman & Kolter (2023).
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from bert.config.architecture import BertConfig
from bert.model.modeling import layer_name
from bert.runtime.paddle_api import read_variable, write_variable

_LAYERS = 2  # the first; of larger models nothing else was measured
_HEIGHT = 7.2  # of the scores at the offset, above the scores of distant tokens
_SINUSOIDS, _KEPT = 0.7, 0.2  # of a BERT's positions: their length beside the rest's, and the share of random ones left


def attend_to_neighbours(config: BertConfig, scope, place) -> None:
    """Change random weights so that heads attend to the previous and the next token, in turn."""

    def add(name: str, part: np.ndarray) -> None:
        value = read_variable(scope, name)
        write_variable(scope, name, value + part.astype(value.dtype), place)

    heads, size = config.num_attention_heads, config.head_size()
    turned = max(1, size // 8)  # pairs of a head, the fastest
    length = math.sqrt(_HEIGHT * math.sqrt(size) / turned)
    offsets = np.array([1 if head % 2 else -1 for head in range(heads)])[:, None]
    name = f"bert.embeddings.{'word' if config.is_modern() else 'position'}_embeddings.weight"
    change, read = (_common_part if config.is_modern() else _sinusoids)(config, turned, partial(read_variable, scope))
    add(name, change)
    for layer in range(min(_LAYERS, config.num_hidden_layers)):
        angles = offsets * _speeds(config, layer, turned)
        queries = length * np.cos(angles) + 1j * length * np.sin(angles)  # of heads, pairs as complex numbers
        for part, values in (("query", queries), ("key", np.full_like(queries, length))):
            pairs, weight, half = read[:, None] * values, np.zeros([config.hidden_size, heads, size]), size // 2
            weight[..., :turned], weight[..., half : half + turned] = pairs.real, pairs.imag
            add(f"{layer_name(layer)}.attention.self.{part}.weight", weight.reshape([config.hidden_size, -1]))


def _speeds(config: BertConfig, layer: int, turned: int) -> np.ndarray:
    """Angles in radians by which the first pairs turn from one token to the next."""
    theta = config.local_rope_theta if config.uses_local_positions(layer) else config.global_rope_theta
    return theta ** (-2 * np.arange(turned) / config.head_size())


def _common_part(config: BertConfig, turned: int, value_of: Callable) -> tuple[np.ndarray, np.ndarray]:
    """For a ModernBERT: a constant part of the word embeddings, and weights that read it as 1 after LayerNorm.

    Half of every word embedding, by its square, becomes a direction that all have in common: queries and keys that are
    read from it are the same everywhere, and rotary positions turn them apart. The tied decoder adds one number to all
    logits for it, which changes no probability.
    """
    common = np.resize([1.0, -1.0], config.hidden_size)  # its mean is 0, which LayerNorm would take away
    read = common / config.hidden_size * math.sqrt(2)
    return value_of("bert.embeddings.word_embeddings.weight").std() * common, read[:, None]


def _sinusoids(config: BertConfig, turned: int, value_of: Callable) -> tuple[np.ndarray, np.ndarray]:
    """For a BERT: sinusoids added to positions (Vaswani et al., 2017), and complex weights that read them.

    The random part of the positions is noise for heads that read words, and is mostly removed.
    """
    words, positions = (value_of(f"bert.embeddings.{kind}_embeddings.weight") for kind in ("word", "position"))
    hidden = config.hidden_size
    axes = np.kron(np.eye(2 * turned), [[1.0], [-1.0]]) / math.sqrt(2)  # orthonormal, each of mean 0
    axes = np.pad(axes, ((0, hidden - len(axes)), (0, 0)))
    angles = np.arange(len(positions))[:, None] * _speeds(config, 0, turned)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / math.sqrt(turned)
    rest = math.sqrt(hidden * (words.var() + _KEPT**2 * positions.var()))
    read = axes * math.sqrt(turned * (1 + _SINUSOIDS**2) / hidden) / _SINUSOIDS
    return _SINUSOIDS * rest * waves @ axes.T - (1 - _KEPT) * positions, read[:, :turned] + 1j * read[:, turned:]
