"""BERT (Devlin et al., 2019) as `paddle.nn` layers, for static graphs and dygraph.

Every parameter has an explicit name, as in Hugging Face (`bert.encoder.layer.0.attention.self.query.weight`): programs
share weights through the scope, and checkpoints do not depend on names that Paddle generates. Weight matrices of linear
layers are [in, out], as in Paddle.
"""

from bert.config.architecture import FusedKernels
from bert.config.training_settings import BertConfig
from bert.model.attention import PackedSequences, PaddedSequences, gather_tokens
from bert.runtime.paddle_api import core, nn, paddle, truncated_normal

F = nn.functional
PLAIN = FusedKernels()


def activation_function(name: str):
    """The activation `gelu` (exact), `gelu_tanh` (its approximation, cheaper on CPU) or `relu`."""
    functions = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate=True), "relu": F.relu}
    return functions[name]


class Linear(nn.Linear):
    """Linear layer x @ weight + bias; without a bias in a ModernBERT, unless `biased`.

    On CPU the bias is added as ones @ bias, so that its gradient is a matrix product: Paddle's reduction over rows took
    a third of a training step of the small recipes (2,048 x 256: 4.0 ms against 1.9). Without gradients it is added as
    it is, which Paddle Inference makes one operator of with the product, in bfloat16 and INT8 too.
    """

    def __init__(
        self,
        config: BertConfig,
        num_in: int,
        num_out: int,
        name: str,
        kernels: FusedKernels = PLAIN,
        *,
        biased: bool = False,
        scale: float = 1.0,
    ):
        biased = biased or not config.is_modern()
        bias = zeros(f"{name}.bias") if biased else False
        super().__init__(num_in, num_out, normal(config, f"{name}.weight", scale), bias)
        self._kernels = kernels

    def forward(self, x):
        if not self.training and not self._kernels.linear and self.bias is not None:
            return paddle.matmul(x, self.weight) + self.bias
        return linear(x, self.weight, self.bias, self._kernels)


def linear(x, weight, bias, kernels: FusedKernels, *, transpose_weight: bool = False):
    """Linear map x [..., in] @ weight [in, out] (or transposed) + bias [out]; fused if cuBLASLt supports the sizes."""
    if kernels.linear and not any(size % 8 for size in weight.shape):
        return paddle.incubate.nn.functional.fused_matmul_bias(x, weight, bias, transpose_y=transpose_weight)
    product = paddle.matmul(x, weight, transpose_y=transpose_weight)
    return product if bias is None else add_bias(product, bias, rows=x)


def dropout_add(x, residual, prob: float, training: bool, kernels: FusedKernels):
    """Compute residual + dropout(x), both of one shape."""
    if kernels.dropout_add and training and prob > 0:
        return paddle.incubate.nn.functional.fused_dropout_add(x, residual, prob, training=True)
    return residual + F.dropout(x, prob, training=training)


def add_bias(x, bias, rows=None):
    """Add bias [n] to x [..., n].

    Args:
        rows: [..., any], of which the shape is read; default: x.
    """
    if core.is_compiled_with_cuda():
        return x + bias
    ones = paddle.ones_like((x if rows is None else rows)[..., :1])
    ones.stop_gradient = True
    return x + paddle.matmul(ones, bias.unsqueeze(0))


def normal(config: BertConfig, name: str, scale: float = 1.0) -> paddle.ParamAttr:
    return paddle.ParamAttr(name=name, initializer=truncated_normal(config.initializer_range * scale))


def zeros(name: str) -> paddle.ParamAttr:
    return paddle.ParamAttr(name=name, initializer=nn.initializer.Constant(0.0))


class LayerNorm(nn.LayerNorm):
    """Layer normalisation (Ba et al., 2016); without a bias in a ModernBERT."""

    def __init__(self, config: BertConfig, name: str):
        ones = paddle.ParamAttr(name=f"{name}.weight", initializer=nn.initializer.Constant(1.0))
        bias = False if config.is_modern() else zeros(f"{name}.bias")
        super().__init__(config.hidden_size, config.layer_norm_eps, weight_attr=ones, bias_attr=bias)

    def forward(self, x):
        if self.bias is not None:
            return super().forward(x)
        no_bias = paddle.zeros(self.weight.shape, "float32")  # oneDNN's kernel ignores a weight without a bias
        return F.layer_norm(x, self._normalized_shape, self.weight, no_bias, self._epsilon)


class PredictionHead(nn.Layer):
    """Dense layer, activation and LayerNorm before the masked-LM decoder; a ModernBERT uses it in classifiers too."""

    def __init__(self, config: BertConfig, kernels: FusedKernels):
        super().__init__()
        hidden, name = config.hidden_size, "cls.predictions.transform"
        self.dense = Linear(config, hidden, hidden, f"{name}.dense", kernels, scale=residual_scale(config))
        self.norm = LayerNorm(config, f"{name}.LayerNorm")
        self.activation = activation_function(config.hidden_act)

    def forward(self, states):
        """Transform hidden states, [n, hidden] -> [n, hidden]."""
        return self.norm(self.activation(self.dense(states)))


def residual_scale(config: BertConfig) -> float:
    """Scale of the initial weights before a residual sum; below 1 in a ModernBERT, whose sums are not normalised."""
    return (2 * config.num_hidden_layers) ** -0.5 if config.is_modern() else 1.0


def embedding(config: BertConfig, num_rows: int, kind: str) -> nn.Embedding:
    return nn.Embedding(num_rows, config.hidden_size, weight_attr=normal(config, f"bert.embeddings.{kind}.weight"))


class BertEmbeddings(nn.Layer):
    """Word, position and token-type embeddings, LayerNorm, dropout."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.word_embeddings = embedding(config, config.padded_vocab_size(), "word_embeddings")
        self.position_embeddings = embedding(config, config.max_position_embeddings, "position_embeddings")
        self.token_type_embeddings = embedding(config, config.num_token_types(), "token_type_embeddings")
        self.LayerNorm = LayerNorm(config, "bert.embeddings.LayerNorm")
        self.dropout_prob, self._has_types = config.hidden_dropout_prob, config.has_token_types()

    def forward(self, input_ids, token_type_ids, position_ids=None):
        """Embed int64 [b, s] ids and types -> float [b, s, hidden]; packed, with position ids: [T] -> [T, hidden]."""
        if not self._has_types:
            token_type_ids = paddle.zeros_like(input_ids)
        if position_ids is not None:
            positions = self.position_embeddings(position_ids)
            return self._finish(
                self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids) + positions
            )
        # Positions are the same for every sequence: a slice of the table, whose gradient is cheaper than a lookup's.
        length = paddle.shape(input_ids)[1]
        positions = self.position_embeddings.weight[:length].reshape([-1])  # [s * hidden]
        embedded = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        hidden = embedded.shape[-1]
        return self._finish(add_bias(embedded.reshape([0, -1]), positions).reshape([0, length, hidden]))

    def _finish(self, embedded):
        return F.dropout(self.LayerNorm(embedded), self.dropout_prob, training=self.training)


class BertSelfAttention(nn.Layer):
    """Scaled dot-product attention with separate query, key and value parameters.

    With `fuse_mha` the three projections are one GEMM over the concatenated weights. Parameters and results are the
    same, so checkpoints and optimizer state do not depend on it.
    """

    def __init__(self, config: BertConfig, name: str, fuse_mha: bool, kernels: FusedKernels):
        super().__init__()
        hidden = config.hidden_size
        self.query, self.key, self.value = (
            Linear(config, hidden, hidden, f"{name}.{part}", kernels) for part in ("query", "key", "value")
        )
        self.num_heads = config.num_attention_heads
        self.head_size = hidden // config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.fuse_mha, self._kernels = fuse_mha, kernels

    def _project(self, hidden):
        """Query, key and value of [..., hidden]: each [..., heads, head_size], or one fused [..., 3, heads, size]."""
        leading = [0] * (len(hidden.shape) - 1)
        parts = (self.query, self.key, self.value)
        if not self.fuse_mha:
            return [part(hidden).reshape([*leading, self.num_heads, self.head_size]) for part in parts]
        weight = paddle.concat([part.weight for part in parts], axis=1)
        bias = None if self.query.bias is None else paddle.concat([part.bias for part in parts])
        return linear(hidden, weight, bias, self._kernels).reshape([*leading, 3, self.num_heads, self.head_size])

    def _heads_first(self, projected):
        """Query, key and value, each [b, heads, s, head_size]."""
        if not self.fuse_mha:
            return [part.transpose([0, 2, 1, 3]) for part in projected]
        return paddle.unbind(projected.transpose([2, 0, 3, 1, 4]), axis=0)

    def forward(self, hidden, sequences):
        """Attention output of hidden states [b, s, hidden] or [T, hidden], with the same shape."""
        projected = self._project(hidden)
        if sequences.heads_first:
            query, key, value = self._heads_first(projected)
        else:
            query, key, value = paddle.unbind(projected, axis=-3) if self.fuse_mha else projected
        context = sequences.attend(query, key, value, self.dropout_prob, self.training)
        return self._merged(context, sequences)

    def _merged(self, context, sequences):
        """Concatenate the heads: [..., heads, head_size] -> [..., hidden]."""
        leading = [0, 0] if isinstance(sequences, PaddedSequences) else [-1]
        return context.reshape([*leading, self.num_heads * self.head_size])


def layer_name(index: int) -> str:
    return f"bert.encoder.layer.{index}"


class BertLayer(nn.Layer):
    """One encoder layer: attention and feed-forward, each with dropout, residual and LayerNorm after (post-LN)."""

    def __init__(self, config: BertConfig, index: int, fuse_mha: bool, kernels: FusedKernels):
        super().__init__()
        hidden, intermediate, name = config.hidden_size, config.intermediate_size, layer_name(index)
        self.attention = BertSelfAttention(config, f"{name}.attention.self", fuse_mha, kernels)
        self.attention_output = Linear(config, hidden, hidden, f"{name}.attention.output.dense", kernels)
        self.attention_norm = LayerNorm(config, f"{name}.attention.output.LayerNorm")
        self.intermediate = Linear(config, hidden, intermediate, f"{name}.intermediate.dense", kernels)
        self.output = Linear(config, intermediate, hidden, f"{name}.output.dense", kernels)
        self.output_norm = LayerNorm(config, f"{name}.output.LayerNorm")
        self.activation = activation_function(config.hidden_act)
        self.dropout_prob, self._kernels = config.hidden_dropout_prob, kernels

    def forward(self, hidden, sequences, rows=None):
        """Hidden states after this layer.

        Args:
            hidden: [b, s, hidden] or [T, hidden], in the layout of `sequences`.
            rows: int64 [n], flat indices of the tokens that are wanted; None: all.
        Returns:
            [n, hidden]; without `rows` the shape of `hidden`.
        """
        context = self.attention(hidden, sequences)
        if rows is not None:
            context, hidden = gather_tokens(context, rows), gather_tokens(hidden, rows)
        attended = self.attention_output(context)
        hidden = self.attention_norm(self._residual(attended, hidden))
        expanded = self.output(self.activation(self.intermediate(hidden)))
        return self.output_norm(self._residual(expanded, hidden))

    def _residual(self, x, residual):
        return dropout_add(x, residual, self.dropout_prob, self.training, self._kernels)


def joined(rows):
    """Concatenate lists of row numbers; None if there are none."""
    if not rows:
        return None
    return paddle.concat(rows) if len(rows) > 1 else rows[0]


class BertModel(nn.Layer):
    """Embeddings, encoder and, with `with_pooler`, the tanh pooler over the first token."""

    parts: tuple[type, type] = (BertEmbeddings, BertLayer)

    def __init__(
        self, config: BertConfig, *, fuse_mha: bool = False, with_pooler: bool = True, kernels: FusedKernels = PLAIN
    ):
        super().__init__()
        if kernels.unpad and not kernels.attention:  # gathers rows of each by itself; three products are as fast on CPU
            fuse_mha = False
        self._config, self._kernels = config, kernels
        embeddings, layer = self.parts
        self.embeddings = embeddings(config)
        indices = range(config.num_hidden_layers)
        self.encoder = nn.LayerList([layer(config, index, fuse_mha, kernels) for index in indices])
        hidden = config.hidden_size
        self.pooler = Linear(config, hidden, hidden, "bert.pooler.dense", kernels) if with_pooler else None

    def forward(self, input_ids, token_type_ids, sequences):
        """Hidden states of all tokens, and the pooled first token of each sequence.

        Args:
            input_ids, token_type_ids: int64 [b, s], or [T] if packed.
            sequences: the attention mask, int64 [b, s], 1 = real token; or the layout of packed tokens.
        Returns:
            (last_hidden_state [b, s, hidden] or [T, hidden], pooler_output [b, hidden] or None)
        """
        sequences = self.layout(sequences)
        hidden = self._encode(input_ids, token_type_ids, sequences)
        return hidden, self._pooled(sequences.first_tokens(hidden)) if self.pooler is not None else None

    def at(self, input_ids, token_type_ids, sequences, positions=None):
        """Hidden states of selected tokens, and the pooled first token of each sequence.

        The last layer does nothing for other tokens after its attention. In pre-training that spares three fifths of
        its work, in the classification of texts nearly three quarters.

        Args:
            positions: int64 [n], flat indices into b * s, or into T if packed; None: none.
        Returns:
            (float [n, hidden] or None, pooler_output [b, hidden] or None)
        """
        sequences = self.layout(sequences)
        firsts = sequences.first_rows() if self.pooler is not None else None
        wanted = [rows for rows in (firsts, positions) if rows is not None]
        hidden = self._encode(input_ids, token_type_ids, sequences, wanted)
        if firsts is None:
            return hidden, None
        number = paddle.shape(firsts)[0]
        return None if positions is None else hidden[number:], self._pooled(hidden[:number])

    def _encode(self, input_ids, token_type_ids, sequences, wanted=()):
        """Last hidden states of the rows in each list of `wanted`, concatenated; of all tokens without lists."""
        hidden = self.embeddings(input_ids, token_type_ids, sequences.position_ids)
        for layer in self.encoder[:-1]:
            hidden = layer(hidden, sequences)
        return self.encoder[-1](hidden, sequences, joined(wanted))

    def _pooled(self, first):
        assert self.pooler is not None
        return paddle.tanh(self.pooler(first))

    def layout(self, sequences):
        """The token layout: `sequences` itself if it is one, otherwise the layout of an attention mask."""
        is_layout = isinstance(sequences, PaddedSequences | PackedSequences)
        return sequences if is_layout else PaddedSequences(sequences, self._kernels)
