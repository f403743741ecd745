"""BERT and ModernBERT in NumPy, float64, written from the papers, without score masks, layouts or fused products.

`weights` are by Hugging Face's names, matrices as [in, out]. `visible` says which keys a query may see: bool [b, s, s].
Hidden states are [b, s, hidden].
"""

import math

import numpy as np

erf = np.vectorize(math.erf)


def dense(x, weights, name):
    product = x @ weights[f"{name}.weight"].astype("float64")
    return product + weights[f"{name}.bias"] if f"{name}.bias" in weights else product


def layer_norm(x, weights, name, epsilon):
    """Compute Ba et al. (2016), with the biased variance."""
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return normal * weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0.0)


def gelu(x):
    """Compute x times the probability that a standard normal number is below x."""
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def softmax(scores):
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def attention(query, key, value, visible):
    """Compute Vaswani et al. (2017), section 3.2.1, for each head; arrays [b, s, heads, size]."""
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
    return np.einsum("bhqk,bkhd->bqhd", softmax(np.where(visible[:, None], scores, -1e300)), value)


def heads_of(hidden, weights, name, num_heads):
    projected = (dense(hidden, weights, f"{name}.{part}") for part in ("query", "key", "value"))
    return [part.reshape(*hidden.shape[:2], num_heads, -1) for part in projected]


def bert(weights, model, input_ids, token_type_ids, positions, visible):
    """Compute Devlin et al. (2019): hidden states of the embeddings and of each layer."""
    tables = {kind: weights[f"bert.embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
    epsilon = model.layer_norm_eps
    summed = tables["word"][input_ids] + tables["position"][positions] + tables["token_type"][token_type_ids]
    hidden = layer_norm(summed.astype("float64"), weights, "bert.embeddings.LayerNorm", epsilon)
    states = [hidden]
    for index in range(model.num_hidden_layers):
        name = f"bert.encoder.layer.{index}"
        context = attention(*heads_of(hidden, weights, f"{name}.attention.self", model.num_attention_heads), visible)
        attended = dense(context.reshape(hidden.shape), weights, f"{name}.attention.output.dense")
        hidden = layer_norm(hidden + attended, weights, f"{name}.attention.output.LayerNorm", epsilon)
        expanded = gelu(dense(hidden, weights, f"{name}.intermediate.dense"))
        out = dense(expanded, weights, f"{name}.output.dense")
        hidden = layer_norm(hidden + out, weights, f"{name}.output.LayerNorm", epsilon)
        states.append(hidden)
    return states


def pooled(states, weights):
    return np.tanh(dense(states[-1][:, 0], weights, "bert.pooler.dense"))


def rotated(x, positions, theta):
    """Compute Su et al. (2021): numbers i and i + size / 2 as one complex number, turned by position times theta^(-2 i
    / size)."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * theta ** (-2 * np.arange(half) / (2 * half))  # [b, s, half]
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, :, None]
    return np.concatenate([turned.real, turned.imag], -1)


def modern_bert(weights, model, input_ids, positions, visible):
    """Compute Warner et al. (2024): pre-norm, rotary positions, GeGLU, and windows except in every third layer or so.

    The last state has the final norm.
    """
    epsilon, states = model.layer_norm_eps, []
    hidden = weights["bert.embeddings.word_embeddings.weight"][input_ids].astype("float64")
    hidden = layer_norm(hidden, weights, "bert.embeddings.LayerNorm", epsilon)
    states.append(hidden)
    distance = np.abs(positions[:, :, None] - positions[:, None, :])
    for index in range(model.num_hidden_layers):
        name, is_local = f"bert.encoder.layer.{index}", index % model.global_attn_every_n_layers != 0
        normal = layer_norm(hidden, weights, f"{name}.attention.LayerNorm", epsilon) if index else hidden
        query, key, value = heads_of(normal, weights, f"{name}.attention.self", model.num_attention_heads)
        theta = model.local_rope_theta if is_local else model.global_rope_theta
        seen = visible & (distance <= model.local_attention // 2) if is_local else visible
        context = attention(rotated(query, positions, theta), rotated(key, positions, theta), value, seen)
        hidden = hidden + dense(context.reshape(hidden.shape), weights, f"{name}.attention.output.dense")
        normal = layer_norm(hidden, weights, f"{name}.intermediate.LayerNorm", epsilon)
        gated = gelu(dense(normal, weights, f"{name}.intermediate.dense"))
        gated = gated * dense(normal, weights, f"{name}.intermediate.gate")
        hidden = hidden + dense(gated, weights, f"{name}.output.dense")
        states.append(hidden)
    states[-1] = layer_norm(hidden, weights, "bert.encoder.LayerNorm", epsilon)
    return states


def prediction_head(states, weights, epsilon):
    name = "cls.predictions.transform"
    return layer_norm(gelu(dense(states, weights, f"{name}.dense")), weights, f"{name}.LayerNorm", epsilon)


def cross_entropies(logits, labels):
    """Return cross-entropies in nats, one for each row."""
    logits = logits.astype("float64")
    return np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) - (
        logits[np.arange(len(labels)), labels] - logits.max(-1)
    )
