"""Download a published BERT by name: description, vocabulary and weights, verified.

NAME is bert-base-uncased or another of Google's models, OWNER/NAME or OWNER/NAME@REVISION of the Hugging Face hub, or a
model of PaddleNLP (macbert-base-chinese, paddlenlp/bert-base-uncased). Without --output-dir it goes to the cache
(Hugging Face's, or that of $BERT_CACHE), where --from-pretrained-params NAME finds it; DIR can be copied to a machine
without network and named instead.
"""

import difflib
import json
import os
import shutil
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.config.settings_base import Settings
from bert.files import atomic_path, json_of, only_writer, read_json, write_atomically
from bert.reporting.progress import megabytes
from data.fetching.published_models import ModelName, known_names, parse_name


def copy_model(model: ModelName, folder: Path) -> Path:
    """Copy the files of a model from the cache to a folder; an interrupted copy is completed."""
    from data.fetching.model_cache import LISTING_FILE, fetch_model, used_names  # loads huggingface_hub

    listing = read_json(folder / LISTING_FILE)
    if listing.get("name", str(model)) != str(model):
        raise ValueError(f"output_dir={folder} holds {listing['name']}; choose another folder for {model}")
    if not listing and folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ValueError(f"output_dir={folder} holds other files; choose a new folder")
    if listing.get("complete"):
        return folder
    source = fetch_model(model)
    with only_writer(folder):
        for is_complete in (False, True):
            for name in used_names(os.listdir(source), str(source)) if is_complete else ():
                with atomic_path(folder / name) as partial:
                    shutil.copyfile(source / name, partial)
            content = {"name": str(model), "complete": is_complete}
            write_atomically(folder / LISTING_FILE, json.dumps(content).encode())
    return folder


def summary(model: ModelName, folder: Path) -> list[str]:
    from data.fetching.model_cache import CONFIGS, used_names

    names = used_names(os.listdir(folder), str(folder))
    config = json_of(next(folder / name for name in CONFIGS if name in names).read_bytes())
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    layers, hidden, heads, vocabulary = (config.get(name, "?") for name in sizes)
    return [
        f"{model}: {layers} layers of {hidden}, {heads} heads, {vocabulary} tokens; see its page for the licence",
        *(f"  {name:<32}{megabytes((folder / name).stat().st_size):>10}" for name in names),
        f"complete: --from-pretrained-params {folder}",
    ]


class ModelDownloadRequest(Settings):
    """The settings of this command, read from its flags."""

    name: Annotated[str, Flag(is_positional=True, placeholder="NAME")] = Field(description="name of a published model")
    output_dir: Annotated[Path | None, Flag(placeholder="DIR", default_text="the cache")] = Field(
        None, description="a new folder for the model"
    )


_EXAMPLES = ("bert-base-uncased", "bert-base-uncased --output-dir models/bert-base-uncased")


def main(argv: list[str] | None = None) -> None:
    request = read_flags(ModelDownloadRequest, argv, description=__doc__, examples=_EXAMPLES)
    with command(request.output_dir, "interrupted; the same command resumes"):
        model = parse_name(request.name)
        if model is None:
            close = difflib.get_close_matches(request.name, known_names(), 3)
            hint = f"did you mean {' or '.join(close)}?" if close else "for example bert-base-uncased; see --help"
            raise ValueError(f"{request.name!r} is not the name of a published model; {hint}")
        from data.fetching.model_cache import fetch_model

        folder = copy_model(model, request.output_dir) if request.output_dir else fetch_model(model)
        print("\n".join(summary(model, folder)))


if __name__ == "__main__":
    main()
