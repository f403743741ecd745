"""Decides which fused kernels a training uses: those that are on, and the automatic ones whose self-test agrees.

The self-test of a rank compares fused kernels with plain operators on its card: forward, backward, random inputs. It is
a process of its own, so a kernel that breaks the device or the process breaks nothing here. The ranks then exchange
their findings: a kernel is used by all of them or by none.

    python -m bert.training.fused_kernels '{"model": {...}, "amp_dtype": "float16", "compare": ["attention"], ...}'

The process prints one line of JSON: kernel -> why it cannot be used, "" if it can.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from bert.config.architecture import BertConfig, FusedKernels
from bert.config.training_settings import PrecisionSettings, TrainingConfig
from bert.interpreter import repository_environment
from bert.model.attention import PaddedSequences, packed_layout
from bert.model.modeling import BertSelfAttention, Linear, dropout_add
from bert.runtime.distributed import Group, exchange_texts
from bert.runtime.paddle_api import core, default_device, paddle, place_of, static, unique_name, write_variable
from bert.samples.packing import Packing, pack
from program import cast_forward

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 300.0
Findings = Mapping[str, str]  # kernel -> why it cannot be used; "" if it can
Arrays = dict[str, np.ndarray]
BATCH, LENGTH = 4, 128
# Of the largest value of each tensor: some eight times the type's spacing, where a wrong mask or scale differs by 1.
TOLERANCE = {"float16": 0.02, "bfloat16": 0.1, "float32": 1e-4}
OPERATORS = {"linear": "fused_gemm_epilogue", "dropout_add": "fused_dropout_add", "attention": "flash_attn"}
ATTENTION_OF_PACKED_TOKENS = "flash_attn_unpadded"
CAPABILITY = {"attention": (8, 0)}  # its kernels are compiled for Ampere and later
DROPOUT = 0.1
FUSED_DROPOUT = FusedKernels(dropout_add=True)


def choose_kernels(config: TrainingConfig, group: Group) -> FusedKernels:
    """The fused kernels of this run, the same on every rank (none on a CPU), and whether its tokens are packed."""
    fusions, unpad = config.hardware.fusions(), config.hardware.unpads(group.device)
    if group.device == "cpu":
        return FusedKernels(unpad=unpad)
    forced = [name for name, value in fusions.items() if value == "on"]
    automatic = [name for name, value in fusions.items() if value == "auto"]
    reasons = {}
    if automatic and not config.precision.amp:
        reasons = dict.fromkeys(automatic, "they are for mixed precision (--amp)")
        automatic = []
    if forced or automatic:
        text = json.dumps(dict(self_test(config, automatic, forced)))
        reasons |= agreed([json.loads(other) for other in exchange_texts(group, text)])
    used = {name: value != "off" and not reasons[name] for name, value in fusions.items()}
    if group.is_main:
        logger.info(f"fused kernels: {', '.join(name for name in used if used[name]) or 'none'}")
        for name, value in fusions.items():
            if value != "off" and reasons[name]:
                logger.info(f"fuse_{name}={value}: plain operators instead, because {reasons[name]}")
    return FusedKernels(**used, unpad=unpad)


def agreed(findings: Sequence[Findings]) -> dict[str, str]:
    """The reasons of all ranks together: a kernel that one of them cannot use is used by none."""
    reasons = {}
    for name in findings[0]:
        against = [f"{reason} (rank {rank})" for rank, of_rank in enumerate(findings) if (reason := of_rank[name])]
        reasons[name] = against[0] if against else ""
    return reasons


def self_test(config: TrainingConfig, automatic: Sequence[str], forced: Sequence[str]) -> Findings:
    """The findings of this rank's card; a self-test that ends badly or hangs speaks against all that it should test.

    Args:
        automatic: kernels to compare.
        forced: kernels that only a card without them speaks against.
    """
    request = {
        "model": json.loads(config.model.model_dump_json()),
        "amp_dtype": config.precision.amp_dtype,
        "compare": list(automatic),
        "look_at_card": list(forced),
        "unpad": config.hardware.unpads("gpu"),
    }
    findings, reason = _answer(json.dumps(request))
    return findings or {**dict.fromkeys(automatic, reason), **dict.fromkeys(forced, "")}


@lru_cache(maxsize=None)  # own text is planned with several programs of a model
def _answer(request: str) -> tuple[Findings, str]:
    """The findings of the process, or why it has none."""
    command = [sys.executable, "-m", "bert.training.fused_kernels", request]
    try:
        done = subprocess.run(
            command, env=repository_environment(), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode == 0:
            return dict(json.loads(done.stdout.splitlines()[-1])), ""
        return {}, f"the self-test ended with exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        return {}, f"the self-test took more than {TIMEOUT_SECONDS:g} s"
    except (ValueError, IndexError):
        return {}, "the self-test gave no answer"


# ---- the process -----------------------------------------------------------------------------------------------------


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
            context = BertSelfAttention(self._model, "attention", True, kernels)(x, PaddedSequences(mask, kernels))
            return _at_real_tokens(context, mask) if self._unpad else context

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
            context = BertSelfAttention(self._model, "attention", num_groups == 0, FusedKernels())(rows, layout)
            return _at_real_tokens(layout.padded(context), mask)

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
        feed = {"x": x, "residual": residual}
        arrays = self._run(lambda x, residual: dropout_add(x, residual, prob, True, kernels), feed)
        added, gradient, upstream = arrays["output"] - residual, arrays["gradient of x"], self._upstream(x.shape)
        kept = np.abs(added) > 0.25
        arrays["output"] = np.where(kept, residual + added * (1 - prob), residual + x + added)
        arrays["gradient of x"] = np.where(kept, gradient * (1 - prob), upstream + gradient)
        arrays["share of values kept"] = np.array([kept.mean() / (1 - prob)])
        return arrays

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


def main(request: str) -> None:
    settings = json.loads(request)
    dtype, unpad = settings["amp_dtype"], settings["unpad"]
    comparison = Comparison(BertConfig(**settings["model"]), dtype, default_device(), unpad)
    findings = {name: lacking(name, unpad) for name in (*settings["compare"], *settings["look_at_card"])}
    for name in settings["compare"]:
        findings[name] = findings[name] or disagreement(getattr(comparison, name), TOLERANCE[dtype])
    print(json.dumps(findings))


if __name__ == "__main__":
    main(sys.argv[1])
