"""Assigning cores to ranks, on simulated files of the kernel for various machines."""

import stat
from pathlib import Path

import pytest

from bert.runtime import topology
from bert.runtime.topology import Core, cpu_quota, memory_limit, num_threads_of, parse_list, share_of_rank, usable_cores


def machine(root: Path, *, cores: int, threads: int = 1, nodes: int = 1, interleaved: bool = False) -> Path:
    """Write /sys for `cores` cores with hyper-threads; processors p and p + cores are siblings, as on x86."""
    for processor in range(cores * threads):
        core = processor % cores
        folder = root / f"sys/devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        siblings = [str(core + cores * thread) for thread in range(threads)]
        (folder / "thread_siblings_list").write_text(",".join(siblings) + "\n")
    for node in range(nodes):
        folder = root / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        of_node = [
            p for p in range(cores * threads) if (p % nodes if interleaved else p % cores * nodes // cores) == node
        ]
        (folder / "cpulist").write_text(",".join(map(str, of_node)) + "\n")
    return root


def processors(cores: list[Core]) -> list[tuple[int, ...]]:
    return [core.processors for core in cores]


# ---- what the machine has -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text,numbers", [("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]), ("0", [0]), ("", []), ("rubbish", []), ("3-x", [])]
)
def test_lists_of_the_kernel(text, numbers):
    assert parse_list(text) == numbers


def test_hyper_threads_of_a_core_stay_together(tmp_path):
    root = machine(tmp_path, cores=4, threads=2)
    assert processors(usable_cores(range(8), root)) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_cores_come_node_by_node_even_where_their_numbers_alternate(tmp_path):
    root = machine(tmp_path, cores=4, nodes=2, interleaved=True)
    cores = usable_cores(range(4), root)
    assert [(core.processors, core.node) for core in cores] == [((0,), 0), ((2,), 0), ((1,), 1), ((3,), 1)]


def test_only_what_is_allowed_counts(tmp_path):
    root = machine(tmp_path, cores=4, threads=2)
    assert processors(usable_cores([1, 2, 6], root)) == [(1,), (2, 6)]


# ---- assignment -----------------------------------------------------------------------------------------------------


def shares(cores, ranks, near=()):
    return [
        [processor for core in share_of_rank(cores, rank, ranks, near) for processor in core.processors]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    "allowed,ranks,expected",
    [
        ([0, 1, 2, 3], 1, [[0, 1, 2, 3]]),
        ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
        ([4, 5, 9], 2, [[4], [5, 9]]),
        ([0, 1], 4, [[0], [1], [0], [1]]),
        ([7], 3, [[7], [7], [7]]),
    ],
)
def test_every_rank_has_cores_and_none_shares_without_need(tmp_path, allowed, ranks, expected):
    assert shares(usable_cores(allowed, tmp_path), ranks) == expected


def test_ranks_stay_near_their_gpus(tmp_path):
    """The machine is like a DGX: GPUs 0 and 1 belong to the second node, 2 and 3 to the first."""
    cores = usable_cores(range(8), machine(tmp_path, cores=8, nodes=2))
    near = [[4, 5, 6, 7]] * 2 + [[0, 1, 2, 3]] * 2
    assert shares(cores, 4, near) == [[4, 5], [6, 7], [0, 1], [2, 3]]


@pytest.mark.parametrize(
    "near",
    [
        [[90], [91]],  # not allowed to us
        [[0, 1, 2], [2, 3]],  # overlapping, so both would bind to 2
        [[0], [1, 2, 3], [0]],  # of another number of ranks
        [],
    ],
)
def test_hints_that_do_not_fit_are_ignored(tmp_path, near):
    assert shares(usable_cores(range(4), tmp_path), 2, near) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("rank,ranks", [(2, 2), (-1, 2)])
def test_a_rank_outside_its_host_is_refused(rank, ranks):
    with pytest.raises(ValueError, match=f"local_rank={rank} must be below local_world_size={ranks}"):
        share_of_rank([Core((0,), 0)], rank, ranks)


# ---- limits of containers and jobs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("quota,ranks,threads", [(None, 2, 4), (4.0, 2, 2), (1.0, 2, 1), (0.5, 1, 1), (64.0, 1, 4)])
def test_threads_are_cores_within_the_quota(quota, ranks, threads):
    assert num_threads_of([Core((number,), 0) for number in range(4)], ranks, quota) == threads


def group(root: Path, line: str, folder: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(line + "\n")
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / folder / name.replace("__", ".")).write_text(text + "\n")
    return root


def test_quota_of_version_2_is_the_tightest_of_the_groups_above(tmp_path):
    group(tmp_path, "0::/job/step", "sys/fs/cgroup/job", cpu__max="250000 100000", memory__max="8000000000")
    group(tmp_path, "0::/job/step", "sys/fs/cgroup/job/step", cpu__max="max 100000", memory__max="max")
    assert cpu_quota(tmp_path) == 2.5
    assert memory_limit(tmp_path) == 8_000_000_000


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def driver(folder: Path, monkeypatch, lines: str, code: int = 0) -> None:
    """Make a fake nvidia-smi with this output."""
    program = folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '{lines}'\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


GPUS = r"0, GPU-8932f937, 00000000:07:00.0\n1, GPU-74dee6a9, 00000000:0F:00.0\n"


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    for bus_id, near in (("0000:07:00.0", "48-63"), ("0000:0f:00.0", "0-15,64-79")):
        (tmp_path / "sys/bus/pci/devices" / bus_id).mkdir(parents=True)
        (tmp_path / "sys/bus/pci/devices" / bus_id / "local_cpulist").write_text(near)
    driver(tmp_path, monkeypatch, GPUS)
    return tmp_path


def test_processors_near_each_gpu_in_the_drivers_order(two_gpus):
    first, second = topology.gpu_local_processors(root=two_gpus)
    assert first == list(range(48, 64)) and second == [*range(16), *range(64, 80)]


@pytest.mark.parametrize("visible", [["1"], ["GPU-74dee6a9"], ["GPU-74"]])
def test_only_visible_gpus_count_by_number_or_uuid(two_gpus, visible):
    assert topology.gpu_local_processors(visible, two_gpus) == [[*range(16), *range(64, 80)]]
    assert topology.gpu_local_processors([*visible, "0"], two_gpus)[1] == list(range(48, 64))


@pytest.mark.parametrize("visible", [["2"], ["GPU-"], ["MIG-1"], ["0", "GPU-99"]])
def test_gpus_that_are_not_listed_give_no_hint(two_gpus, visible):
    assert topology.gpu_local_processors(visible, two_gpus) == []


@pytest.mark.parametrize(
    ("text", "visible"),
    [(None, None), ("all", None), ("4,5", ["4", "5"]), ("GPU-1, GPU-2", ["GPU-1", "GPU-2"]), ("", [])],
)
def test_visible_devices_are_read_from_the_environment(monkeypatch, text, visible):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if text is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    assert topology.visible_devices() == visible
