"""Files made to run code, to lead out of their folder or to fill the memory: refused with a reason, nothing executed.

Each file also goes through the command line: exit code 2, one `error:`, no traceback, nothing written.
"""

import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import run_convert
from bert import REPOSITORY
from bert.conversion.converting import write_directory
from bert.conversion.paddle_file import read_pdparams
from bert.conversion.reading import read_pretrained
from bert.conversion.untrusted_files import ConversionError
from bert.files import only_writer
from tests.support import foreign

GOLDEN = REPOSITORY / "tests" / "golden" / "foreign"


class Calls:
    """Becomes, when pickled, a call of `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def command(folder: Path) -> str:
    """Return a command that leaves a file behind if it ever runs."""
    return f"touch {folder / 'executed'}"


def pdparams(folder: Path, value, protocol: int = 4) -> Path:
    return raw(folder, "model_state.pdparams", pickle.dumps(value, protocol=protocol))


def raw(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def torch_zip(
    folder: Path, changes: Callable[[dict], None] = lambda entries: None, compression=zipfile.ZIP_STORED
) -> Path:
    """Return the real file of the fixtures, with its entries changed."""
    with zipfile.ZipFile(GOLDEN / "torch/pytorch_model.bin") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    changes(entries)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return folder / "pytorch_model.bin"


def data_pkl(entries: dict) -> str:
    return next(name for name in entries if name.endswith("data.pkl"))


def torch_tensor(size: bytes, stride: bytes, count: int = 4) -> bytes:
    """Return a pickle of {"x": one tensor} over a storage "0" of `count` floats; size and stride are pickled tuples."""
    return (
        b"\x80\x02}X\x01\x00\x00\x00xctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ"
        + struct.pack("<i", count)
        + b"tQK\x00"
        + size
        + stride
        + b"\x89}tRs."
    )


def one_tensor(size: bytes, stride: bytes, count: int = 4) -> Callable[[dict], None]:
    def change(entries: dict) -> None:
        root = data_pkl(entries).removesuffix("data.pkl")
        entries.clear()
        entries.update({f"{root}data.pkl": torch_tensor(size, stride, count), f"{root}data/0": bytes(4 * 4)})

    return change


def tensorflow(folder: Path, damage: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> Path:
    source = GOLDEN / "tensorflow"
    data = "bert_model.ckpt.data-00000-of-00001"
    index, numbers = damage((source / "bert_model.ckpt.index").read_bytes(), (source / data).read_bytes())
    (folder / data).write_bytes(numbers)
    return raw(folder, "bert_model.ckpt.index", index)


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


# 60 tuples, each of the one before twice: hashing or printing the last, memo 60, would take 2^60 steps.
SHARED = b")\x94" + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94" for i in range(60))


TEN_THOUSAND = b"X" + struct.pack("<I", 10_000) + b"x" * 10_000 + b"\x94"
DTYPE = b"cnumpy\ndtype\n"
PICKLES = {  # what follows \x80\x04 in a .pdparams
    "an instance": (b"(S'id'\nios\nsystem\n.", "instruction INST"),
    "a persistent id": (b"K\x01Q.", "refers to data outside of itself"),
    "state of a call": (DTYPE + b"}X\x01\x00\x00\x00aK\x01sb.", "sets the state"),
    "shared tuples as a key": (SHARED + b"}h\x3cK\x01s.", "tuple for a key"),
    "shared tuples as a shape": (
        SHARED + b"cnumpy.core.numeric\n_frombuffer\n(C\x00" + DTYPE + b"\x8c\x02f4\x85Rh\x3c\x8c\x01CtR.",
        "whose shape",
    ),
    "shared tuples as a slice": (
        SHARED + b"}\x8c\x15UnpackBigParamInfor@@}\x8c\x01x}(\x8c\x06slices]h\x3ca\x8c\x0bOriginShapeK\x04\x85uss.",
        "table of sliced arrays is damaged",
    ),
    "one value, 30,000 calls": (  # a text of 10 kB: 300 MB
        TEN_THOUSAND + b"c_codecs\nencode\n\x94]" + b"h\x01h\x00\x8c\x06latin1\x86Ra" * 30_000 + b".",
        "builds more than it holds",
    ),
    "a list that holds itself": (b"]\x94h\x00a.", "holds a list, must hold a dictionary"),
    "a string of 4 exabytes": (b"\x8d" + struct.pack("<Q", 1 << 62) + b"x.", "ends in the middle"),
    "an unfinished pickle": (b"}(X\x01\x00\x00\x00a", "ends in the middle"),
}
ZIPS: dict[str, tuple[Callable[[dict], object], str]] = {  # changes of the entries of torch's real file
    "shared tuples as a storage": (
        lambda e: e.update({data_pkl(e): b"\x80\x02" + SHARED + b"(\x8c\x07storageh\x3ch\x3cNK\x01tQ."}),
        "of an unknown kind",
    ),
    "a path out of the zip": (lambda e: e.update({"../../../tmp/data.pkl": e.pop(data_pkl(e))}), "are missing"),
    "a tensor out of its storage": (one_tensor(b"K\x09\x85", b"K\x01\x85"), "reaches out of its"),
    "a stride of 2^80": (one_tensor(b"K\x01\x85", b"\x8a\x0b" + bytes(10) + b"\x01\x85"), "fetch it again"),
    "a storage longer than its bytes": (one_tensor(b"K\x04\x85", b"K\x01\x85", 1 << 30), "16 bytes for 1073741824"),
}
TENSORFLOW: dict[str, tuple[Callable[[bytes, bytes], tuple[bytes, bytes]], str]] = {
    "an index cut short": (lambda index, data: (index[:-60], data), "does not end with the footer of TensorFlow"),
    "a flipped bit of the data": (lambda index, data: (index, flip(data, 300)), "checksum it was written with"),
}


def numpy_shape_bomb(folder: Path) -> Path:
    data = pickle.dumps({"x": np.zeros((1, 3), "float32")}, protocol=2)
    assert data.count(b"K\x01K\x03\x86") == 1
    return raw(folder, "m.pdparams", data.replace(b"K\x01K\x03\x86", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"))


def linked_shards(folder: Path) -> Path:
    index = {"weight_map": {"bert.embeddings.word_embeddings.weight": "../../secret.safetensors"}}
    return raw(folder, "model.safetensors.index.json", json.dumps(index).encode())


def described(folder: Path, config: str) -> Path:
    save_file(foreign.hugging_face(foreign.parameters()), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(config)
    return folder


def sized(folder: Path, **sizes: int) -> Path:
    return described(folder, json.dumps({**foreign.CONFIG, **sizes}))


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "model.safetensors")
    return folder / "model.safetensors"


def cut(folder: Path, golden: str, end: int) -> Path:
    return raw(folder, "pytorch_model.bin", (GOLDEN / golden).read_bytes()[:end])


LAYERS = [f"bert.encoder.layers.{i}.self_attn.q_proj.weight" for i in range(5000)]
REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    **{name: (lambda f, x=x: raw(f, "m.pdparams", b"\x80\x04" + x), text) for name, (x, text) in PICKLES.items()},
    **{name: (lambda f, x=x: torch_zip(f, x), text) for name, (x, text) in ZIPS.items()},
    **{name: (lambda f, x=x: tensorflow(f, x), text) for name, (x, text) in TENSORFLOW.items()},
    "protocol 0": (lambda f: pdparams(f, Calls(os.system, command(f)), 0), "is not a weights file"),
    "a new object": (lambda f: pdparams(f, {"x": Path("/")}), "refers to pathlib"),
    "an object array": (lambda f: pdparams(f, {"x": np.array([Calls(os.system, command(f))])}), "O8'|posix.system"),
    "a shape of exabytes": (numpy_shape_bomb, "bytes; they must agree"),
    "one array, 5,000 names": (
        lambda f: pdparams(f, dict.fromkeys(LAYERS, np.zeros(10_000, "float32"))),
        "they overlap, which no checkpoint needs",
    ),
    "a zip bomb": (lambda f: torch_zip(f, compression=zipfile.ZIP_DEFLATED), "compressed or encrypted"),
    "a truncated zip": (lambda f: cut(f, "torch/pytorch_model.bin", 9000), "damaged zip archive"),
    "truncated storages": (lambda f: cut(f, "torch_legacy.bin", -100), "truncated"),
    "a shard elsewhere": (linked_shards, "shards must be in the folder of their index"),
    "a header of exabytes": (lambda f: raw(f, "model.safetensors", b"\xff" * 7 + b"\x7f{}"), "is not a weights file"),
    "a torn header": (lambda f: raw(f, "m.safetensors", struct.pack("<Q", 2) + b"{}x"), "not a complete safetensors"),
    "JSON of 100,000 levels": (lambda f: described(f, '{"a":' * 100_000), "must be JSON with the model's sizes"),
    "a thousand million layers": (lambda f: sized(f, num_hidden_layers=10**9), "2 layers, num_hidden_layers is 1000"),
    "a pipe": (fifo, "must be an ordinary file"),
    "a link to nowhere": (lambda f: (f / "m.bin").symlink_to("/nowhere") or f / "m.bin", "does not exist"),
    "a name with a command": (lambda f: f / "; touch executed", "does not exist"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_files_are_refused_and_nothing_runs(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, message = REFUSED[name]
    source = make(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConversionError, match=message) as error:
        read_pretrained(source)
    assert str(tmp_path) in str(error.value) or "vocab_size" in str(error.value), "the error names the file"
    with pytest.raises(SystemExit) as stopped:
        run_convert.main(["--from", str(source), "--to", str(tmp_path / "out"), "--to-format", "native"])
    shown = capsys.readouterr().err
    assert stopped.value.code == 2 and shown.startswith("error: ") and "Traceback" not in shown
    assert not (tmp_path / "executed").exists() and not (tmp_path / "out").exists()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 150_000, f"{grown} kB for a file of {source.stat().st_size if source.is_file() else 0} bytes"


@pytest.mark.parametrize("container", ["pdparams", "zip", "legacy"])
def test_hostile_calls_are_refused_in_every_container(tmp_path, container):
    marker = tmp_path / "executed"
    touch = Calls(os.system, command(tmp_path))
    for value in (
        touch,
        Calls(exec, f"open({str(marker)!r}, 'w').close()"),
        Calls(Path.touch, marker),
        Calls(getattr, Calls(__import__, "os"), "system"),
        {"bert.pooler.dense.bias": [1.0], "hidden": touch},
    ):
        if container == "zip":
            data = pickle.dumps(value, 2)
            source = torch_zip(tmp_path, lambda entries, data=data: entries.update({data_pkl(entries): data}))
        else:
            source = pdparams(tmp_path, value, 2)
            source = source.rename(tmp_path / "pytorch_model.bin") if container == "legacy" else source
        with pytest.raises(ConversionError, match=f"{source.name}: refers to "):
            read_pretrained(source)
        assert not marker.exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["x; touch executed", "$(touch executed)", "-rf"])
def test_hostile_names_of_folders_are_no_commands(tmp_path, name):
    words = ["bash", str(REPOSITORY / "scripts/run_pretraining.sh"), f"--output-dir={name}", "--dry-run"]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    variables = {"PATH": path, "HOME": str(tmp_path), "BERT_PYTHON": sys.executable}
    subprocess.run(words, cwd=tmp_path, capture_output=True, env=variables, timeout=120)
    assert not list(tmp_path.rglob("executed")) and not (REPOSITORY / "executed").exists()


def test_the_calls_would_have_worked(tmp_path):
    """As a control, Python's own unpickler runs the files that are refused above."""
    pickle.loads(pdparams(tmp_path, Calls(os.system, command(tmp_path))).read_bytes())
    assert (tmp_path / "executed").exists()


def test_random_weights_of_the_old_protocol_are_read(tmp_path):
    """Protocol 2 of Python 3 holds bytes as text, so each is built twice from one and a half bytes of the file."""
    weights = {"w": np.random.RandomState(0).standard_normal((64, 128)).astype("float32")}
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(pickle.dumps(weights, protocol=2))
    np.testing.assert_array_equal(read_pdparams(path).tensors["w"], weights["w"])


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path):
    left, live = tmp_path / ".writing-out-1", tmp_path / ".writing-out-2"
    for folder in (left, live):
        folder.mkdir()
        (folder / "weights").write_bytes(b"x")
    with only_writer(live):
        write_directory(tmp_path / "out", lambda folder: (folder / "weights").write_bytes(b"y") and None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writing-out-2", "out"]
