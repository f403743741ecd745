"""Why --optimizer DistributedFusedLamb is refused: each reason, on the Paddle that is installed."""

import json
import os
import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.config.training_settings import OptimizerSettings, PrecisionSettings
from bert.interpreter import repository_environment
from bert.runtime.paddle_api import core, paddle, static, unique_name
from program import _decorate
from tests.support import tiny

OPERATOR = "distributed_fused_lamb"
BFLOAT16 = PrecisionSettings(amp=True, amp_dtype="bfloat16")
FIXED = PrecisionSettings(amp=True, use_dynamic_loss_scaling=False)
needs_operator = pytest.mark.skipif(
    OPERATOR not in core.get_all_op_names(), reason="the CPU wheel of Paddle 3.1 does not have the operator"
)


def build(precision=tiny.FLOAT32, micro_steps=1):
    """Its optimizer, and the main and the startup program of a small network that it updates."""
    paddle.enable_static()
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        loss = paddle.mean(static.nn.fc(static.data("x", [1, 4]), 2))
        lamb = paddle.incubate.DistributedFusedLamb(gradient_accumulation_steps=micro_steps)
        (_decorate(lamb, precision) if precision.amp else lamb).minimize(loss)
    return lamb, main, startup


def test_it_is_refused_with_the_reasons():
    with pytest.raises(ValueError, match="must be Lamb, .* a piece for each rank, .* does not run on CPUs, .* float16"):
        OptimizerSettings(optimizer="DistributedFusedLamb")


@needs_operator
@pytest.mark.parametrize(("precision", "micro_steps"), [(tiny.FLOAT32, 3), (BFLOAT16, 1)], ids=["float32", "bfloat16"])
def test_its_state_is_of_no_parameter(precision, micro_steps):
    """It builds, but no moment belongs to a parameter: what we save of an optimizer would be nothing, silently."""
    lamb, main, _ = build(precision, micro_steps)
    assert [op.type for op in main.global_block().ops].count(OPERATOR) == 1
    assert not lamb._accumulators and not lamb._master_weights
    for name in ("moment1_0", "moment2_0"):
        moment = main.global_block().var(name)
        assert moment.is_distributed and tuple(moment.shape) == (-1,)  # the kernel lays it out when it runs, by rank


def test_it_does_not_run_on_a_cpu():
    if OPERATOR not in core.get_all_op_names():
        with pytest.raises(ValueError, match="has not been registered"):
            build()
    elif not paddle.is_compiled_with_cuda():
        with pytest.raises(RuntimeError, match="for cpu kernel"):  # that is all its kernel does
            static.Executor(paddle.CPUPlace()).run(build()[2], scope=static.Scope())


@needs_operator
@pytest.mark.parametrize(
    ("precision", "message"),
    [
        (tiny.FLOAT16, r"size of input\(X\) is 1 and size of output\(Out\) is 0"),
        (FIXED, "no attribute '_num_good_steps'"),
    ],
    ids=["dynamic", "fixed"],
)
def test_it_cannot_be_built_with_a_float16_loss_scale(precision, message):
    with pytest.raises((ValueError, AttributeError), match=message):
        build(precision)


UNDER_FLEET = """
import json
from contextlib import redirect_stdout
from io import StringIO
from bert.runtime.distributed import Group, gloo_on_cpu
from bert.runtime.paddle_api import paddle, static
paddle.enable_static()
fleet = paddle.distributed.fleet
fleet.init(is_collective=True)
loss = paddle.mean(static.nn.fc(static.data("x", [1, 4]), 2))
strategy = fleet.DistributedStrategy()
strategy.without_graph_optimization = True
lamb = paddle.incubate.DistributedFusedLamb()
with gloo_on_cpu(Group(0, 8, "cpu", 0, 8)), redirect_stdout(StringIO()):
    fleet.distributed_optimizer(lamb, strategy).minimize(loss)
operators = static.default_main_program().global_block().ops
ranks = [op.attr("nranks") for op in operators if op.type == "distributed_fused_lamb"]
print(json.dumps([[op.type for op in operators], ranks]))
"""


@needs_operator
@pytest.mark.long
def test_fleet_sums_its_gradients_over_the_ranks_and_so_does_the_operator():
    """And Fleet moves the gradients into a buffer of its own, where the operator, which has another, misses them."""
    endpoints = ",".join(f"127.0.0.1:{6170 + rank}" for rank in range(8))
    ranks = {"PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "8", "PADDLE_TRAINER_ENDPOINTS": endpoints}
    variables = os.environ | repository_environment() | ranks | {"PADDLE_CURRENT_ENDPOINT": endpoints.split(",")[0]}
    command = [sys.executable, "-c", UNDER_FLEET]
    done = subprocess.run(command, env=variables, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    operators, ranks_of_operator = json.loads(done.stdout.splitlines()[-1])
    assert operators.count("c_allreduce_sum") == 1 and operators.count("coalesce_tensor") == 1
    assert ranks_of_operator == [8]
