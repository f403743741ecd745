"""Build Paddle programs from settings: forward, loss, backward, mixed precision, Fleet strategy, update.

Nothing here reads files, the environment or the clock, or runs a program. Every builder returns a description of what
it built. Variables are known by name, so a program can be inspected, run in any scope and saved by structured names.
"""

from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.model.attention import gather_gradients_of_gathers
from bert.model.dropout import Dropout, dropout_of
from bert.model.gradient_accumulation import AccumulatedGradients, cast_parameters_once
from bert.model.objectives import Objective
from bert.model.optimization import create_optimizer
from bert.model.recompute import recompute_layers
from bert.randomness import stream_key
from bert.runtime.cpu_kernels import use_cpu_kernels
from bert.runtime.distributed import Group, fit_to_gloo, gloo_on_cpu, reduce_on_compute_stream, sums_as_updated
from bert.runtime.paddle_api import paddle, static, unique_name

# Sums of the objective's `metric_names` between two log lines: one persistable float64 vector on the device, so that
# no micro-batch waits for the host.
TRAINING_METRICS = "training_metrics"

# Operators that stay in float32 under float16: reductions over many values, whose sums exceed its range.
AMP_BLACK_LIST = ("softmax_with_cross_entropy", "reduce_sum", "reduce_mean", "squared_l2_norm")
# All operators between matrix products run in half precision, or casts would move more bytes than the arithmetic; the
# kernels of softmax and LayerNorm compute in float32 internally. Additions are not listed and follow their inputs: the
# sum of the two losses must be float32, since the loss scale passes through its gradient and 2^16 is infinite in
# float16.
# `assign` is there for attention's mask alone: one cast of b x s numbers, where float32 would spread from it over all
# scores.
AMP_WHITE_LIST = (
    *("matmul_v2", "softmax", "gelu", "layer_norm", "unbind", "assign", "roll"),
    *("fused_dropout_add", "flash_attn", "flash_attn_unpadded"),
)
GRADIENTS_PER_ALL_REDUCE = 64
FLOAT32 = PrecisionSettings()


@dataclass(frozen=True)
class TrainingProgram:
    """The program of one micro-step; every `gradient_accumulation_steps`-th run also updates the parameters.

    Attributes:
        outputs: the variables of the forward pass, by the objective's names.
        accumulation_varies: whether `Feeding.accumulate` may change that number for the updates that follow.
    """

    objective: Objective
    main: static.Program
    startup: static.Program
    outputs: dict[str, str]
    parameters: tuple[str, ...]
    optimizer_state: dict[str, str]  # "<parameter>/<accumulator>" -> variable in the scope
    gradient_accumulation_steps: int
    loss_scale: str | None = None  # variable; None without loss scaling
    loss_scale_counters: tuple[str, ...] = ()
    dropout: Dropout = Dropout()
    accumulation_varies: bool = False


@dataclass(frozen=True)
class EvaluationProgram:
    """The program of an evaluation: forward only, without dropout.

    Attributes:
        metrics: the variable to fetch, float64 [len(objective.metric_names)] of one micro-batch.
    """

    main: static.Program
    metrics: str


@dataclass(frozen=True)
class PredictionProgram:
    """The program of a prediction: forward only, without dropout or labels.

    Attributes:
        outputs: the variables to fetch, by the objective's names.
    """

    objective: Objective
    main: static.Program
    startup: static.Program  # creates the weights, if no training program has put them into the scope
    inputs: tuple[str, ...]
    outputs: dict[str, str]
    parameters: tuple[str, ...]


def build_training_program(
    objective: Objective,
    optimizer: OptimizerSettings,
    precision: PrecisionSettings,
    group: Group,
    *,
    gradient_accumulation_steps: int,
    num_scheduled_steps: int,
    seed: int = 0,
    recompute: bool = False,
    accumulation_varies: bool = False,
) -> TrainingProgram:
    """The training program of one rank. The initial weights are a function of `seed`.

    Args:
        recompute: keep only the inputs of the encoder's layers for the backward pass.
        accumulation_varies: the first updates may have fewer micro-steps than gradient_accumulation_steps.
    """
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        # The integers of a micro-batch go to a card in small types; a CPU has them already.
        loss, metrics, outputs = objective.forward(training=True, small_feed=group.device == "gpu")
        inner = create_optimizer(optimizer, num_scheduled_steps)
        strategies = optimizer.fleet_strategies.split(",")
        _minimize(loss, inner, precision, group, gradient_accumulation_steps, strategies, accumulation_varies)
        shape = [len(objective.metric_names)]
        total = static.create_global_var(shape, 0, "float64", persistable=True, name=TRAINING_METRICS)
        with main._optimized_guard([]):
            paddle.assign(total + metrics, total)
    gather_gradients_of_gathers(main)
    _seed_initializers(startup, seed)
    model = objective.model
    onednn = not recompute or _is_bfloat16(precision)  # its kernels would keep what recomputation frees
    rates = (model.hidden_dropout_prob, model.attention_probs_dropout_prob)
    dropout = dropout_of(main, rates, group.device, onednn=onednn)
    fit_to_gloo(main, group)
    fit_to_gloo(startup, group)
    if group.device == "cpu":
        use_cpu_kernels(main, bfloat16=_is_bfloat16(precision), onednn=onednn)
    if recompute:
        dropout = replace(dropout, seeds=recompute_layers(main))
    return TrainingProgram(
        objective,
        main,
        startup,
        outputs={name: output.name for name, output in outputs.items()},
        parameters=tuple(sorted(p.name for p in main.all_parameters())),
        optimizer_state=_optimizer_state(inner),
        gradient_accumulation_steps=gradient_accumulation_steps,
        dropout=dropout,
        accumulation_varies=accumulation_varies,
        **_loss_scale_variables(main),
    )


def build_evaluation_program(objective: Objective, precision: PrecisionSettings = FLOAT32) -> EvaluationProgram:
    """The program of an evaluation; it uses the weights that the training program has put into the scope."""
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        _, metrics, _ = objective.forward(training=False)
        cast_forward(main, precision)
    use_cpu_kernels(main, bfloat16=_is_bfloat16(precision))
    return EvaluationProgram(main, metrics.name)


def build_prediction_program(
    objective: Objective, precision: PrecisionSettings = FLOAT32, *, seed: int = 0
) -> PredictionProgram:
    """The program of a prediction; its outputs are float32.

    It uses the weights in the scope of a training program; without one, run its startup program and write weights.

    Args:
        precision: precision of the training whose weights it uses.
    """
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        feed, network = objective.inputs(with_labels=False), objective.network()
        network.eval()
        outputs = objective.outputs(feed, network)
        if precision.amp:
            outputs = {name: output.astype("float32") for name, output in outputs.items()}
        cast_forward(main, precision)
    use_cpu_kernels(main, bfloat16=_is_bfloat16(precision))
    _seed_initializers(startup, seed)
    return PredictionProgram(
        objective,
        main,
        startup,
        tuple(feed),
        {name: v.name for name, v in outputs.items()},
        tuple(sorted(p.name for p in main.all_parameters())),
    )


def _minimize(
    loss, inner, precision: PrecisionSettings, group: Group, num_micro_steps: int, strategies: list[str], varies: bool
) -> None:
    """Append backward and update.

    Args:
        strategies: with "amp" Fleet's strategy casts instead of `decorate`; with "gradient_merge" Fleet's accumulates
            instead of AccumulatedGradients.
    """
    fleet = paddle.distributed.fleet
    strategy = fleet.DistributedStrategy()
    strategy.without_graph_optimization = True
    # Fuse the all-reduces of many gradients; Paddle does it only without gradient merge.
    strategy.fuse_all_reduce_ops = True
    strategy.fuse_grad_size_in_num = GRADIENTS_PER_ALL_REDUCE
    optimizer, accumulates_here = inner, num_micro_steps > 1 and "gradient_merge" not in strategies
    if num_micro_steps > 1 and not accumulates_here:
        strategy.gradient_merge = True
        strategy.gradient_merge_configs = {"k_steps": num_micro_steps, "avg": True}
    if precision.amp and "amp" not in strategies:  # Fleet's AMP does not support bfloat16
        optimizer = _decorate(inner, precision)
    elif precision.amp and accumulates_here:  # Fleet would apply it outside of the accumulation
        optimizer = fleet.meta_optimizers.AMPOptimizer(inner)
        optimizer._set_basic_info(
            loss, fleet.fleet._role_maker, inner, _with_amp(fleet.DistributedStrategy(), precision)
        )
    elif precision.amp:
        _with_amp(strategy, precision)
    if accumulates_here:
        optimizer = AccumulatedGradients(optimizer, inner, num_micro_steps, varies)
    fleet_optimizer = fleet.distributed_optimizer(optimizer, strategy)
    # Fleet prints the list of its meta-optimizers on every call.
    in_half_precision = precision.sums_in_half_precision()
    with gloo_on_cpu(group), sums_as_updated(in_half_precision), redirect_stdout(StringIO()):
        fleet_optimizer.minimize(loss)
    if num_micro_steps > 1:
        reduce_on_compute_stream(loss.block.program)
    if accumulates_here:
        cast_parameters_once(loss.block.program)


def _with_amp(strategy, precision: PrecisionSettings):
    """A strategy with Fleet's own mixed precision."""
    lists = {"custom_white_list": list(AMP_WHITE_LIST), "custom_black_list": list(AMP_BLACK_LIST)}
    strategy.amp = True
    strategy.amp_configs = {**_loss_scaling(precision), **lists, "use_fp16_guard": False}
    return strategy


def _seed_initializers(startup: static.Program, seed: int) -> None:
    """Seed every initializer by (seed, name of its parameter): `random_seed` gives equal shapes equal weights."""
    for operator in startup.global_block().ops:
        if operator.has_attr("seed"):
            key = stream_key(seed, "initial weights", operator.output("Out")[0])
            operator._set_attr("seed", int(key) & 0x7FFFFFFF or 1)


def _is_bfloat16(precision: PrecisionSettings) -> bool:
    return precision.amp and precision.amp_dtype == "bfloat16"


def _amp_lists(precision: PrecisionSettings):
    return static.amp.AutoMixedPrecisionLists(
        custom_white_list=set(AMP_WHITE_LIST), custom_black_list=set(AMP_BLACK_LIST), dtype=precision.amp_dtype
    )


def cast_forward(main: static.Program, precision: PrecisionSettings) -> None:
    """Insert into a program without backward the casts that `_decorate` inserts into a training's."""
    if not precision.amp:
        return
    dtype = getattr(paddle, precision.amp_dtype)
    static.amp.cast_model_to_fp16(main, _amp_lists(precision), use_fp16_guard=False, dest_type=dtype, level="O1")


def _loss_scaling(precision: PrecisionSettings) -> dict[str, Any]:
    is_float16 = precision.amp_dtype == "float16"
    return {
        "init_loss_scaling": precision.initial_loss_scale() if is_float16 else 1.0,
        "use_dynamic_loss_scaling": precision.use_dynamic_loss_scaling and is_float16,
        "incr_every_n_steps": precision.loss_scale_growth_interval,
        "decr_every_n_nan_or_inf": 1,
        "incr_ratio": precision.loss_scale_growth_factor,
        "decr_ratio": precision.loss_scale_backoff_factor,
    }


def _decorate(inner, precision: PrecisionSettings):
    lists, scaling = _amp_lists(precision), _loss_scaling(precision)
    return static.amp.decorate(inner, amp_lists=lists, level="O1", dtype=precision.amp_dtype, **scaling)


def _optimizer_state(optimizer) -> dict[str, str]:
    """The state an update reads and writes beside the parameters: "<parameter>/<accumulator>" -> variable."""
    state = {}
    for accumulator, variables in optimizer._accumulators.items():
        for parameter, variable in variables.items():
            state[f"{parameter}/{accumulator}"] = variable.name
    return state


def _loss_scale_variables(main: static.Program) -> dict:
    """Names of the loss scale and its counters, if an operator uses them (none does with bfloat16)."""
    if not any(operator.type == "check_finite_and_unscale" for block in main.blocks for operator in block.ops):
        return {}
    persistables = [variable.name for variable in main.list_vars() if variable.persistable]
    scale = [name for name in persistables if name.startswith("loss_scaling")]
    counters = [name for name in persistables if name.startswith(("num_good_steps", "num_bad_steps"))]
    return {"loss_scale": scale[0] if scale else None, "loss_scale_counters": tuple(sorted(counters))}
