"""Download a published BERT by name: description, vocabulary and weights, verified.

    python -m data.download_model bert-base-uncased [--output-dir DIR]

NAME is bert-base-uncased or another of Google's models, OWNER/NAME or OWNER/NAME@REVISION of the Hugging Face hub, or a
model of PaddleNLP (macbert-base-chinese, paddlenlp/bert-base-uncased). Without --output-dir it goes to the cache
($BERT_CACHE, default ~/.cache/bert-on-paddle), where --from-pretrained-params NAME finds it; DIR can be copied to a
machine without network and named instead.
"""

import difflib
import json
import shutil
from pathlib import Path

from bert.command_errors import command
from bert.files import only_writer, sha256_of_file
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes
from data.fetching.model_cache import CONFIGS, LISTING_FILE, Listing, fetch_model, model_folder, read_listing
from data.fetching.published_models import PINS_FILE, ModelName, Pin, known_names, parse_name, pin_of, write_pin


def download_model(text: str, output_dir: Path | None = None) -> tuple[Listing, Path]:
    model = parse_name(text)
    if model is None:
        close = difflib.get_close_matches(text, known_names(), 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "for example bert-base-uncased; see --help"
        raise ValueError(f"{text!r} is not the name of a published model; {hint}")
    if output_dir is None:
        return fetch_model(model), model_folder(model)
    _check_folder(model, output_dir)
    with only_writer(output_dir):
        if not (output_dir / LISTING_FILE).exists():
            _copy_from_cache(model_folder(model), output_dir)
        return fetch_model(model, folder=output_dir), output_dir


def _check_folder(model: ModelName, folder: Path) -> None:
    listing = read_listing(folder)
    if listing is not None and listing.name != str(model):
        raise ValueError(f"output_dir={folder} holds {listing.name}; choose another folder for {model}")
    if listing is None and folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ValueError(f"output_dir={folder} holds other files; choose a new folder")


def _copy_from_cache(cached: Path, folder: Path) -> None:
    """Copy what the cache has of a model; it is verified and completed afterwards."""
    listing = read_listing(cached)
    for name in (*listing.files, LISTING_FILE) if listing else ():  # the listing last: without it nothing counts
        if (cached / name).is_file():
            shutil.copyfile(cached / name, folder / name)


def summary(listing: Listing, folder: Path) -> list[str]:
    revision = f" at {listing.revision}" if listing.revision else ""
    config = json.loads(next(folder / name for name in CONFIGS if (folder / name).is_file()).read_bytes())
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    layers, hidden, heads, vocabulary = (config.get(name, "?") for name in sizes)
    model = parse_name(listing.name)
    pin = pin_of(model) if model else None
    lines = [
        f"{listing.name} from {listing.source}{revision}",
        f"{layers} layers of {hidden}, {heads} heads, {vocabulary} tokens; licence: {listing.licence or 'not stated'}",
    ]
    for name, file in listing.files.items():
        if pin and name in pin.files:
            verified = "pinned sha256"
        else:
            verified = "the hub's checksum" if file.checksum else "recorded at the first download"
        lines.append(f"  {name:<32}{megabytes((folder / name).stat().st_size):>10}  verified by {verified}")
    return [*lines, f"complete: --from-pretrained-params {folder}"]


def pin(listing: Listing, folder: Path) -> None:
    """Add the model's revision and the sha256 of its files to pinned_models.json."""
    model = parse_name(listing.name)
    if model is None or model.is_paddlenlp or not listing.revision:
        raise ValueError(f"{listing.name} has no revision to pin; only models of the Hugging Face hub have one")
    files = {name: (sha256_of_file(folder / name), (folder / name).stat().st_size) for name in listing.files}
    write_pin(model, Pin(listing.revision, files))


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="a new folder instead of the cache")
    parser.add_argument(
        "--pin",
        action="store_true",
        help=f"for maintainers: write revision and sha256 to {PINS_FILE.name}; later downloads must have them",
    )
    arguments = parser.parse_args(argv)
    with command(arguments.output_dir, "interrupted; the same command resumes"):
        listing, folder = download_model(arguments.name, arguments.output_dir)
        print("\n".join(summary(listing, folder)))
        if arguments.pin:
            pin(listing, folder)
            print(f"pinned in {PINS_FILE}")


if __name__ == "__main__":
    main()
