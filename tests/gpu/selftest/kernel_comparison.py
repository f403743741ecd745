"""Compares fused kernels with plain operators in values and in time, in a process of its own.

    python -m tests.gpu.selftest.kernel_comparison '{"model": {...}, "amp_dtype": "float16", ...}'

It prints one line of JSON: `reasons`, kernel -> why it cannot be used, "" if it can; `times`, kernel -> text.

A fused kernel draws dropout's random numbers itself. What it drew shows where its result depends on one number alone;
plain operators then compute with these masks. That the result and all gradients agree with them shows that the kernel's
backward used the mask of its forward, and that the same seed draws the same mask, as after a resumption.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig, FusedKernels
from bert.config.automatic import lacking_kernel
from bert.config.optimizer_settings import PrecisionSettings
from bert.model.attention import PaddedSequences, attention_bias, packed_layout
from bert.model.modeling import PLAIN, Linear, dropout_add
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import core, default_device, nn, paddle, place_of, static, unique_name, write_variable
from bert.samples.packing import Packing, pack
from bert.training.devices import device_features
from program import cast_forward

Arrays = dict[str, np.ndarray]
# Of the largest value of each tensor: some eight times the type's spacing, where a wrong mask or scale differs by 1.
TOLERANCE = {"float16": 0.02, "bfloat16": 0.1, "float32": 1e-4}
FUSED = FusedKernels(linear=True, dropout_add=True, attention=True)
LONGEST = 2048  # tokens of a sequence that is compared: at 8,192 plain attention takes 13 GB
SLOWER = 1.05  # times plain operators' time; times vary
SEED, UPSTREAM = 7, 8  # of weights and dropout, of the gradients of outputs
SIGMAS = 6


def disagreement(run: Callable[[str], Arrays], tolerance: float) -> str:
    """Return how the fused arrays differ from the plain ones, or why they cannot be computed; "" if they agree."""
    try:
        fused = run("fused")
    except Exception as error:  # whatever the kernel raises, the plain operators are there
        return f"its self-test failed: {_last_line(error)}"
    for name, expected in run("plain").items():
        if fused[name].shape != expected.shape or not np.isfinite(fused[name]).all():
            return f"its self-test gave another shape or values that are not finite: {name}"
        difference = np.abs(fused[name] - expected).max() / max(np.abs(expected).max(), 1e-6)
        if difference > tolerance:
            return f"its self-test differs from plain operators: {name} by {difference:.2g}, at most {tolerance:g}"
    return ""


def slowness(seconds: Callable[[str], float]) -> tuple[str, str]:
    """Return why a kernel is too slow ("" if it is not), and its time and the plain operators' time, as text."""
    try:
        fused = seconds("fused")
    except Exception as error:
        return f"its self-test failed at the run's micro-batch: {_last_line(error)}", ""
    try:
        plain = seconds("plain")
    except Exception:  # their memory does not suffice
        return "", f"{1e3 * fused:.3g} ms, plain operators fail"
    text = f"{1e3 * fused:.3g} ms, plain operators {1e3 * plain:.3g} ms"
    return (f"it is slower: {text}" if fused > SLOWER * plain else ""), text


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"


class Comparison:
    """Runs parts of the network with plain or fused kernels, forward and backward, with the same weights and inputs.

    Args:
        dtype: float16 or bfloat16, as mixed precision computes; float32 for tests.
        shape: of a micro-batch, (sequences, tokens).
        kernels: stand for the fused ones; tests have plain operators in their place.
        packing: of the tokens of fused attention; None: they are padded.
    """

    def __init__(
        self,
        model: BertConfig,
        dtype: str,
        device: str,
        shape: tuple[int, int],
        kernels: FusedKernels = FUSED,
        packing: Packing | None = None,
    ) -> None:
        self._model, self._shape, self._packing = model, shape, packing
        self._kernels = {"plain": PLAIN, "fused": kernels}
        is_half = dtype != "float32"
        self._precision = PrecisionSettings(amp=is_half, amp_dtype=dtype if is_half else "float16")
        self._executor, self._place = static.Executor(place_of(device)), place_of(device)
        local = model.has_window() and packing is None and not model.attention_probs_dropout_prob
        self._window = model.local_attention if local else None  # with dropout, masks are found without a window
        self._factors: np.ndarray | None = None  # by which fused attention multiplied probabilities

    # ---- values

    def arrays(self, name: str, kind: str) -> Arrays:
        """Return a part's output, and its gradients for a random upstream gradient; compute the fused kind first."""
        if name == "dropout_add":
            return self._dropout_add(kind)
        if name == "attention" and self._prob(name) and kind == "fused":
            self._factors = self._drawn_factors()
        build, feed = self._part(name, kind, drops=name == "attention" and kind == "fused")
        if name == "attention" and kind == "plain" and self._factors is not None:
            build, feed = _attention_by_factors, {**feed, "factors": self._factors}
        return self._run(build, feed)

    def _dropout_add(self, kind: str) -> Arrays:
        """Undo dropout where the output shows it; without dropout Paddle does not call the kernel."""
        build, feed = self._part("dropout_add", kind, drops=kind == "fused")
        arrays, prob = self._run(build, feed), self._prob("dropout_add")
        if kind == "plain" or not prob:
            return arrays
        x, residual, gradient = feed["x"], feed["residual"], arrays["gradient of x"]
        added = arrays["output"] - residual
        kept = np.abs(added) > 0.25
        _check_share(kept, prob)
        if np.any(kept != (np.abs(self._run(build, feed)["output"] - residual) > 0.25)):
            raise ValueError("the same seed does not draw the same dropout mask again")
        arrays["output"] = np.where(kept, residual + added * (1 - prob), residual + x + added)
        arrays["gradient of x"] = np.where(kept, gradient * (1 - prob), self._values(UPSTREAM, x.shape) + gradient)
        return arrays

    def _drawn_factors(self) -> np.ndarray:
        """Return float32 [b, heads, s, s]: 0, or 1 / (1 - rate of dropout).

        With equal scores the context of a query is the mean of the values that dropout keeps. Of as many keys as a head
        has numbers, each has a number of its own in its value; several runs show all keys.
        """
        prob, mask = self._prob("attention"), self._mask()
        heads, size = self._model.num_attention_heads, self._model.head_size()
        build, feed = self._part("attention", "fused", drops=True)
        zeros = np.zeros_like(feed["query"])
        run, _ = self._compiled(build, {**feed, "query": zeros, "key": zeros}, gradients=False)
        batch_size, length = mask.shape
        drawn = np.zeros((batch_size, heads, length, length), bool)
        for first in range(0, length, size):
            value, keys = np.zeros_like(zeros), np.arange(first, min(first + size, length))
            value[:, keys, :, keys - first] = 1.0
            context = run({**feed, "query": zeros, "key": zeros, "value": value})[0].reshape(zeros.shape)
            means = context.transpose(0, 2, 1, 3)[..., : len(keys)]
            drawn[..., keys] = means * mask.sum(axis=1)[:, None, None, None] > 0.5
        is_real = (mask[:, None, :, None] & mask[:, None, None, :]).astype(bool)
        _check_share(drawn[np.broadcast_to(is_real, drawn.shape)], prob)
        return drawn.astype("float32") / (1 - prob)

    # ---- time

    def seconds(self, name: str, kind: str) -> float:
        """Return the shortest time of a forward and backward pass with the dropout of training."""
        build, feed = self._part(name, kind, drops=True)
        run, _ = self._compiled(build, feed, fetches=False)
        feed, times = {key: self._on_device(array) for key, array in feed.items()}, []
        for _ in range(8):  # the first load kernels
            began = time.perf_counter()
            run(feed)
            times.append(time.perf_counter() - began)
        return min(times)

    # ---- the parts of the network

    def _part(self, name: str, kind: str, drops: bool) -> tuple[Callable, Arrays]:
        """Return a function that builds a part, and the inputs of the part."""
        model, kernels, prob = self._model, self._kernels[kind], self._prob(name) if drops else 0.0
        if name == "attention":
            shape = (*self._shape, model.num_attention_heads, model.head_size())
            feed = {key: self._values(seed, shape) for seed, key in enumerate(("query", "key", "value"))}
            packing = self._packing if kind == "fused" else None
            packed = {} if packing is None else self._packed(packing)
            return partial(self._attention, kernels, packing, prob), {**feed, "mask": self._mask(), **packed}
        x = self._values(0, (*self._shape, model.hidden_size))
        if name == "linear":
            sizes = model.hidden_size, model.intermediate_size
            return lambda x: Linear(model, *sizes, "linear", kernels)(x), {"x": x}
        x += np.sign(x) * 0.5  # no value so small that kept looks like dropped
        feed = {"x": x, "residual": self._values(1, x.shape)}
        return lambda x, residual: dropout_add(x, residual, prob, True, kernels), feed

    def _attention(
        self, kernels: FusedKernels, packing: Packing | None, prob: float, query, key, value, mask, **packed
    ):
        if packing is None:
            padded = PaddedSequences(mask, kernels)
            if padded.heads_first:
                query, key, value = (part.transpose([0, 2, 1, 3]) for part in (query, key, value))
            context = padded.attend(query, key, value, prob, True)
            if self._window is not None:
                context = context + padded.attend(query, key, value, prob, True, self._window)
            return _at_real_tokens(context, mask)
        layout: Any = packed_layout(packed, packing, self._shape[1])
        tokens, size = packed["tokens"], query.shape[2:]
        rows = (paddle.gather(part.reshape([-1, *size]), tokens) for part in (query, key, value))
        context = layout.attend(*rows, prob, True).reshape([-1, size[0] * size[1]])
        return _at_real_tokens(layout.padded(context).reshape([0, 0, *size]), mask)

    def _packed(self, packing: Packing) -> Arrays:
        mask = self._mask()
        packed = pack({"input_ids": mask, "token_type_ids": mask, "attention_mask": mask}, packing)
        tokens = np.flatnonzero(mask)
        packed["tokens"] = np.append(tokens, np.zeros(len(packed["input_ids"]) - len(tokens), tokens.dtype))
        return packed

    def _prob(self, name: str) -> float:
        """Return the rate of dropout in a part."""
        attention, hidden = self._model.attention_probs_dropout_prob, self._model.hidden_dropout_prob
        # A ModernBERT adds the result of its attention so, and nothing else.
        return {"attention": attention, "dropout_add": attention if self._model.is_modern() else hidden}.get(name, 0.0)

    def _mask(self) -> np.ndarray:
        """Return int64 [b, s] of sequences with and without padding."""
        batch_size, length = self._shape
        lengths = length - np.arange(batch_size)[:, None] * length // batch_size // 2
        return (np.arange(length) < lengths).astype("int64")

    @staticmethod
    def _values(seed: int, shape: Sequence[int]) -> np.ndarray:
        """Return normal numbers, repeated after a prime number: a large micro-batch has too many to draw."""
        drawn = np.random.RandomState(seed).normal(size=min(math.prod(shape), 1_000_003)).astype("float32")
        return np.resize(drawn, shape)

    # ---- programs

    def _run(self, build: Callable, feed: Arrays) -> Arrays:
        run, names = self._compiled(build, feed)
        return dict(zip(names, run(feed), strict=True))

    def _compiled(
        self, build: Callable, feed: Arrays, *, gradients: bool = True, fetches: bool = True
    ) -> tuple[Callable[[dict[str, Any]], list[np.ndarray]], list[str]]:
        """Return a function that runs a part from one seed, and its float32 outputs' names; loss without `fetches`."""
        main, startup, scope = static.Program(), static.Program(), static.Scope()
        with static.program_guard(main, startup), unique_name.guard():
            inputs = {name: static.data(name, array.shape, array.dtype.name) for name, array in feed.items()}
            floats = [inputs[name] for name, array in feed.items() if array.dtype == np.float32 and name != "factors"]
            for variable in floats:
                variable.stop_gradient = False
            output = build(**inputs)
            cast_forward(main, self._precision)
            output = output.astype("float32")
            upstream = static.data("upstream", [*self._shape, *output.shape[2:]], "float32")
            loss = (output * upstream).sum()
            targets = [*floats, *main.all_parameters()] if gradients else []
            fetched = [output, *(static.gradients([loss], targets) if targets else [])]
        self._executor.run(startup, scope=scope)
        for parameter in sorted(main.all_parameters(), key=lambda p: p.name):
            values = 0.05 * self._values(SEED, parameter.shape)
            write_variable(scope, parameter.name, values, self._place)
        received = self._values(UPSTREAM, upstream.shape)
        received = received if fetches else self._on_device(received)

        def run(feed: dict[str, Any]) -> list[np.ndarray]:
            paddle.seed(SEED)  # as before every micro-step of a training
            values = {**feed, "upstream": received}
            results = self._executor.run(main, feed=values, fetch_list=fetched if fetches else [loss], scope=scope)
            return [np.asarray(value, "float32") for value in results]

        return run, ["output", *(f"gradient of {variable.name}" for variable in targets)]

    def _on_device(self, array: np.ndarray) -> Any:
        tensor = core.LoDTensor()
        tensor.set(array, self._place)
        return tensor


def _attention_by_factors(query, key, value, mask, factors):
    """Compute plain attention whose probabilities are multiplied by factors [b, heads, s, s]."""
    query, key, value = (part.transpose([0, 2, 1, 3]) for part in (query, key, value))
    scores = paddle.matmul(query / math.sqrt(query.shape[-1]), key, transpose_y=True) + attention_bias(mask, PLAIN)
    context = paddle.matmul(nn.functional.softmax(scores) * factors, value)
    return _at_real_tokens(context.transpose([0, 2, 1, 3]), mask)


def _at_real_tokens(values, mask):
    return values * mask.unsqueeze([2, 3]).astype(values.dtype)


def _check_share(kept: np.ndarray, prob: float) -> None:
    """Raise ValueError if dropout did not keep 1 - prob of the values, up to chance."""
    share, deviation = kept.mean(), math.sqrt(prob * (1 - prob) / kept.size)
    if abs(share - (1 - prob)) > SIGMAS * deviation:
        raise ValueError(f"dropout keeps {share:.2%} of the values, not {1 - prob:.2%}")


def main(request: str) -> None:
    settings = json.loads(request)
    dtype, unpad, length = settings["amp_dtype"], settings["unpad"], settings["length"]
    model, device = BertConfig(**settings["model"]), default_device()
    packing = Packing(model.num_attention_heads, 0, per_token=True) if unpad else None
    few = (max(2, min(4, LONGEST // length)), min(length, LONGEST))
    compared, timed = (
        Comparison(model, dtype, device, shape, FUSED, packing) for shape in (few, (settings["batch_size"], length))
    )
    features = device_features(Group(0, 1, default_device()))
    reasons = {name: lacking_kernel(name, features, unpad) for name in settings["compare"]}
    times = {}
    for name in settings["compare"]:
        reasons[name] = reasons[name] or disagreement(partial(compared.arrays, name), TOLERANCE[dtype])
        if not reasons[name]:
            reasons[name], times[name] = slowness(partial(timed.seconds, name))
    print(json.dumps({"reasons": reasons, "times": {name: text for name, text in times.items() if text}}))


if __name__ == "__main__":
    main(sys.argv[1])
