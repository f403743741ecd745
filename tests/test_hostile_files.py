"""Small files that could take endless time or memory, or point elsewhere, given to the commands that read them.

The commands run one after the other in another process, which measures each: it ends with exit code 2 and lines that
name the file, the rule and the remedy. Files that would run code: `conversion/test_hostile.py`. Texts:
`data/text/test_import_text.py`.
"""

import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from bert import REPOSITORY
from bert.config.architecture import BertConfig
from bert.config.plain_yaml import read_yaml
from bert.finetuning.squad.answer_settings import read_reader_settings
from bert.inference.predictor import Predictor
from bert.jobs.record import JobRecord
from bert.own_text.record import read_record
from bert.reporting.run_record import read_run
from bert.samples.formats.tfrecord import masked_crc32c
from bert.samples.manifest import MANIFEST_NAME, read_manifest
from bert.samples.mixture import MIXTURE_NAME, read_mixture
from bert.samples.shards import NUM_SAMPLES_NAME, recorded_counts
from tests.conversion import test_hostile
from tests.conversion.test_hostile import TEN_THOUSAND, one_tensor, pdparams, raw, torch_zip
from tests.support.corpora import random_table, write_shards, write_vocabulary

MOST_SECONDS = 12  # of CPU time; the imports of the first command take two or three
MOST_MEGABYTES = 450  # more than before, and 20 times the file; the imports take up to 250


# ---- weights ---------------------------------------------------------------------------------------------------------


def memo_bomb(folder: Path) -> Path:
    """Write a pickle that encodes one text of 10 kB 50,000 times."""
    call = b"h\x01h\x00\x8c\x06latin1\x86Ra"
    return raw(folder, "m.pdparams", b"\x80\x04" + TEN_THOUSAND + b"c_codecs\nencode\n\x94]" + call * 50_000 + b".")


def slices_of_one_array(folder: Path) -> Path:
    """Write 100,000 names of one array of 1 MB, which a table joins: 100 GB."""
    names = [f"slice{i}" for i in range(100_000)]
    table = {"x": {"slices": names, "OriginShape": (250_000 * len(names),)}}
    array = np.zeros(250_000, "float32")
    return pdparams(folder, {**dict.fromkeys(names, array), "UnpackBigParamInfor@@": table})


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def shared_names(folder: Path, length: int) -> Path:
    """Write TensorFlow's index of 100,000 names that have all but 6 letters in common."""

    def block(entries: bytes) -> bytes:
        content = entries + struct.pack("<II", 0, 1)
        return content + b"\0" + struct.pack("<I", masked_crc32c(content + b"\0"))

    entry = varint(length - 6) + varint(6) + varint(0)
    names = [varint(0) + varint(length) + varint(0) + b"a" * length, *(entry + b"%06d" % i for i in range(100_000))]
    table = block(b"".join(names))
    place = varint(0) + varint(len(table) - 5)
    index = block(varint(0) + varint(1) + varint(len(place)) + b"z" + place)
    footer = varint(0) + varint(0) + varint(len(table)) + varint(len(index) - 5)
    return raw(folder, "m.ckpt.index", table + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57))


def empty_tensor(folder: Path, shape: list[int]) -> Path:
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    return raw(folder, "model.safetensors", struct.pack("<Q", len(header)) + header)


def named(folder: Path, name: str) -> Path:
    save_file({name: np.zeros(2, "float32")}, folder / "model.safetensors")
    return folder / "model.safetensors"


WEIGHTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    **{
        name: test_hostile.REFUSED[name]
        for name in ("shared tuples as a key", "a stride of 2^80", "a header of exabytes", "JSON of 100,000 levels")
    },
    "encoded again and again": (memo_bomb, "builds more than it holds"),
    "100,000 slices of one array": (slices_of_one_array, "they overlap"),
    "names of 2 kB": (lambda f: shared_names(f, 1990), "times as long as the file"),
    "an empty tensor of exabytes": (lambda f: empty_tensor(f, [0, *[1 << 40] * 3]), "fetch or make it again"),
    "100 dimensions of torch": (
        lambda f: torch_zip(f, one_tensor(*[b"(" + b"K\x01" * 100 + b"t"] * 2)),
        "at most 8 sizes",
    ),
    "a name of several lines": (lambda f: named(f, "a\nerror: well\x1b[31m\r"), r"a\nerror: well\x1b[31m\r"),
    "a key of 9,600 digits": (
        lambda f: raw(f, "m.pdparams", b"\x80\x04}\x8b" + struct.pack("<i", 4000) + b"\x7f" * 4000 + b"K\x01s."),
        "holds no BERT",
    ),
}


# ---- settings --------------------------------------------------------------------------------------------------------


def references() -> str:
    """Return 11 levels, each 9 times the level before."""
    levels = ["- &a0 [x]", *(f"- &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
    return "\n".join(levels)


SETTINGS = {
    "a list of references": (references(), "line 2 has the reference *a0; write plain"),
    "merges": ("x: &a0 {seed: 1}\n" + "".join(f"y{i}: &a{i}\n  <<: *a{i - 1}\n" for i in range(1, 25)), "*a0"),
    "lists in lists": ("[" * 20_000, "nesting of more than"),
    "hexadecimal digits": ("seed: 0x" + "f" * 50_000, "a value of 50002 characters"),
    "decimal digits": ("seed: " + "9" * 2999, "seed=999"),
    "an empty number": ('seed: !!float ""', "a value is not what its tag, as !!float, says"),  # found by fuzzing
    "a tag that runs": ("seed: !!python/object/apply:os.system [id]", "could not determine a constructor"),
}


# ---- shards and vocabularies -----------------------------------------------------------------------------------------


def hdf5(folder: Path, rows: int = 4, **others: dict) -> Path:
    """Write a shard without stored values; `others`: dataset -> arguments of its creation."""
    shards = folder / "shards"
    shards.mkdir()
    with h5py.File(shards / "a.hdf5", "w") as file:
        for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids"):
            if name not in others:
                file.create_dataset(name, (rows, 32), "i4", chunks=(1, 32))
        file.create_dataset("next_sentence_labels", (rows,), "i1", chunks=(1,))
        for name, options in others.items():
            file.create_dataset(name, **options)
    return shards


def linked(folder: Path) -> Path:
    secret = hdf5(folder) / "a.hdf5"
    secret = secret.rename(folder / "secret.h5")
    with h5py.File(folder / "shards/a.hdf5", "w") as file:
        file["input_ids"] = h5py.ExternalLink(str(secret), "/input_ids")
    return folder / "shards"


def virtual(folder: Path) -> Path:
    secret = (hdf5(folder) / "a.hdf5").rename(folder / "secret.h5")
    layout = h5py.VirtualLayout((4, 32), "i4")
    layout[:] = h5py.VirtualSource(str(secret), "input_ids", (4, 32))
    (folder / "shards").rmdir()
    shards = hdf5(folder, input_ids={"shape": (4, 32), "dtype": "i4"})
    with h5py.File(shards / "a.hdf5", "a") as file:
        del file["input_ids"]
        file.create_virtual_dataset("input_ids", layout)
    return shards


OUTSIDE = {"shape": (4, 32), "dtype": "i1", "external": [("/etc/passwd", 0, 128)]}
SHARDS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "4,000,000,000 rows": (lambda f: hdf5(f, 4_000_000_000), "and stores far fewer"),
    "values of another file": (lambda f: hdf5(f, input_mask=OUTSIDE), "input_mask is kept in another file"),
    "a link to another file": (linked, "input_ids is kept in another file"),
    "a view of another file": (virtual, "input_ids is kept in another file"),
}
VOCABULARIES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a device": (lambda f: Path("/dev/zero"), "must be an ordinary file"),
    "a token of 3 MB": (lambda f: raw(f, "v.txt", b"a b" * 1_000_000), "contains white space"),
    "JSON of 100,000 levels": (lambda f: raw(f, "v.json", b'{"model":{"vocab":' + b'{"a":' * 100_000), "pass a vocab"),
}


def case_of(kind: str, name: str, folder: Path) -> tuple[Path, list[str], str]:
    """Return the file of a case, the command that reads it, and its message."""
    if kind == "weights":
        source, message = WEIGHTS[name][0](folder), WEIGHTS[name][1]
        to = ["--to", str(folder / "out"), "--to-format", "native"]
        return source, ["run_convert", "--from", str(source), *to], message
    if kind == "settings":
        text, message = SETTINGS[name]
        source = raw(folder, "settings.yaml", text.encode())
        return source, ["run_pretraining", "--phase1", "--config", str(source)], message
    words, shards = write_vocabulary(folder / "words.txt"), folder / "good"
    if kind == "shards":
        source, message = SHARDS[name][0](folder), SHARDS[name][1]
        return source, ["data.inspect", str(source), "--vocab-file", str(words)], message
    write_shards(shards, [random_table(5)])
    source, message = VOCABULARIES[name][0](folder), VOCABULARIES[name][1]
    return source, ["data.inspect", str(shards), "--vocab-file", str(source)], message


TABLES = {"weights": WEIGHTS, "settings": SETTINGS, "shards": SHARDS, "vocabulary": VOCABULARIES}


# Takes lines of JSON, [words of a command, file for what it says], and answers [exit code, CPU seconds, MB]. A command
# that is lost is ended, and takes no memory from others.
MEASURING = """
import json, os, resource, runpy, sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))

def seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)

def megabytes(name):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(name))

for line in sys.stdin:
    (module, *words), said = json.loads(line)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    begin, before, code, sys.argv = seconds(), megabytes("VmRSS"), 0, [module, *words]
    resource.setrlimit(resource.RLIMIT_CPU, (int(begin) + 36, resource.RLIM_INFINITY))
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    print(json.dumps([code, seconds() - begin, megabytes("VmHWM") - before]), file=answers, flush=True)
"""


@pytest.fixture(scope="module")
def measure():
    """Run a command: (words, file for its output) -> (exit code, CPU seconds, MB)."""
    process = None

    def run(words: list[str], said: Path) -> list:
        nonlocal process
        if process is None or process.poll() is not None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = subprocess.Popen([sys.executable, "-c", MEASURING], cwd=REPOSITORY, **pipes)
        print(json.dumps([words, str(said)]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        return json.loads(answer) if answer else [process.wait(), math.inf, math.inf]

    yield run
    if process is not None:
        process.communicate()


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, table in TABLES.items() for name in table])
def test_a_hostile_file_ends_in_one_line_in_bounded_time_and_memory(tmp_path, measure, kind, name):
    source, words, message = case_of(kind, name, tmp_path)
    code, seconds, megabytes = measure(words, tmp_path / "said")
    text = (tmp_path / "said").read_text()
    assert code == 2, text[-2000:]
    assert text.startswith("error: ") and "Traceback" not in text and len(text) < 4000, text[-2000:]
    assert message in text and (source.name in text or "seed=" in text), text[-2000:]
    assert "\nerror: well" not in text, "an imitated line"
    assert seconds < MOST_SECONDS, f"{seconds:.1f} s"
    size = sum(file.stat().st_size for file in [source, *source.glob("*")] if file.is_file())
    assert megabytes < MOST_MEGABYTES + 20 * size / 1e6, f"{megabytes:.0f} MB"


# ---- the small files beside others -----------------------------------------------------------------------------------

BESIDE: dict[str, Callable[[Path], object]] = {
    "bert_config.json": BertConfig.from_json_file,
    "question_answering.json": read_reader_settings,
    "serving.json": lambda path: Predictor(path.parent),
    "job.json": lambda path: read_record(JobRecord.of(path.parent), path.parent),
    "own_text.json": lambda path: read_record(JobRecord.of(path.parent), path.parent),
    MIXTURE_NAME: lambda path: read_mixture(path.parent),
    MANIFEST_NAME: lambda path: read_manifest(path.parent),
    NUM_SAMPLES_NAME: lambda path: recorded_counts(path.parent, None),
    "phase1.yaml": read_yaml,
}


@pytest.mark.parametrize("name", BESIDE)
def test_endless_nesting_in_a_small_file_is_refused_by_its_name(tmp_path, name):
    file = raw(tmp_path, name, b'{"a":' * 20_000)
    with pytest.raises(ValueError, match=f"{tmp_path}.*") as refused:
        BESIDE[name](file)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", [*(text for text, _ in SETTINGS.values()), "a: [", '{"a":' * 20_000])
def test_a_report_goes_on_without_hostile_records(tmp_path, text):
    for name in ("config.yaml", "summary.json", "metrics.jsonl"):
        raw(tmp_path, name, text.encode())
    complaints = " ".join(read_run(tmp_path, "run").complaints)
    assert "summary.json is damaged" in complaints and "metrics.jsonl left out" in complaints
    assert "config.yaml is damaged" in complaints or text == SETTINGS["decimal digits"][0]
