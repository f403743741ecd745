"""Scaled dot-product attention over the sequences of a micro-batch, with padded or packed tokens.

Padded: [b, s, hidden], every sequence as long as the longest. Packed: [T, hidden], the real tokens of all sequences,
one after the other, so that no token-wise work is done on padding.
"""

import math
from typing import Any

import numpy as np

from bert.config.architecture import FusedKernels
from bert.runtime.operator_editing import BlockEditor
from bert.runtime.paddle_api import nn, paddle, static
from bert.samples.packing import CONTEXT_ROWS, NO_TOKEN, Packing

F = nn.functional

MASKED_SCORE = -1e4  # added to the scores of padded keys: exp underflows to 0, and float16 can represent it


def attention_bias(attention_mask, kernels: FusedKernels, position_ids=None):
    """Bias of attention scores: [b, 1, 1, s], or [b, 1, s, s] for the fused kernel and with documents.

    Args:
        attention_mask: int64 [b, s], 1 = real token.
        position_ids: int64 [b, s], each 0 begins a document that others do not see; None: a row is one sequence.
    """
    mask = paddle.cast(attention_mask, "float32").reshape([0, 1, 1, -1])
    # Mixed precision casts what is assigned: all scores would follow a bias of float32.
    score_bias = paddle.assign((1.0 - mask) * MASKED_SCORE)
    if position_ids is not None:
        document = paddle.cumsum((position_ids == 0).astype("int64"), axis=1)
        is_other = (document.unsqueeze([1, 3]) != document.unsqueeze([1, 2])).astype("float32")  # [b, 1, s, s]
        return score_bias + paddle.assign(is_other * MASKED_SCORE)
    if kernels.attention:  # which does not broadcast the mask over queries
        score_bias = score_bias + paddle.zeros_like(score_bias).transpose([0, 1, 3, 2])
    return score_bias


def columns_of(places):
    """Column numbers 0 ... s - 1 in every row of an int64 [b, s]."""
    return paddle.cumsum(paddle.ones_like(places), axis=1) - 1


def dot_product_attention(query, key, value, biases, dropout_prob: float, training: bool):
    """Attention of query, key and value, each [b, heads, s, head_size], with biases added to the scores."""
    query = query * (1.0 / math.sqrt(query.shape[-1]))  # scales s x head_size values, not s x s
    scores = paddle.matmul(query, key, transpose_y=True)  # [b, heads, s, s]
    for bias in biases:
        scores = scores + bias
    probabilities = F.dropout(F.softmax(scores), dropout_prob, training=training)
    return paddle.matmul(probabilities, value)


def gather_tokens(hidden, rows):
    """Hidden states of selected tokens, [n, hidden].

    Args:
        hidden: [b, s, hidden] or [T, hidden].
        rows: int64 [n], flat indices into b * s or T.
    """
    # A gather's gradient cannot take the output of oneDNN's LayerNorm, whose memory is freed by then; a reshape's can.
    return paddle.gather(hidden.reshape([-1, hidden.shape[-1]]), rows)


def _means(states, is_real):
    """Means of [b, s, hidden] over the positions with a non-zero mask [b, s]: float32 [b, hidden]."""
    weights = paddle.cast(is_real, "float32").unsqueeze(-1)
    return (paddle.cast(states, "float32") * weights).sum(axis=1) / weights.sum(axis=1)


def _sums_by_root(values, is_real):
    """Sums of [b, s, n] over the positions with a non-zero mask [b, s], divided by the root of their number.

    A row without such a place, as a server's batch that is not full has, gets 0.
    """
    weights = paddle.cast(is_real, "float32").unsqueeze(-1)
    sums = (paddle.cast(values, "float32") * weights).sum(axis=1)
    return sums / weights.sum(axis=1).clip(min=1.0).sqrt()


class ScoreBias:
    """Biases of attention scores: hides padded keys and, in layers with a window, keys more than half of it away.

    Args:
        hides_padding: [b, 1, 1, s] or [b, 1, s, s].
        places: int64 [b, s], of which the shape is read.
    """

    def __init__(self, hides_padding, places) -> None:
        self._places = places
        self._hides_padding = hides_padding
        self._far: dict[int, Any] = {}

    def of(self, window: int | None) -> tuple[Any, ...]:
        """The biases to add one after the other: [b, 1, 1, s] or [b, 1, s, s], then [s, s] if there is a window.

        On CPU the first is added inside the product, and the sum of both takes six times as long as the second.
        """
        if window is None:
            return (self._hides_padding,)
        if window not in self._far:
            columns = columns_of(self._places)[:1]  # [1, s]
            distance, reach = columns - columns.t(), window // 2
            is_far = paddle.cast(distance * distance > reach * reach, "float32")  # Paddle Inference fails with abs
            self._far[window] = paddle.assign(is_far * MASKED_SCORE)
        return self._hides_padding, self._far[window]


class PaddedSequences:
    """Padded tokens, [b, s, hidden].

    Attributes:
        heads_first: whether `attend` takes query, key and value as [b, heads, s, head_size], not [b, s, heads, ...].

    Args:
        attention_mask: int64 [b, s], 1 = real token.
        position_ids: int64 [b, s], each 0 begins a document; None: positions are 0 ... s - 1 in every sequence.
    """

    def __init__(self, attention_mask, kernels: FusedKernels, position_ids=None) -> None:
        self.heads_first, self.position_ids = not kernels.attention, position_ids
        self._attention_mask = attention_mask
        self._score_bias = ScoreBias(attention_bias(attention_mask, kernels, position_ids), attention_mask)

    def attend(self, query, key, value, dropout_prob: float, training: bool, window: int | None = None):
        """The attention context, [b, s, heads, head_size]; with a window, of tokens at most half of it away."""
        biases = self._score_bias.of(window)
        if self.heads_first:
            context = dot_product_attention(query, key, value, biases, dropout_prob, training)
            return context.transpose([0, 2, 1, 3])
        # Paddle's function ignores `training` on one of its ways.
        dropout_prob = dropout_prob if training else 0.0
        return F.scaled_dot_product_attention(query, key, value, sum(biases), dropout_prob, training=training)

    def count_positions(self):
        """Positions 0 ... s - 1 in every sequence, int64 [b, s]."""
        return columns_of(self._attention_mask)

    def first_tokens(self, hidden):
        """The first token of each sequence: [b, s, hidden] -> [b, hidden]."""
        return hidden[:, 0]

    def first_rows(self):
        """Row numbers of the first tokens among the b * s tokens, int64 [b]."""
        rows = paddle.cumsum(paddle.ones_like(self._attention_mask), axis=0) - 1  # of one axis, a GPU's host would wait
        return rows.sum(axis=1)

    def padded(self, values):
        """The padded tensor [b, s, ...], here the input itself."""
        return values

    def means(self, hidden):
        """Means over real tokens: [b, s, hidden] -> float32 [b, hidden]."""
        return _means(hidden, self._attention_mask)

    def sums_by_root(self, values):
        """Sums over real tokens divided by the root of their number: [b, s, n] -> float32 [b, n]."""
        return _sums_by_root(values, self._attention_mask)


class PackedSequences:
    """Packed tokens, [T, hidden]; base class of both kinds of attention.

    Args:
        feed: variables of `bert.samples.packing.pack`.
    """

    heads_first = False

    def __init__(self, feed) -> None:
        self.position_ids = feed["position_ids"]
        self._feed = feed

    def first_tokens(self, hidden):
        """The first token of each sequence: [T, hidden] -> [b, hidden]."""
        return gather_tokens(hidden, self.first_rows())

    def first_rows(self):
        """Row numbers of the first tokens among the T tokens, int64 [b]."""
        return self._feed["first_tokens"]

    def padded(self, values):
        """Unpack to a padded tensor: [T, n] -> [b, s, n]; values at padding are arbitrary."""
        tokens = self._feed["token_of_place"]
        places = paddle.shape(tokens)
        rows = gather_tokens(values, paddle.clip(tokens, min=0).reshape([-1]))
        return rows.reshape([places[0], places[1], values.shape[-1]])

    def means(self, hidden):
        """Means over the tokens of each sequence: [T, hidden] -> float32 [b, hidden]."""
        states = hidden.reshape([-1, hidden.shape[-1]])  # for oneDNN, as in gather_tokens
        return _means(self.padded(states), self._feed["token_of_place"] != NO_TOKEN)

    def sums_by_root(self, values):
        """Sums over the tokens of each sequence divided by the root of their number: [T, n] -> float32 [b, n]."""
        return _sums_by_root(self.padded(values), self._feed["token_of_place"] != NO_TOKEN)


class FlashPackedSequences(PackedSequences):
    """Packed tokens with FlashAttention (Dao et al., 2022) over variable lengths: GPU, half precision."""

    def __init__(self, feed, max_seq_length: int) -> None:
        super().__init__(feed)
        self._max_seq_length = max_seq_length

    def attend(self, query, key, value, dropout_prob: float, training: bool, window: int | None = None):
        """The attention context [T, heads, head_size] of query, key and value of that shape."""
        assert window is None, "fused_kernels.choose_kernels takes plain operators: Paddle's function has no window"
        offsets, longest = self._feed["sequence_offsets"], self._max_seq_length
        scale = 1.0 / math.sqrt(query.shape[-1])
        lengths = (offsets, offsets, longest, longest)  # of the queries, of the keys
        dropout_prob = dropout_prob if training else 0.0
        attend = F.flash_attention.flash_attn_unpadded
        return attend(query, key, value, *lengths, scale, dropout=dropout_prob, training=training)[0]


class GroupedPackedSequences(PackedSequences):
    """Packed tokens with attention by plain operators, over groups of sequences of similar length.

    Rows of head_size values are gathered where the padded layout transposes: [T * heads, head_size] -> [b, heads, s,
    head_size] and back. That costs the same (bert-mini, 32 x 128: 0.3 ms), and its gradient, which
    `gather_gradients_of_gathers` makes a gather too.
    """

    def __init__(self, feed, num_heads: int, num_groups: int) -> None:
        super().__init__(feed)
        self._groups = [_Group(feed[f"group_{number}"], num_heads) for number in range(num_groups)]

    def attend(self, query, key, value, dropout_prob: float, training: bool, window: int | None = None):
        """The attention context [T * heads, head_size] of query, key and value [T, heads, head_size]."""
        size = query.shape[-1]
        rows = [part.reshape([-1, size]) for part in (query, key, value)]
        contexts = []
        for group in self._groups:
            queries, keys, values = (paddle.gather_nd(part, group.rows) for part in rows)
            biases = group.score_bias.of(window)
            context = dot_product_attention(queries, keys, values, biases, dropout_prob, training)
            contexts.append(context.reshape([-1, size]))
        return paddle.gather(paddle.concat(contexts) if len(contexts) > 1 else contexts[0], self._feed[CONTEXT_ROWS])


class _Group:
    """Sequences that are padded to the longest of them.

    Attributes:
        rows: int64 [b, heads, s, 1], the rows of query, key and value of each place.
        score_bias: what is added to scores.

    Args:
        tokens: int64 [b, s], the token of each place; NO_TOKEN at padding.
    """

    def __init__(self, tokens, num_heads: int) -> None:
        padding = paddle.cast(tokens == NO_TOKEN, "float32")
        hides_padding = paddle.assign((padding * MASKED_SCORE).unsqueeze([1, 2]))
        self.score_bias = ScoreBias(hides_padding, tokens)
        heads = paddle.assign(np.arange(num_heads).reshape(1, num_heads, 1, 1))  # int64; paddle.arange warns
        # Scores hide the keys at padding, and nothing reads the context of queries there, so any token will do.
        self.rows = paddle.clip(tokens, min=0).unsqueeze([1, 3]) * num_heads + heads


def packed_layout(feed, packing: Packing, max_seq_length: int) -> PackedSequences:
    """Token layout of a feed made by `bert.samples.packing.pack`, at most `max_seq_length` tokens a sequence."""
    if packing.num_groups:
        return GroupedPackedSequences(feed, packing.num_heads, packing.num_groups)
    return FlashPackedSequences(feed, max_seq_length)


def gather_gradients_of_gathers(main: static.Program) -> None:
    """Compute the gradients of query, key and value gathers as gathers by CONTEXT_ROWS, each token's row.

    Paddle clears memory and adds row by row instead (0.8 ms against 0.3), once for each group, and adds the sums. It
    cannot know that no row was gathered twice, but from padding, whose gradients are 0.
    """
    editor = BlockEditor(main)
    gathers: dict[str, list] = {}
    for operator in reversed(editor.operators("gather_nd_grad")):  # backward has the last group first
        gathers.setdefault(operator.input("X")[0], []).append(operator)
    for operators in gathers.values():
        _gather_gradient(editor, operators)
    editor.finish()


def _gather_gradient(editor: BlockEditor, operators: list) -> None:
    """Replace the gradients of one tensor's gathers (one for each group) and the operator that adds them."""
    parts = {operator.output("X@GRAD")[0] for operator in operators}
    added = [op for op in editor.operators("sum") if len(parts) > 1 and set(op.input("X")) == parts]
    last = added[0] if added else operators[0]
    rows = []
    for operator in operators:
        (upstream,) = operator.input("Out@GRAD")
        rows.append(editor.reshape(last, upstream, [-1, editor.shape(upstream)[-1]])[0])
    if len(rows) > 1:
        dtype = editor.block.var(rows[0]).dtype
        rows = [editor.compute(last, "concat", {"X": rows}, "rows", editor.shape(rows[0]), dtype, axis=0)]
    gradient = {"Out": last.output_arg_names[0]}
    editor.insert_before(last, "gather", {"X": rows, "Index": CONTEXT_ROWS}, gradient)
    for operator in (*operators, *added):
        editor.remove(operator)
