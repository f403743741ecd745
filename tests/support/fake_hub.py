"""The Hugging Face hub on this machine: its API, files behind a redirection to signed addresses, and its errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from unittest import mock

import numpy as np
from huggingface_hub import constants
from safetensors.numpy import save

from data.fetching.model_cache import LISTING_FILE
from data.fetching.published_models import parse_name
from tests.support import corpora, foreign
from tests.support.faulty_server import Served

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_act": "gelu"}
CONFIG |= {"vocab_size": 13, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG |= {"intermediate_size": 11, "max_position_embeddings": 16, "type_vocab_size": 2}
VOCABULARY = "".join(f"{token}\n" for token in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]).encode()


def set_hub(monkeypatch, *, url: str = "", offline: bool | None = None, cache: Path | None = None) -> None:
    """Change the values that huggingface_hub read from HF_ENDPOINT, HF_HUB_OFFLINE and HF_HUB_CACHE at its import."""
    for name, value in (("ENDPOINT", url or None), ("HF_HUB_OFFLINE", offline), ("HF_HUB_CACHE", cache)):
        if value is not None:
            monkeypatch.setattr(constants, name, value)
    if url:
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template)


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def small_files(**config) -> dict[str, bytes]:
    return {
        "config.json": json.dumps({**CONFIG, **config}).encode(),
        "vocab.txt": VOCABULARY,
        "tokenizer_config.json": b'{"do_lower_case": true}',
        "README.md": b"# a model",
    }


def hub(
    repository: str,
    files: dict[str, bytes],
    *,
    revisions: tuple[str, ...] = ("main",),
    commit: str = COMMIT,
    gated: bool | str = False,
    licence: str = "apache-2.0",
) -> dict[str, Served]:
    """Return a hub's answers for one model, by path. Weights are stored as LFS does, the other files in git."""
    served: dict[str, Served] = {}
    siblings = []
    for name, data in files.items():
        sha256, is_lfs = hashlib.sha256(data).hexdigest(), name.startswith(("model", "pytorch"))
        about = {"X-Repo-Commit": commit}
        entry = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
        if is_lfs:
            signed = f"/cdn/{sha256}?Expires=1&Signature=abc"
            linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{sha256}"'}
            one = Served(b"", redirect=signed, headers=about | linked)
            served[signed] = Served(data)
            entry |= {"blobId": git_sha1(b"pointer"), "lfs": {"sha256": sha256, "size": len(data), "pointerSize": 134}}
        else:
            one = Served(data, headers=about | {"Content-Type": "text/plain", "ETag": f'"{git_sha1(data)}"'})
        served |= {f"/{repository}/resolve/{revision}/{name}": one for revision in (*revisions, commit)}
        siblings.append(entry)
    answer = {"id": repository, "sha": commit, "gated": gated, "siblings": siblings, "cardData": {"license": licence}}
    api = Served(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})
    return served | {f"/api/models/{repository}/revision/{name}?blobs=True": api for name in (*revisions, commit)}


def put_in_cache(cache: Path, name: str, files: dict[str, bytes]) -> Path:
    """Put a model into a cache (BERT_CACHE) as if it had been fetched from the hub; no pin is asked."""
    model = parse_name(name)
    folder = cache / "models" / model.owner / model.name
    folder.mkdir(parents=True)
    listed = {}
    for file, data in files.items():
        (folder / file).write_bytes(data)
        listed[file] = {"checksum": f"sha256:{hashlib.sha256(data).hexdigest()}", "num_bytes": len(data)}
    listing = {"name": str(model), "source": "https://hub", "revision": COMMIT, "licence": "apache-2.0", "gated": False}
    (folder / LISTING_FILE).write_text(json.dumps({**listing, "files": listed}))
    return folder


def weights(served: dict[str, Served]) -> Served:
    """Return the answers at the signed address of the largest file."""
    return max((one for path, one in served.items() if path.startswith("/cdn/")), key=lambda one: len(one.data))


def num_requests(served: dict[str, Served]) -> int:
    return sum(len(one.requests) for one in {id(one): one for one in served.values()}.values())


def tiny_model(positions: int = 64) -> dict[str, bytes]:
    """Return a BERT of 2 layers as Hugging Face saves it, for the vocabulary of `corpora`."""
    vocabulary = corpora.vocabulary()
    with mock.patch.multiple(foreign, VOCAB=len(vocabulary), POSITIONS=positions):
        tensors = foreign.hugging_face(foreign.parameters())
    sizes = {**foreign.CONFIG, "vocab_size": len(vocabulary), "max_position_embeddings": positions}
    config = {**sizes, "model_type": "bert", "architectures": ["BertForPreTraining"]}
    return {
        "config.json": json.dumps(config).encode(),
        "vocab.txt": vocabulary.file_content(),
        "tokenizer_config.json": b'{"do_lower_case": true}',
        "model.safetensors": save({name: np.ascontiguousarray(one) for name, one in tensors.items()}),
    }
