"""NVIDIA's published throughputs of BERT-large, sequences/s, from its READMEs of BERT for PaddlePaddle, PyTorch and
TensorFlow 2.

The three Paddle programs are three commits of one README, an ablation. What each program fuses, and whether its phase 2
read shards in bins, is our reading of its code and changelog.
"""

import dataclasses
from typing import Literal

from bert.planning.hardware import Fusion, ProgramKind

Task = Literal["phase 1", "phase 2", "SQuAD"]

# Paddle's pass that fuses the epilogue of matrix products takes biases and gelu; TorchScript's fuser and cuBLAS take
# the biases with what follows them.
_EPILOGUE: frozenset[Fusion] = frozenset({"bias", "activation"})
_ATTENTION: frozenset[Fusion] = _EPILOGUE | {"attention", "qkv"}
_NODES = (8, 16, 32, 64, 128, 256)


@dataclasses.dataclass(frozen=True)
class Table:
    """Holds figures of one program in one precision on one part, as sequences/s by number of devices."""

    name: str
    precision: Literal["AMP", "TF32", "FP32"]
    fused: frozenset[Fusion]
    phase1: dict[int, float]
    phase2: dict[int, float]
    squad: dict[int, float] = dataclasses.field(default_factory=dict)
    binned: bool = True  # phase 2 on shards in bins of 64
    waits: bool = True  # fine-tuning waits for the flag of non-finite gradients, which a loss scale needs
    part: str = "A100-80GB"
    batch_sizes: tuple[int, int, int] = (256, 32, 32)  # of a micro-batch in phase 1, phase 2, SQuAD
    per_device: tuple[int, int] = (8192, 4096)  # sequences of an update on each of 8 devices

    def kind(self, task: Task) -> ProgramKind:
        return ProgramKind(self.fused, host_waits=self.waits and task == "SQuAD")

    def figures(self) -> dict[tuple[Task, int], float]:
        """Return the figures by task and number of devices."""
        found: dict[tuple[Task, int], float] = {("phase 1", n): value for n, value in self.phase1.items()}
        found |= {("phase 2", n): value for n, value in self.phase2.items()}
        return found | {("SQuAD", n): value for n, value in self.squad.items()}


def _multi_node(one: float, *nodes: float) -> dict[int, float]:
    return {1: one, **dict(zip(_NODES, nodes, strict=True))}


PADDLE_PLAIN = Table("Paddle, nothing fused", "AMP", frozenset(), {8: 4200}, {8: 823}, binned=False)
PADDLE_EPILOGUE = Table(
    "Paddle, + epilogue and bins",
    "AMP",
    _EPILOGUE,
    _multi_node(633, 4990, 9581, 19262, 37526, 71156, 142087),
    _multi_node(219, 1724, 3305, 6492, 12884, 25493, 49307),
    {1: 120, 8: 876},
)
PADDLE_ATTENTION = Table(
    "Paddle, + attention and QKV",
    "AMP",
    _ATTENTION,
    _multi_node(694, 5541, 10646, 21389, 41681, 79023, 157952),
    _multi_node(264, 2109, 4051, 7972, 15760, 31129, 60206),
    {1: 123, 8: 929},
)
PADDLE_TF32 = Table(
    "Paddle",
    "TF32",
    frozenset(),
    _multi_node(307, 2428, 4638, 9445, 18335, 35526, 69701),
    _multi_node(107, 851, 1601, 3240, 6329, 12273, 24047),
    {1: 83, 8: 629},
    waits=False,
    batch_sizes=(128, 16, 32),
)
PYTORCH = Table(
    "PyTorch",
    "AMP",
    frozenset({"bias"}),
    _multi_node(580, 4591, 9191, 18119, 35774, 70555, 138294),
    _multi_node(210, 1657, 3291, 6464, 13005, 25570, 49663),
    {1: 110.5, 8: 846.7},
)
PYTORCH_TF32 = Table(
    "PyTorch",
    "TF32",
    frozenset({"bias"}),
    _multi_node(317, 2505, 4979, 9859, 19815, 38866, 75706),
    _multi_node(110, 860, 1684, 3293, 6515, 12131, 21298),
    {1: 61.5, 8: 469.8},
    waits=False,
    batch_sizes=(128, 16, 32),
)
PYTORCH_V100 = Table(
    "PyTorch",
    "AMP",
    frozenset({"bias"}),
    {1: 224, 8: 1746},
    {1: 75, 8: 586},
    {1: 52, 8: 382},
    part="V100-32GB",
    batch_sizes=(64, 8, 16),
    per_device=(4096, 2048),
)
PYTORCH_V100_FP32 = Table(
    "PyTorch",
    "FP32",
    frozenset({"bias"}),
    {1: 50, 8: 387},
    {1: 19, 8: 149.6},
    {1: 12, 8: 85.5},
    waits=False,
    part="V100-32GB",
    batch_sizes=(32, 4, 8),
    per_device=(4096, 2048),
)
TENSORFLOW = Table("TensorFlow 2", "AMP", frozenset(), {8: 3799}, {8: 700}, {8: 1048}, binned=False)  # 650-750

TABLES = (
    PADDLE_PLAIN,
    PADDLE_EPILOGUE,
    PADDLE_ATTENTION,
    PADDLE_TF32,
    PYTORCH,
    PYTORCH_TF32,
    PYTORCH_V100,
    PYTORCH_V100_FP32,
    TENSORFLOW,
)
GAIN_OF_BINS = 1.73  # published for bins of 64 in phase 2
HOURS_ON_32_NODES = ((PADDLE_EPILOGUE, 1.2), (PADDLE_ATTENTION, 1.1), (PADDLE_TF32, 2.5))  # start and all
