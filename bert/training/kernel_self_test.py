"""Compares fused kernels with plain operators on this rank's card: forward, backward, random inputs.

    python -m bert.training.kernel_self_test '{"model": {...}, "amp_dtype": "float16", "compare": ["attention"], ...}'

Prints one line of JSON: kernel -> why it cannot be used, "" if it can.
"""

import json
import sys
from collections.abc import Callable, Mapping

import numpy as np

from bert.config.architecture import BertConfig, FusedKernels
from bert.config.training_settings import PrecisionSettings
from bert.model.attention import PaddedSequences, packed_layout
from bert.model.modeling import BertSelfAttention, Linear, dropout_add
from bert.runtime.paddle_api import core, default_device, paddle, place_of, static, unique_name, write_variable
from bert.samples.packing import Packing, pack
from program import cast_forward

Arrays = dict[str, np.ndarray]
BATCH, LENGTH = 4, 128
# Of the largest value of each tensor: some eight times the type's spacing, where a wrong mask or scale differs by 1.
TOLERANCE = {"float16": 0.02, "bfloat16": 0.1, "float32": 1e-4}
OPERATORS = {"linear": "fused_gemm_epilogue", "dropout_add": "fused_dropout_add", "attention": "flash_attn"}
ATTENTION_OF_PACKED_TOKENS = "flash_attn_unpadded"
CAPABILITY = {"attention": (8, 0)}  # its kernels are compiled for Ampere and later
DROPOUT = 0.1
FUSED_DROPOUT = FusedKernels(dropout_add=True)


def findings(
    compare: list[str], look_at_card: list[str], lacks: Callable[[str], str], runs: Mapping[str, Callable], dtype: str
) -> dict[str, str]:
    """Why each kernel cannot be used; "" if it can.

    Args:
        lacks: kernel -> what the wheel or the card lacks for it.
        runs: kernel -> a function of "plain" | "fused" that computes named arrays.
    """
    found = {name: lacks(name) for name in (*compare, *look_at_card)}
    for name in compare:
        found[name] = found[name] or disagreement(runs[name], TOLERANCE[dtype])
    return found


def disagreement(run: Callable[[str], Arrays], tolerance: float) -> str:
    """How the fused arrays differ from the plain ones, or that they cannot be computed; "" if they agree."""
    plain = run("plain")
    try:
        fused = run("fused")
    except Exception as error:  # whatever the kernel raises, the plain operators are there
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"its self-test failed: {type(error).__name__}: {lines[-1][:200] if lines else ''}"
    for name, expected in plain.items():
        if fused[name].shape != expected.shape or not np.isfinite(fused[name]).all():
            return f"its self-test gave another shape or values that are not finite: {name}"
        difference = np.abs(fused[name] - expected).max() / max(np.abs(expected).max(), 1e-6)
        if difference > tolerance:
            return f"its self-test differs from plain operators: {name} by {difference:.2g}, at most {tolerance:g}"
    return ""


def lacking(name: str, unpad: bool = False) -> str:
    """What this wheel or this card lacks for a kernel, of packed tokens with `unpad`."""
    operator = ATTENTION_OF_PACKED_TOKENS if unpad and name == "attention" else OPERATORS[name]
    if operator not in core.get_all_op_names():
        return f"this Paddle has no {operator}"
    if default_device() != "gpu":
        return "there is no GPU"
    needed, has = CAPABILITY.get(name, (0, 0)), paddle.device.cuda.get_device_capability()
    if tuple(has) < needed:
        return f"{operator} needs compute capability {needed[0]}.{needed[1]}, this card has {has[0]}.{has[1]}"
    return ""


class Comparison:
    """Runs a part of the network with plain or fused kernels, forward and backward, with the same weights and inputs.

    Args:
        dtype: float16 or bfloat16, as mixed precision computes; float32 for tests.
        unpad: whether attention is that of packed tokens.
    """

    def __init__(self, model: BertConfig, dtype: str, device: str, unpad: bool = False) -> None:
        self._unpad = unpad
        self._model = model.model_copy(update={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
        is_half = dtype != "float32"
        self._precision = PrecisionSettings(amp=is_half, amp_dtype=dtype if is_half else "float16")
        self._executor, self._place = static.Executor(place_of(device)), place_of(device)

    def linear(self, kind: str) -> Arrays:
        def build(x):
            hidden, inner = self._model.hidden_size, self._model.intermediate_size
            return Linear(self._model, hidden, inner, "linear", FusedKernels(linear=kind == "fused"))(x)

        return self._run(build, {"x": self._hidden(0)})

    def attention(self, kind: str) -> Arrays:
        if self._unpad and kind == "fused":
            return self.packed_attention(0)
        kernels = FusedKernels(attention=kind == "fused")

        def build(x, mask):
            found = BertSelfAttention(self._model, "attention", True, kernels)(x, PaddedSequences(mask, kernels))
            return _at_real_tokens(found, mask) if self._unpad else found

        return self._run(build, {"x": self._hidden(0), "mask": self._mask()})

    def packed_attention(self, num_groups: int) -> Arrays:
        """Attention of packed tokens, with zeros in the place of padding; 0 groups: by FlashAttention."""
        packing = Packing(self._model.num_attention_heads, num_groups, per_token=True)
        mask = self._mask()
        packed = pack({"input_ids": mask, "token_type_ids": mask, "attention_mask": mask}, packing)
        tokens = np.flatnonzero(mask)
        tokens = np.append(tokens, np.zeros(len(packed["input_ids"]) - len(tokens), tokens.dtype))

        def build(x, mask, tokens, **feed):
            layout = packed_layout(feed, packing, self._length())
            rows = paddle.gather(x.reshape([-1, x.shape[-1]]), tokens)
            found = BertSelfAttention(self._model, "attention", num_groups == 0, FusedKernels())(rows, layout)
            return _at_real_tokens(layout.padded(found), mask)

        return self._run(build, {"x": self._hidden(0), "mask": mask, "tokens": tokens, **packed})

    def _mask(self) -> np.ndarray:
        """int64 [b, s] of sequences with and without padding."""
        length = self._length()
        lengths = length - np.arange(BATCH)[:, None] * (length // BATCH)
        return (np.arange(length) < lengths).astype("int64")

    def dropout_add(self, kind: str, kernels: FusedKernels = FUSED_DROPOUT) -> Arrays:
        """Without dropout Paddle does not call the kernel: its dropout is undone where its result shows it."""
        prob = DROPOUT if kind == "fused" else 0.0
        x, residual = self._hidden(0), self._hidden(1)
        x += np.sign(x) * 0.5  # no value so small that kept looks like dropped
        found = self._run(
            lambda x, residual: dropout_add(x, residual, prob, True, kernels), {"x": x, "residual": residual}
        )
        added, gradient, upstream = found["output"] - residual, found["gradient of x"], self._upstream(x.shape)
        kept = np.abs(added) > 0.25
        found["output"] = np.where(kept, residual + added * (1 - prob), residual + x + added)
        found["gradient of x"] = np.where(kept, gradient * (1 - prob), upstream + gradient)
        found["share of values kept"] = np.array([kept.mean() / (1 - prob)])
        return found

    def _length(self) -> int:
        return min(LENGTH, self._model.max_position_embeddings)

    def _hidden(self, seed: int) -> np.ndarray:
        shape = (BATCH, self._length(), self._model.hidden_size)
        return np.random.RandomState(seed).normal(size=shape).astype("float32")

    @staticmethod
    def _upstream(shape) -> np.ndarray:
        return np.random.RandomState(2).normal(size=shape).astype("float32")

    def _run(self, build: Callable, feed: Arrays) -> Arrays:
        """The output of a part and its gradients for random ones of the output, in float32."""
        main, startup, scope = static.Program(), static.Program(), static.Scope()
        with static.program_guard(main, startup), unique_name.guard():
            inputs = {name: static.data(name, array.shape, array.dtype.name) for name, array in feed.items()}
            floats = {name: variable for name, variable in inputs.items() if feed[name].dtype == np.float32}
            for variable in floats.values():
                variable.stop_gradient = False
            output = build(**inputs)
            cast_forward(main, self._precision)
            shape = [BATCH, self._length(), output.shape[-1]]
            output = output.astype("float32")
            loss = (output * static.data("upstream", shape, "float32")).sum()
            # Softmax cancels what key biases add, so their gradients are rounding noise.
            weights = {p.name: p for p in main.all_parameters() if not p.name.endswith("key.bias")}
            targets = {**floats, **weights}
            gradients = static.gradients([loss], list(targets.values()))
        self._executor.run(startup, scope=scope)
        rng = np.random.RandomState(3)
        for parameter in sorted(main.all_parameters(), key=lambda p: p.name):
            write_variable(scope, parameter.name, rng.normal(0, 0.05, parameter.shape).astype("float32"), self._place)
        values = self._executor.run(
            main, feed={**feed, "upstream": self._upstream(shape)}, fetch_list=[output, *gradients], scope=scope
        )
        names = ["output", *(f"gradient of {name}" for name in targets)]
        return {name: np.asarray(value, "float32") for name, value in zip(names, values, strict=True)}


def _at_real_tokens(values, mask):
    return values * mask.unsqueeze(-1).astype(values.dtype)


def main() -> None:
    request = json.loads(sys.argv[1])
    dtype, unpad = request["amp_dtype"], request["unpad"]
    comparison = Comparison(BertConfig(**request["model"]), dtype, default_device(), unpad)
    runs = {name: getattr(comparison, name) for name in OPERATORS}
    print(
        json.dumps(
            findings(request["compare"], request["look_at_card"], lambda name: lacking(name, unpad), runs, dtype)
        )
    )


if __name__ == "__main__":
    main()
