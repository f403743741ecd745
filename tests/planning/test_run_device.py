"""The device of a dry run; a dry run and a plan of the same run need the same memory."""

import re

import pytest

from bert.commands import glue, pretrain, squad
from bert.config.automatic import CPU, DeviceFeatures
from bert.config.training_settings import derive
from bert.planning.dry_run import size_rows
from bert.planning.run_device import run_device
from bert.pretraining.entry import dry_run_report
from bert.pretraining.recipes import RECIPES
from bert.runtime import topology
from bert.runtime.topology import visible_gpus

LARGE, QUICKSTART = RECIPES["phase1_large"](), RECIPES["quickstart_phase1"]()
A100, V100 = ("NVIDIA A100-SXM4-80GB", (8, 0)), ("Tesla V100-SXM2-32GB", (7, 0))
GTX = ("NVIDIA GeForce GTX 1080 Ti", (6, 1))


def memory_rows(command, words, capsys) -> list[float]:
    """Return GB of each row `memory` that a command prints: the total, and each part."""
    assert command.main(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    rows = re.findall(
        r"memory (?:about )?([\d.]+ [GM]B) a (?:rank|device): parameters ([\d.]+ [GM]B), gradients ([\d.]+ [GM]B), "
        r"optimizer ([\d.]+ [GM]B), activations ([\d.]+ [GM]B)",
        text,
    )
    numbers = [size.split() for row in rows for size in row]
    return [float(number) / (1000 if unit == "MB" else 1) for number, unit in numbers]


@pytest.mark.parametrize(
    ("command", "config", "hardware", "dry_run"),
    [
        (pretrain, "large", "8xA100-80GB", []),
        (pretrain, "base", "8xA100-80GB", []),
        (pretrain, "dgxa100-80g_8gpu_tf32", "8xA100-80GB", []),
        (pretrain, "dgxa100-80g_4x8gpu_amp", "4x8xA100-80GB", []),
        (pretrain, "modernbert_base", "8xA100-80GB", []),
        (pretrain, "phase2_large", "1xA100-80GB", []),
        (pretrain, "large", "8xCPU-core", ["--device", "cpu"]),
        (pretrain, "quickstart", "2xCPU-core", ["--num-gpus", "2", "--device", "cpu"]),
        (squad, "squad_large", "1xA100-80GB", []),
        (squad, "dgxa100-80g_8gpu_amp", "8xA100-80GB", []),
        (squad, "squad_large_tf32", "1xA100-80GB", []),
        (squad, "squad_base", "1xCPU-core", []),
        (glue, "mnli_large", "1xA100-80GB", []),
    ],
)
def test_a_dry_run_on_a_laptop_and_a_plan_give_the_same_memory(
    command, config, hardware, dry_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["--config", config] + (["--squad-dir", "v1.1"] if command is squad else [])
    asked = memory_rows(command, [*words, "--dry-run", *dry_run], capsys)
    planned = memory_rows(command, [*words, "--plan", "--hardware", hardware], capsys)
    assert len(asked) == len(planned) and len(asked) in (5, 10)
    assert asked == pytest.approx(planned, rel=0.006, abs=0.06)  # they are rounded to 0.1 GB or MB, to three digits


@pytest.mark.parametrize(
    ("config", "world_size", "gpus", "name", "features"),
    [
        (LARGE, 8, [], "A100-80GB", DeviceFeatures("gpu", (8, 0))),
        (LARGE, 1, [], "A100-80GB", DeviceFeatures("gpu", (8, 0))),  # mixed precision is for GPUs
        (derive(LARGE, amp=False, tf32="on"), 1, [], "A100-80GB", DeviceFeatures("gpu", (8, 0))),
        (derive(LARGE, amp=False), 1, [], "CPU-core", CPU),
        (derive(LARGE, amp=False, device="gpu"), 1, [], "A100-80GB", DeviceFeatures("gpu", (8, 0))),
        (derive(LARGE, device="cpu"), 8, [], "CPU-core", CPU),
        (derive(LARGE, device="cpu"), 8, [A100] * 8, "CPU-core", CPU),
        (QUICKSTART, 1, [], "CPU-core", CPU),
        (QUICKSTART, 1, [V100], "V100-32GB", DeviceFeatures("gpu", (7, 0))),
        (LARGE, 8, [V100] * 8, "V100-32GB", DeviceFeatures("gpu", (7, 0))),
        (LARGE, 32, [V100] * 8, "V100-32GB", DeviceFeatures("gpu", (7, 0))),  # four nodes
        (LARGE, 8, [V100], "A100-80GB", DeviceFeatures("gpu", (8, 0))),  # this machine cannot run it
        (LARGE, 8, [V100] * 3, "A100-80GB", DeviceFeatures("gpu", (8, 0))),
        (LARGE, 1, [GTX], "NVIDIA GeForce GTX 1080 Ti", DeviceFeatures("gpu", (6, 1))),
    ],
)
def test_the_device_is_the_one_where_the_run_takes_place(config, world_size, gpus, name, features):
    device = run_device(config, world_size, gpus)
    assert (device.name, device.features) == (name, features)
    hardware = device.hardware(world_size)
    assert hardware is None if gpus == [GTX] else hardware.world_size() == world_size


@pytest.mark.parametrize(
    ("config", "world_size", "gpus", "row"),
    [
        (
            LARGE,
            8,
            [],
            "8 x A100-80GB (assumed: this machine has no GPU; --plan --hardware PART and --device cpu plan for others)",
        ),
        (LARGE, 8, [V100], "8 x A100-80GB (assumed: this machine has only 1 GPU; "),
        (LARGE, 8, [V100] * 3, "8 x A100-80GB (assumed: this machine has only 3 GPUs; "),
        (LARGE, 8, [V100] * 8, "8 x V100-32GB (this machine's)"),
        (QUICKSTART, 1, [], "1 rank on a CPU (this machine has no GPU)"),
        (derive(LARGE, device="cpu"), 2, [], "2 ranks on a CPU (device=cpu)"),
    ],
)
def test_the_device_is_named_and_an_assumed_one_is_called_so(config, world_size, gpus, row):
    assert run_device(config, world_size, gpus).describe(world_size).startswith(row)


def memory_row(config, world_size, gpus) -> str:
    device = run_device(config, world_size, gpus)
    return size_rows(device.resolve(config), world_size, device)["memory"]


def test_a_dry_run_names_what_the_memory_rests_on_and_whether_it_is_there():
    needs = "; with FlashAttention, which needs Ampere or newer (more memory on older cards); 78.0 GB are usable"
    assert memory_row(LARGE, 8, []).endswith(needs)
    assert memory_row(LARGE, 8, [A100] * 8).endswith("activations 28.6 GB; 78.0 GB are usable")
    assert memory_row(derive(LARGE, fuse_attention="off"), 8, []).endswith("activations 36.7 GB; 78.0 GB are usable")
    too_small = (
        "activations 36.7 GB; this does not fit in the 30.0 GB that are usable: pass --batch-size 128 or --recompute"
    )
    assert memory_row(LARGE, 8, [V100] * 8).endswith(too_small)
    assert "usable" not in memory_row(LARGE, 1, [GTX]) + memory_row(derive(LARGE, device="cpu"), 8, [])


def test_a_cpu_computes_mixed_precision_in_float32():
    """Weights and activations take four bytes on a CPU; on a GPU they take two bytes, and weights have two copies."""
    numbers = LARGE.model.num_parameters()
    assert f"parameters {4 * numbers / 1e9:.1f} GB" in memory_row(derive(LARGE, device="cpu"), 8, [])
    assert f"parameters {6 * numbers / 1e9:.1f} GB" in memory_row(LARGE, 8, [])
    report = dry_run_report(derive(LARGE, device="cpu"), 8)
    assert "mixed float16 (O1), which a CPU computes in float32" in report and "speed  " not in report


def test_the_speed_is_that_of_the_plan(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    shown = " ".join(dry_run_report(LARGE, 16).split())
    speed, hours, hardware = re.search(
        r"speed about ([\d,]+) sequences/s, ([\d.]+ hours) for all updates \(--plan --hardware (\S+) explains", shown
    ).groups()
    assert hardware == "2x8xA100-80GB"
    assert pretrain.main(["--config", "phase1_large", "--plan", "--hardware", hardware]) == 0
    planned = capsys.readouterr().out
    assert f"speed      {speed} sequences/s" in planned and f"7,038 updates: {hours}" in planned


@pytest.mark.parametrize(
    ("visible", "gpus"), [(None, [A100, V100, GTX]), ("2,0", [GTX, A100]), ("GPU-bb", [V100]), ("", []), ("7", [])]
)
def test_the_visible_gpus_are_read_from_the_driver(visible, gpus, monkeypatch):
    rows = [
        f"{n}, GPU-{uuid}, {major}.{minor}, {name}"
        for n, (uuid, (name, (major, minor))) in enumerate(zip(("aa1", "bb2", "cc3"), (A100, V100, GTX), strict=True))
    ]
    monkeypatch.setattr(topology, "nvidia_smi", lambda *words: rows)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == gpus
    monkeypatch.setattr(topology, "nvidia_smi", lambda *words: ["Field compute_cap is not a valid field"])
    assert visible_gpus() == []


@pytest.mark.parametrize("processors", [1, 2, 7])
def test_a_plan_of_fine_tuning_does_not_depend_on_the_processors_of_the_machine_that_plans(
    processors, tmp_path, monkeypatch, capsys
):
    """The quickstart has eight sequences an update: on two cores, two ranks of four."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("bert.launching.ranks.allowed_processors", lambda: [*range(processors)])
    assert squad.main(["--config", "squad_quickstart", "--plan", "--hardware", "1xA100-80GB"]) == 0
    shown = capsys.readouterr().out
    assert "micro-step 8 sequences" in shown and "update     1 x micro-step" in shown


def test_a_plan_and_a_dry_run_show_the_disk_space_of_all_checkpoints(tmp_path, monkeypatch, capsys):
    """BERT-large has 336,232,258 parameters, of 12 bytes each; three checkpoints are kept, one more is written."""
    monkeypatch.chdir(tmp_path)
    assert pretrain.main("--config large --plan --hardware 8xA100-80GB".split()) == 0
    planned = capsys.readouterr().out
    assert planned.count("disk       4.03 GB a checkpoint, 16.1 GB of checkpoints at most") == 2
    assert re.search(r"together +.*, 32\.3 GB of checkpoints at most", planned)
    assert pretrain.main("--config large --dry-run".split()) == 0
    assert capsys.readouterr().out.count("4.0 GB a checkpoint every 200 updates, 3 kept: 16.1 GB at most") == 2


def test_a_dry_run_counts_the_shards_that_are_there(tmp_path):
    config = derive(LARGE, input_dir=tmp_path / "shards")
    missing = "data       not made yet, and not counted; of Wikipedia, `"
    assert missing in dry_run_report(config, 8)
    (tmp_path / "shards").mkdir()
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / "shards" / name).write_bytes(bytes(1_300_000))
    shown = " ".join(dry_run_report(config, 8).split())
    assert f"data 2.6 MB in {tmp_path / 'shards'}" in shown
