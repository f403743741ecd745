"""ModernBERT (Warner et al., 2024): the parts of the encoder that differ from BERT's.

The names of parameters are BERT's where a parameter does the same. Hugging Face's Wqkv is query, key and value here,
its Wi is `intermediate.dense`, which is activated, and `intermediate.gate`.
"""

from typing import Any

import numpy as np

from bert.config.architecture import FusedKernels
from bert.config.training_settings import BertConfig
from bert.model.attention import gather_tokens
from bert.model.modeling import (
    BertModel,
    BertSelfAttention,
    LayerNorm,
    Linear,
    PredictionHead,
    activation_function,
    dropout_add,
    embedding,
    joined,
    layer_name,
    residual_scale,
)
from bert.runtime.paddle_api import nn, paddle

F = nn.functional


class RotaryPositions:
    """Rotary position embeddings (Su et al., 2021): rotate pairs of query and key values by position.

    Number i of a head is paired with i + head_size / 2. Tables are as large as what they multiply: a product that
    broadcasts takes five times as long on a CPU.

    Args:
        position_ids: int64 [b, s] or [T].
        theta: the base: pair i turns by position x theta^(-2 i / head_size).
    """

    def __init__(self, position_ids, config: BertConfig, theta: float):
        half, heads = config.head_size() // 2, config.num_attention_heads
        frequencies = paddle.assign((theta ** (-np.arange(half) / half)).astype("float32"))
        angles = position_ids.astype("float32").unsqueeze(-1) * frequencies  # [..., half]
        leading = [0] * len(position_ids.shape)
        once = [1] * len(position_ids.shape)
        cosines, sines = paddle.cos(angles), paddle.sin(angles)
        signed = paddle.concat([-sines, sines], axis=-1)  # [..., head_size]
        shape = [*leading, heads, 2 * half]
        # Mixed precision casts what is assigned; queries and keys would follow tables of float32.
        self._cosines = paddle.assign(paddle.tile(cosines, [*once, 2 * heads]).reshape(shape))
        self._sines = paddle.assign(paddle.tile(signed, [*once, heads]).reshape(shape))
        self._half = half

    def turn(self, x):
        """Rotate [..., heads, head_size], keeping the shape: (x1 cos - x2 sin, x2 cos + x1 sin)."""
        return x * self._cosines + paddle.roll(x, self._half, axis=-1) * self._sines


class ModernBertEmbeddings(nn.Layer):
    """Word embeddings, LayerNorm, dropout. Positions are in attention, and there are no token types."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.word_embeddings = embedding(config, config.padded_vocab_size(), "word_embeddings")
        self.LayerNorm = LayerNorm(config, "bert.embeddings.LayerNorm")
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, input_ids):
        """Embed token ids: int64 [b, s] or [T] -> float [..., hidden]."""
        return F.dropout(self.LayerNorm(self.word_embeddings(input_ids)), self.dropout_prob, training=self.training)


class ModernBertSelfAttention(BertSelfAttention):
    """Attention with rotary positions, to all tokens or within a window."""

    def forward(self, hidden, sequences, positions: RotaryPositions, window: int | None):  # type: ignore[override]
        """Attention output of hidden states [b, s, hidden] or [T, hidden], with the same shape."""
        projected = self._project(hidden)
        query, key, value = paddle.unbind(projected, axis=-3) if self.fuse_mha else projected  # [..., heads, size]
        parts = [positions.turn(query), positions.turn(key), value]
        if sequences.heads_first:
            parts = [part.transpose([0, 2, 1, 3]) for part in parts]
        return self._merged(sequences.attend(*parts, self.dropout_prob, self.training, window), sequences)


class ModernBertLayer(nn.Layer):
    """Pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x)); the first has no norm before attention.

    Feed-forward is GeGLU (Shazeer, 2020): (gelu(x @ dense) * (x @ gate)) @ output.
    """

    def __init__(self, config: BertConfig, index: int, fuse_mha: bool, kernels: FusedKernels):
        super().__init__()
        hidden, inner, name = config.hidden_size, config.intermediate_size, layer_name(index)
        scale = residual_scale(config)
        self.attention_norm = LayerNorm(config, f"{name}.attention.LayerNorm") if index else None
        self.attention = ModernBertSelfAttention(config, f"{name}.attention.self", fuse_mha, kernels)
        self.attention_output = Linear(config, hidden, hidden, f"{name}.attention.output.dense", kernels, scale=scale)
        self.feed_forward_norm = LayerNorm(config, f"{name}.intermediate.LayerNorm")
        self.intermediate = Linear(config, hidden, inner, f"{name}.intermediate.dense", kernels)
        self.gate = Linear(config, hidden, inner, f"{name}.intermediate.gate", kernels)
        self.output = Linear(config, inner, hidden, f"{name}.output.dense", kernels, scale=scale)
        self.activation = activation_function(config.hidden_act)
        self.window = config.local_attention if config.attends_locally(index) else None
        self.dropout_prob, self.attention_dropout_prob = config.hidden_dropout_prob, config.attention_probs_dropout_prob
        self._kernels = kernels

    def forward(self, hidden, sequences, positions: RotaryPositions, rows=None):
        """Hidden states after this layer; arguments and result as in `BertLayer`."""
        normalised = hidden if self.attention_norm is None else self.attention_norm(hidden)
        context = self.attention(normalised, sequences, positions, self.window)
        if rows is not None:
            context, hidden = gather_tokens(context, rows), gather_tokens(hidden, rows)
        attended = self.attention_output(context)
        hidden = dropout_add(attended, hidden, self.attention_dropout_prob, self.training, self._kernels)
        normalised = self.feed_forward_norm(hidden)
        gated = self.activation(self.intermediate(normalised)) * self.gate(normalised)  # [..., intermediate]
        return hidden + self.output(F.dropout(gated, self.dropout_prob, training=self.training))


class ModernBertModel(BertModel):
    """Embeddings, layers, a final norm and, with `with_pooler`, the prediction head over the first token."""

    parts = (ModernBertEmbeddings, ModernBertLayer)

    def __init__(self, config: BertConfig, *, with_pooler: bool = True, **settings: Any):
        super().__init__(config, with_pooler=False, **settings)
        self.final_norm = LayerNorm(config, "bert.encoder.LayerNorm")
        self.pooler = PredictionHead(config, self._kernels) if with_pooler else None

    def _encode(self, input_ids, token_type_ids, sequences, wanted=()):
        config = self._config
        position_ids = sequences.position_ids if sequences.position_ids is not None else sequences.count_positions()
        thetas = [
            config.local_rope_theta if config.uses_local_positions(index) else config.global_rope_theta
            for index in range(config.num_hidden_layers)
        ]
        positions = {theta: RotaryPositions(position_ids, config, theta) for theta in dict.fromkeys(thetas)}
        hidden = self.embeddings(input_ids)
        for theta, layer in zip(thetas[:-1], self.encoder[:-1], strict=True):
            hidden = layer(hidden, sequences, positions[theta])
        return self.final_norm(self.encoder[-1](hidden, sequences, positions[thetas[-1]], joined(wanted)))

    def at(self, input_ids, token_type_ids, sequences, positions=None):
        """As in `BertModel`; a classifier, which selects no tokens, gets the pooled mean if so configured."""
        if self._config.classifier_pooling == "cls" or positions is not None or self.pooler is None:
            return super().at(input_ids, token_type_ids, sequences, positions)
        sequences = self.layout(sequences)
        return None, self.pooler(sequences.means(self._encode(input_ids, token_type_ids, sequences)))

    def _pooled(self, first):
        assert self.pooler is not None
        return self.pooler(first)
