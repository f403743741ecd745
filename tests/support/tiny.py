"""A tiny model of sizes that cannot be confused, random batches, and a session that runs its training program.

`runs` starts whole runs of this model in this process, `tests/faults/trainings.py` the command in processes of its own.
"""

from functools import lru_cache

import numpy as np
from safetensors.numpy import save_file

import program
from bert.checkpoints.directories import write_checkpoint
from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.config.training_settings import BertConfig
from bert.model.learning_rate_schedule import Schedule
from bert.model.objectives import PretrainingObjective
from bert.model.optimization import load_schedule
from bert.pretraining.config import PretrainingConfig
from bert.runtime.distributed import Collective, Group, initialize
from bert.runtime.paddle_api import place_of, read_variable, static, write_variable
from bert.samples.collation import MicroBatch
from bert.samples.global_batches import GlobalBatch
from bert.training.task import Task
from bert.training.trainer import Device
from program import TRAINING_METRICS, build_training_program

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODEL = BertConfig(vocab_size=99, max_position_embeddings=16, **SIZES, **NO_DROPOUT)
MODEL_WITH_DROPOUT = MODEL.model_copy(update={"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})
ONE_RANK = Group(0, 1, "cpu")
LAMB = OptimizerSettings(optimizer="Lamb", learning_rate=1e-2)
# For comparing sums made in different orders: with an epsilon of 1e-6, entries whose gradients cancel to rounding noise
# would move by that noise blown up.
STEADY_LAMB = OptimizerSettings(optimizer="Lamb", learning_rate=1e-2, epsilon=1e-4)
STEADY_ADAMW = OptimizerSettings(optimizer="AdamW", learning_rate=3e-3, epsilon=1e-4)
FLOAT32 = PrecisionSettings()
FLOAT16 = PrecisionSettings(amp=True)
NUM_STEPS = 20

_initialized: list[Group] = []
# A program is a pure function of its settings, and half of a session's time; it takes some 20 MB.
build = lru_cache(maxsize=12)(build_training_program)


def join(group: Group) -> None:
    """Join Fleet's environment of this process, once."""
    if not _initialized:
        initialize(group)
        _initialized.append(group)


def task_of(config, **attributes) -> Task:
    """Return a task without data, for trainers that get their batches from the test."""
    task = Task()
    vars(task).update(config=config, **attributes)
    return task


def random_batch(seed: int, size: int = 13, length: int = 7, masked: tuple[int, ...] = (3, 1, 0, 2, 4)) -> dict:
    """Return sequences of 3 to `length` tokens; sequence i has `masked[i % len(masked)]` masks. Labels follow inputs.

    The label of a masked token is a function of its neighbour and next_sentence_labels one of the first token, so
    there is something to learn.
    """
    rng = np.random.RandomState(seed)
    lengths = rng.randint(max(3, max(masked) + 1), length + 1, size)
    inside = np.arange(length) < lengths[:, None]
    input_ids = np.where(inside, rng.randint(5, MODEL.vocab_size, (size, length)), 0)
    rows, columns = [], []
    for row in range(size):
        rows += [row] * masked[row % len(masked)]
        columns += list(1 + rng.permutation(lengths[row] - 1)[: masked[row % len(masked)]])
    rows, columns = np.array(rows, "int64"), np.array(columns, "int64")
    labels = (input_ids[rows, columns - 1] * 7 + 3) % MODEL.vocab_size
    input_ids[rows, columns] = 4
    return {
        "input_ids": input_ids.astype("int64"),
        "token_type_ids": (np.arange(length) * 2 > lengths[:, None]).astype("int64") * inside,
        "attention_mask": inside.astype("int64"),
        "rows": rows,
        "columns": columns,
        "labels": labels.astype("int64"),
        "next_sentence_labels": (input_ids[:, 0] % 2).astype("int64"),
    }


def feeds(batch: dict, num_micro_batches: int = 1, *, num_padding: int = 2) -> list[dict]:
    """Return equal micro-batches of the batch, as a loader feeds them; `num_padding` masked entries weigh nothing."""
    size, length = batch["input_ids"].shape
    per_micro_batch = size // num_micro_batches
    assert per_micro_batch * num_micro_batches == size
    normalizer = max(len(batch["rows"]) / num_micro_batches, 1.0)
    result = []
    for start in range(0, size, per_micro_batch):
        chosen = (batch["rows"] >= start) & (batch["rows"] < start + per_micro_batch)
        rows, columns = batch["rows"][chosen] - start, batch["columns"][chosen]
        feed = {
            name: batch[name][start : start + per_micro_batch]
            for name in ("input_ids", "token_type_ids", "attention_mask", "next_sentence_labels")
        }
        feed["masked_lm_positions"] = np.pad(rows * length + columns, (0, num_padding))
        feed["masked_lm_labels"] = np.pad(batch["labels"][chosen], (0, num_padding))
        feed["masked_lm_weights"] = np.pad(np.ones(chosen.sum(), "float32"), (0, num_padding))
        feed["masked_lm_normalizer"] = np.array([normalizer], "float32")
        result.append(feed)
    return result


def overflowing(feed: dict) -> dict:
    """Return the same micro-batch with an infinite loss, hence gradients that are not finite."""
    weights = feed["masked_lm_weights"].copy()
    weights[0] = np.inf
    return {**feed, "masked_lm_weights": weights}


class Session:
    """Holds a training program of the tiny model, initialised in a scope of its own."""

    def __init__(
        self,
        *,
        model=MODEL,
        optimizer=LAMB,
        precision=FLOAT32,
        group=ONE_RANK,
        micro_steps=1,
        seed=3,
        num_steps=NUM_STEPS,
        warmup_steps=4,
        fuse_mha=False,
        objective=None,
        recompute=False,
    ):
        join(group)
        objective = objective or PretrainingObjective(model, fuse_mha)
        steps = {"gradient_accumulation_steps": micro_steps, "num_scheduled_steps": num_steps}
        self.program = build(objective, optimizer, precision, group, **steps, seed=seed, recompute=recompute)
        self.group, self.place, self.scope = group, place_of("cpu"), static.Scope()
        self.executor = static.Executor(self.place)
        self.executor.run(self.program.startup, scope=self.scope)
        self.schedule = Schedule(optimizer, warmup_steps, num_steps)
        load_schedule(self.scope, self.schedule, self.place)

    def device(self) -> Device:
        return Device(self.executor, self.scope, self.place, self.group, Collective(self.group, self.executor), 1.0)

    def update(self, micro_batches: list[dict]) -> dict[str, float]:
        """Run all micro-batches of one update; return sums over them, by the names of its objective."""
        assert len(micro_batches) == self.program.gradient_accumulation_steps
        self.write(TRAINING_METRICS, np.zeros(len(self.program.objective.metric_names)))
        for micro_step, feed in enumerate(micro_batches):
            self.micro_step(feed, micro_step)
        return dict(zip(self.program.objective.metric_names, self.read(TRAINING_METRICS).tolist(), strict=True))

    def micro_step(self, feed: dict, key: int) -> None:
        self.program.dropout.draw(self.scope, self.place, feed, np.uint64(key))
        self.executor.run(self.program.main, feed=feed, scope=self.scope)

    def read(self, name: str) -> np.ndarray:
        return read_variable(self.scope, name)

    def value(self, name: str) -> float:
        return self.read(name).reshape(-1)[0].item()

    def write(self, name: str, value) -> None:
        write_variable(self.scope, name, value, self.place)

    def parameters(self) -> dict[str, np.ndarray]:
        return {name: self.read(name) for name in self.program.parameters}

    def optimizer_state(self) -> dict[str, np.ndarray]:
        return {key: self.read(name) for key, name in self.program.optimizer_state.items()}

    def persistables(self) -> dict[str, np.ndarray]:
        """Return all variables that outlive a micro-step, whoever made them."""
        names = {v.name for v in self.program.main.list_vars() if v.persistable}
        return {name: self.read(name) for name in sorted(names) if name not in ("feed", "fetch")}


def relative_difference(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    """Return max abs difference / max abs value, of the tensor where it is largest.

    Not of key biases: softmax cancels what they add, so their gradients are rounding noise, which LAMB and Adam blow up
    to steps of any direction. They stay small, and have no effect.
    """
    assert left.keys() == right.keys()
    for name in [name for name in left if name.endswith("key.bias")]:
        assert max(np.abs(left[name]).max(), np.abs(right[name]).max()) < 1e-3, name
    return max(
        float(np.abs(left[name].astype("float64") - right[name]).max() / max(np.abs(right[name]).max(), 1e-30))
        for name in left
        if not name.endswith("key.bias")
    )


def assert_identical(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    different = [name for name in left if left[name].tobytes() != right[name].tobytes()]
    assert not different, different


def write_weights(folder, parameters: dict[str, np.ndarray], model: BertConfig, vocabulary):
    """Write a checkpoint of weights alone, like the published ones."""

    def write_files(directory) -> None:
        save_file(parameters, directory / "bert_paddle.safetensors")
        (directory / "bert_config.json").write_text(model.to_json())
        (directory / "vocab.txt").write_bytes(vocabulary.read_bytes())

    return write_checkpoint(folder, 1, write_files)


def micro_batch(feed: dict) -> MicroBatch:
    mask = feed["attention_mask"]
    return MicroBatch(feed, len(mask), int(mask.sum()), mask.size, int(np.isfinite(feed["masked_lm_weights"]).sum()))


def updates(start_step: int, micro_steps: int = 1, size: int = 12, change=lambda step, feeds: feeds):
    """Yield batches from `start_step` on, each a function of its step; `change(step, feeds)` may damage them."""
    step = start_step
    while True:
        yield GlobalBatch(step, 0, map(micro_batch, change(step, feeds(random_batch(step, size), micro_steps))))
        step += 1


def pretraining_config(directory, **changes) -> PretrainingConfig:
    """Return settings of a tiny run under `directory`; `changes` are flat names, `model` a BertConfig."""
    from bert.config.training_settings import derive

    vocabulary = directory / "vocab.txt"
    if not vocabulary.exists():
        vocabulary.write_text("".join(f"word{i}\n" for i in range(MODEL.vocab_size)))
    config = PretrainingConfig(
        model=MODEL,
        data={"input_dir": directory, "vocab_file": vocabulary, "max_seq_length": 16, "max_predictions_per_seq": 3},
        batch={"batch_size": 12},
        run={"phase": 1, "max_steps": NUM_STEPS, "bert_model": "bert-test", "output_dir": directory / "results"},
        optimizer={"learning_rate": 1e-2},
        hardware={"device": "cpu", "visualdl": False, "peak_tflops": 1.0},
    )
    return derive(config, **{"log_freq": 1, "num_steps_per_checkpoint": 1000, **changes})


def build_as_on_a_gpu(monkeypatch) -> None:
    """Give programs a GPU's casts: a build of Paddle without half-precision kernels inserts none."""
    amp_lists = program._amp_lists

    def of_all_operators(precision):
        lists = amp_lists(precision)
        lists.unsupported_list = set()
        return lists

    monkeypatch.setattr(program, "_amp_lists", of_all_operators)
    monkeypatch.setattr(program, "use_cpu_kernels", lambda *_, **__: None)
