"""LAMB and AdamW with a learning-rate schedule, gradient clipping and a guard against non-finite gradients.

Schedule, guard and counters are part of the graph: an update with non-finite gradients changes no variable, is counted,
and does not advance the learning rate, without a transfer to the host at every step.
"""

from collections.abc import Callable, Sequence

from bert.config.optimizer_settings import OptimizerSettings
from bert.model.gradient_accumulation import order
from bert.model.learning_rate_schedule import Schedule
from bert.runtime.paddle_api import paddle, static, write_variable

LEARNING_RATE = "learning_rate"
LEARNING_RATE_TABLE = "learning_rate_table"
GRADIENT_NORM = "gradient_norm"
APPLIED_UPDATES = "applied_updates"
SKIPPED_UPDATES = "skipped_updates"
CONSECUTIVE_SKIPPED_UPDATES = "consecutive_skipped_updates"
COUNTERS = (APPLIED_UPDATES, SKIPPED_UPDATES, CONSECUTIVE_SKIPPED_UPDATES)


def decays(parameter_name: str) -> bool:
    """Whether a parameter has weight decay and LAMB's trust ratio; biases and LayerNorm have none."""
    return not (parameter_name.endswith("bias") or ".LayerNorm." in parameter_name)


class _GuardedUpdate:
    """Mixin for a Paddle optimizer: computes one global norm for the guard, the clipping and the log.

    Attributes:
        parts: (parameter, its part) of a buffer, which is then passed as the only gradient; empty: there is none.
    """

    parts: Sequence = ()
    max_grad_norm: float
    num_scheduled_steps: int
    _found_inf_on_host: bool
    _get_auxiliary_var: Callable  # the next two methods are Paddle's as well
    _set_auxiliary_var: Callable
    _learning_rate_map: dict

    def apply_gradients(self, params_grads):
        program = static.default_main_program()
        params_grads = sorted(params_grads, key=lambda pair: pair[0].name)
        with program._optimized_guard([]):
            gradients = [gradient for _, gradient in params_grads]
            squares = [paddle.nn.clip._squared_l2_norm(gradient) for gradient in gradients]
            norm = paddle.sqrt(paddle.add_n(squares))
            found_inf = self._get_auxiliary_var("found_inf")
            if found_inf is None:  # without loss scaling, float32 and bfloat16 would otherwise train on with NaN
                found_inf = paddle.logical_not(paddle.isfinite(norm))
                copy = paddle.tensor.creation._memcpy
                flag = copy(found_inf, paddle.CPUPlace()) if self._found_inf_on_host else found_inf
                self._set_auxiliary_var("found_inf", flag)
            if self.max_grad_norm > 0:
                _scale_in_place(gradients, self.max_grad_norm / paddle.clip(norm, min=self.max_grad_norm))
            if self.parts:
                order(program.current_block(), gradients, [part for _, part in self.parts])  # they are read from here
                params_grads = sorted(self.parts, key=lambda pair: pair[0].name)
            paddle.assign(norm.reshape([1]), _persistable(GRADIENT_NORM, "float32"))
            self._learning_rate_map[program] = _scheduled_learning_rate(self.num_scheduled_steps)
        operators = super().apply_gradients(params_grads)  # type: ignore[misc]
        with program._optimized_guard([]):
            _count_update(found_inf)
        return operators


class GuardedLamb(_GuardedUpdate, paddle.optimizer.Lamb):
    """LAMB (You et al., 2020); clipping to a global norm of 1 makes it NVLAMB."""

    _found_inf_on_host = False

    def _add_accumulator(self, *arguments, **named):
        # Paddle puts the beta powers on the host. There the GPU kernel multiplies them without a look at `found_inf`,
        # which is on the card, so a skipped update would advance them; beside the moments it does look.
        return super()._add_accumulator(*arguments, **(named | {"device": None}))


class GuardedAdamW(_GuardedUpdate, paddle.optimizer.AdamW):
    """AdamW (Loshchilov & Hutter, 2019): decoupled weight decay, scaled by the learning rate."""

    _found_inf_on_host = True  # its kernel reads SkipUpdate on the host


def create_optimizer(settings: OptimizerSettings, num_scheduled_steps: int):
    """Build the optimizer of `settings` for `amp.decorate` or Fleet; learning rates come from a table."""
    common = settings.model_dump(include={"learning_rate", "beta1", "beta2", "epsilon"})
    if settings.optimizer == "Lamb":
        optimizer = GuardedLamb(
            lamb_weight_decay=settings.weight_decay,
            exclude_from_weight_decay_fn=lambda parameter: not decays(parameter.name),
            always_adapt=settings.always_adapt,
            **common,
        )
    else:
        optimizer = GuardedAdamW(weight_decay=settings.weight_decay, apply_decay_param_fun=decays, **common)
    for parameter in static.default_main_program().all_parameters():
        factor = settings.head_rate_factor if parameter.name.startswith("cls.predictions.") else 1.0
        factor = settings.embedding_rate_factor if parameter.name.endswith("word_embeddings.weight") else factor
        if factor != 1:
            parameter.optimize_attr = {"learning_rate": factor}
    optimizer.max_grad_norm = settings.max_grad_norm
    optimizer.num_scheduled_steps = num_scheduled_steps
    return optimizer


def load_schedule(scope, schedule: Schedule, place) -> None:
    """Write the learning rates into the scope, after the startup program and before the first update."""
    write_variable(scope, LEARNING_RATE_TABLE, schedule.table(), place)


def _scale_in_place(gradients, factor) -> None:
    block = static.default_main_program().current_block()
    for gradient in gradients:
        inputs, outputs = {"X": gradient, "Y": factor}, {"Out": gradient}
        block.append_op(type="elementwise_mul", inputs=inputs, outputs=outputs, attrs={"axis": -1})


def _persistable(name: str, dtype: str, shape=(1,)):
    """A persistable variable of the main program, created at its first use and initially zero."""
    block = static.default_main_program().global_block()
    if block.has_var(name):
        return block.var(name)
    return static.create_global_var(list(shape), 0, dtype, persistable=True, name=name)


def _scheduled_learning_rate(num_scheduled_steps: int):
    """A variable that is set to the learning rate for the number of updates applied so far."""
    table = _persistable(LEARNING_RATE_TABLE, "float32", (num_scheduled_steps,))
    position = paddle.clip(_persistable(APPLIED_UPDATES, "int64"), max=num_scheduled_steps - 1)
    learning_rate = _persistable(LEARNING_RATE, "float32")
    paddle.assign(paddle.gather(table, position), learning_rate)
    return learning_rate


def _count_update(found_inf) -> None:
    skipped = found_inf.reshape([1]).astype("int64")
    applied, total_skipped, consecutive = (_persistable(name, "int64") for name in COUNTERS)
    paddle.assign(applied + (1 - skipped), applied)
    paddle.assign(total_skipped + skipped, total_skipped)
    paddle.assign((consecutive + skipped) * skipped, consecutive)
