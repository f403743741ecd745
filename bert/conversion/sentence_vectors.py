"""Reads how a model of the library sentence-transformers computes vectors.

modules.json                        the steps: Transformer, Pooling, Normalize, others
1_Pooling/config.json               the pooling
config_sentence_transformers.json   prefixes ("prompts") of queries and passages
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from bert.conversion.untrusted_files import ConversionError, read_json_value
from bert.conversion.usage import VectorForm

POOLING_KEYS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}  # of sentence-transformers
_MODULES_FILE, _POOLING_FILE = "modules.json", "1_Pooling/config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_PASSAGE_PROMPTS = ("document", "passage", "corpus")  # names of the library, the first that is there counts


@dataclass(frozen=True)
class SentenceTransformersModel:
    """How a sentence-transformers model computes vectors, or the steps that are not supported here."""

    form: VectorForm | None
    unknown_steps: tuple[str, ...]


def read_sentence_transformers(folder: Path) -> SentenceTransformersModel | None:
    """Read how a sentence-transformers model computes vectors; None for other folders.

    Raises:
        ConversionError: one of its files is damaged.
    """
    steps = _read_steps(folder)
    if steps is None:
        return None
    poolings = _read_poolings(folder) if "Pooling" in steps else ["no pooling"]
    unknown = _unknown_steps(steps, poolings)
    if unknown:
        return SentenceTransformersModel(None, tuple(unknown))
    query_prefix, passage_prefix = _read_prefixes(folder)
    form = {
        "pooling": poolings[0],
        "normalize": "Normalize" in steps,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
    }
    try:
        return SentenceTransformersModel(TypeAdapter(VectorForm).validate_python(form), ())
    except ValueError as error:
        raise ConversionError(f"{folder / _PROMPTS_FILE}: {error}; correct it") from None


def _read_steps(folder: Path) -> list[str] | None:
    """Class names of the model's modules: "Transformer", "Pooling" ...; None without a modules.json."""
    modules = read_json_value(folder / _MODULES_FILE)
    if modules is None:
        return None
    if not isinstance(modules, list) or not all(isinstance(module, Mapping) and "type" in module for module in modules):
        raise ConversionError(
            f"{folder / _MODULES_FILE} must list the modules of a model of sentence-transformers, each with its type; "
            "correct it, or remove it to use the weights alone"
        )
    return [str(module["type"]).rpartition(".")[2] for module in modules]


def _unknown_steps(steps: Sequence[str], poolings: Sequence[str]) -> list[str]:
    """Names of the steps that are not supported here; empty if all are."""
    unknown = [step for step in steps if step not in ("Transformer", "Pooling", "Normalize")]
    unknown += [f"pooling {name}" for name in poolings if name not in POOLING_KEYS.values()]
    if len(poolings) > 1:
        unknown.append(f"poolings side by side: {', '.join(poolings)}")
    if not unknown and list(steps) not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        unknown.append(f"modules in another order: {', '.join(steps)}")
    return unknown


def _read_poolings(folder: Path) -> list[str]:
    """Names of the poolings of a sentence-transformers model: "mean", "cls" ..."""
    content = read_json_value(folder / _POOLING_FILE)
    settings = content if isinstance(content, Mapping) else {}
    mode = settings.get("pooling_mode")  # from version 6 on
    if isinstance(mode, str):
        return [mode]
    chosen = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    names = [POOLING_KEYS.get(key, key.removeprefix("pooling_mode_").removesuffix("_tokens")) for key in chosen]
    return names or [f"none in {folder / _POOLING_FILE}"]


def _read_prefixes(folder: Path) -> tuple[object, object]:
    """The prefix of queries and the prefix of passages; "" if there is none."""
    prompts = read_json_value(folder / _PROMPTS_FILE, "prompts") or {}
    if not isinstance(prompts, Mapping):
        raise ConversionError(f"{folder / _PROMPTS_FILE}: prompts must be names with their texts; correct it")
    passage_prefixes = [prompts[name] for name in _PASSAGE_PROMPTS if prompts.get(name)]
    return prompts.get("query") or "", passage_prefixes[0] if passage_prefixes else ""
