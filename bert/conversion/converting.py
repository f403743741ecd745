"""Converts a source of any known format to a directory that this project, Hugging Face or PaddleNLP loads, with a
report of every change; its command line."""

import argparse
import importlib.util
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save_file

from bert.checkpoints import directories as checkpoint_files
from bert.config.architecture import BertConfig
from bert.config.flags import Formatter, Parser
from bert.conversion import locating, tensor_layout, tensor_names, vocabularies
from bert.conversion.model_card import CardRequest, write_card
from bert.conversion.model_description import LABELS_FILE, TASK_FILE, architecture_of, kept_texts
from bert.conversion.raw_tensors import ConversionError, write_json
from bert.conversion.reading import PretrainedWeights, read_pretrained
from bert.conversion.vocabularies import Tokens, write_tokenizer, write_vocabulary
from bert.files import read_json, sync
from bert.model.head_specs import HEADS

REPORT_FILE = "conversion.json"


@dataclass(frozen=True)
class Model(PretrainedWeights):
    """Weights to write: the tensors of one task, and the files beside them. Writers add to `notes`."""

    config: BertConfig
    task: str
    source: Path
    tokens: Tokens | None
    texts: Mapping[str, str]  # further files, by name
    keep_padding: bool  # write the padded rows too, as part of the vocabulary

    def report(self, to_format: str) -> dict[str, Any]:
        """The content of conversion.json."""
        sizes = [array.size for array in self.parameters.values()]
        return {
            "source": str(self.source),
            "source_format": self.format,
            "to_format": to_format,
            "task": self.task,
            "tensors": len(sizes),
            "parameters": sum(sizes),
            "notes": list(self.notes),
        }

    def unpadded(self) -> tuple[dict[str, np.ndarray], BertConfig]:
        """Parameters and description for libraries that do not pad the vocabulary."""
        if self.keep_padding:
            padded = self.config.padded_vocab_size()
            self.notes.append(f"padding of the vocabulary kept: vocab_size is {padded}")
            return dict(self.parameters), self.config.model_copy(update={"vocab_size": padded})
        return tensor_layout.strip_vocabulary(self.parameters, self.config.vocab_size, self.notes), self.config

    def num_outputs(self) -> int | None:
        """Classes of the classifier; None without one."""
        bias = self.parameters.get("classifier.bias")
        return None if bias is None else len(bias)

    def has_pooler(self) -> bool:
        return "bert.pooler.dense.weight" in self.parameters

    def description(self, config: BertConfig, library: int = 0) -> dict[str, Any]:
        """The content of config.json; `library` is the place of its class in HEADS[task].classes."""
        values = {"architectures": [architecture_of(self.task, config, library)], **json.loads(config.to_json())}
        count = self.num_outputs()
        if "classification" in self.task and count:
            labels = self.labels if self.labels and len(self.labels) == count else [f"LABEL_{i}" for i in range(count)]
            values["id2label"] = {str(index): label for index, label in enumerate(labels)}
            values["label2id"] = {label: index for index, label in enumerate(labels)}
            if count == 1:
                values["problem_type"] = "regression"
            if json.loads(self.texts.get(TASK_FILE, "{}")).get("label_separator"):
                values["problem_type"] = "multi_label_classification"
        return values

    def write_texts(self, folder: Path) -> None:
        for name, text in self.texts.items():
            (folder / name).write_text(text, encoding="utf-8")

    def write_tokenizer(self, folder: Path) -> None:
        if self.tokens is not None:
            length, token_types = self.config.max_position_embeddings, self.config.has_token_types()
            write_tokenizer(folder, self.tokens, length, token_types=token_types)


def choose_task(weights: PretrainedWeights, requested: str | None) -> str:
    """The task that was requested, else the one in the model's description, else the one that its heads allow.

    A classifier without a pooler classifies tokens. One with a pooler classifies sequences, unless the library keeps a
    pooler in every model (PaddleNLP does, and names the question-answering head `classifier` too).
    """
    heads, described = tensor_names.heads_of(weights.parameters), weights.task
    if requested is not None:
        if lacking := [head for head in HEADS[requested].needs if head not in heads]:
            raise ConversionError(
                f"task={requested} needs a {' and a '.join(lacking)}; the source has "
                f"{', '.join(heads) or 'the bare encoder'}: choose another --task"
            )
        return requested
    if described == "masked-lm" and all(head in heads for head in HEADS["pretraining"].needs):
        return "pretraining"  # bert-base-uncased of Hugging Face is described as less than it holds
    if described is not None and all(head in heads for head in HEADS[described].needs):
        return described
    tops = set(heads) - {"pooler"}
    needs = {task: set(head.needs) for task, head in HEADS.items()}
    tasks = [task for task, needed in needs.items() if tops == needed - {"pooler"} and needed <= set(heads)]
    if tops == {"classifier"} and "pooler" in heads:
        tasks = ["sequence-classification"]
        if weights.format == "paddlenlp":
            tasks += ["question-answering", "token-classification"]
    if len(tasks) != 1:
        raise ConversionError(
            f"the source has {', '.join(heads)} and does not name its task; pass --task {' or '.join(tasks or HEADS)}"
        )
    return tasks[0]


def parameters_for(task: str, parameters: Mapping[str, np.ndarray], notes: list[str]) -> dict[str, np.ndarray]:
    """The encoder and the task's heads; other heads are left out, each with a note."""
    modern = tensor_names.is_modern(parameters)
    used = {*HEADS[task].needs, *(() if modern and task == "encoder" else ("pooler",))}
    unused = [head for head in tensor_names.heads_of(parameters) if head not in used]
    notes += [f"left out: {head}, not used by {task}" for head in unused]
    names = {name for head in unused for name in tensor_names.heads_by_name(modern)[head]}
    return {name: array for name, array in parameters.items() if name not in names}


def write_directory(target: Path, write: Callable[[Path], None]) -> None:
    """Create `target` atomically from what `write(folder)` puts into a temporary folder beside it."""
    check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".writing-{target.name}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        write(temporary)
        for path in temporary.rglob("*"):
            if path.is_file():
                path.chmod(0o644)  # safetensors makes its files readable to their owner only
                sync(path)
        sync(temporary)
        if target.exists():
            target.rmdir()
        temporary.rename(target)
        sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise ConversionError(f"{target} is there already; nothing was overwritten: name a new folder")
    for folder in target.absolute().parents:
        if "format_version" in read_json(folder / checkpoint_files.MANIFEST):
            raise ConversionError(
                f"{target} would lie in {folder}, which has to hold what its {checkpoint_files.MANIFEST} lists and "
                "nothing else; name a folder elsewhere"
            )


# ---- formats ------------------------------------------------------------------------------------------------------


def write_native(folder: Path, model: Model) -> None:
    """Our checkpoint without an optimizer; `convert` adds the manifest."""
    save_file(dict(model.parameters), folder / "bert_paddle.safetensors", metadata={"format": "pd"})
    write_json(folder / "bert_config.json", model.description(model.config))
    if model.labels is not None and len(model.labels) == model.num_outputs():
        (folder / LABELS_FILE).write_text(json.dumps(model.labels, ensure_ascii=False) + "\n", encoding="utf-8")
    if model.tokens is not None:
        write_vocabulary(folder, model.tokens)
        write_json(folder / "tokenizer_config.json", {"do_lower_case": model.tokens.lowercase})


def write_hugging_face(folder: Path, model: Model) -> None:
    """config.json, model.safetensors and the tokenizer's files."""
    parameters, config = model.unpadded()
    dialect = tensor_names.DIALECTS["huggingface" if config.has_token_types() else config.model_type]
    place = 1 if model.task == "encoder" else 0  # of the spelling without the prefix
    if config.model_type == "roberta" and model.task == "sequence-classification":
        place = 2  # of the spelling with the pooler in the classifier
    if unused := config.unused_positions():
        rows = np.pad(parameters[tensor_names.POSITION_EMBEDDINGS], ((unused, 0), (0, 0)))
        parameters = {**parameters, tensor_names.POSITION_EMBEDDINGS: rows}
    tensors = {
        list(dialect.names(name))[place]: np.ascontiguousarray(array.T if tensor_names.is_linear(name) else array)
        for name, array in parameters.items()
    }
    tensors = tensor_layout.join_parts(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", {**model.description(config), "torch_dtype": "float32"})
    model.write_tokenizer(folder)
    if model.task == "encoder":
        _note_absent_pooler(model, "transformers")


def write_paddlenlp(folder: Path, model: Model) -> None:
    """config.json, model_state.pdparams and the tokenizer's files."""
    if not model.config.has_token_types():
        name = "no ModernBERT" if model.config.is_modern() else "other names and positions of a RoBERTa"
        raise ConversionError(f"model_type={model.config.model_type}: PaddleNLP 2.8 has {name}; use --to-format hf")
    if model.config.hidden_act == "gelu_tanh":
        raise ConversionError(
            "hidden_act=gelu_tanh: PaddleNLP's BERT has only gelu and relu, so its outputs would "
            "differ; use --to-format hf, or train with --hidden-act gelu"
        )
    parameters, config = model.unpadded()
    names = tensor_names.DIALECTS["paddlenlp"].names
    place = 1 if model.task == "encoder" else 0  # of the spelling without the prefix
    tensors = {list(names(name))[place]: np.ascontiguousarray(array) for name, array in parameters.items()}
    if tensor_names.DECODER_BIAS in parameters:  # PaddleNLP keeps the tied decoder under its own names too
        tensors["cls.predictions.decoder.weight"] = tensors[tensor_names.WORD_EMBEDDINGS]
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.decoder_bias"]
    with open(folder / "model_state.pdparams", "wb") as file:
        pickle.dump(tensors, file, protocol=4)  # the highest that Paddle reads
    write_json(folder / "config.json", model.description(config, -1))
    model.write_tokenizer(folder)
    if model.tokens is not None and not model.tokens.vocabulary.is_wordpiece():
        model.notes.append("PaddleNLP reads no tokenizer.json; transformers' AutoTokenizer makes the tokens of a text")
    _note_absent_pooler(model, "paddlenlp")


def _note_absent_pooler(model: Model, library: str) -> None:
    if not model.has_pooler() and not model.config.is_modern():
        use = "its pooled output is meaningless" if model.task == "encoder" else f"{model.task} does not use it"
        model.notes.append(f"no pooler: {library} will log that it initialises one at random; {use}")


WRITERS: dict[str, Callable[[Path, Model], None]] = {
    "native": write_native,
    "hf": write_hugging_face,
    "paddlenlp": write_paddlenlp,
}
FORMATS = tuple(WRITERS)


# ---- the command -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A conversion to do, from the flags of run_convert.py."""

    source: str  # a path, or a name that PaddleNLP knows
    target: Path
    to_format: str  # one of FORMATS, or a serving format
    task: str | None = None
    config_file: Path | None = None
    vocab_file: Path | None = None
    do_lower_case: bool | None = None
    fused_qkv: str | None = None
    allow_unknown: bool = False
    keep_padding: bool = False
    check: bool = False  # compare outputs with those of PaddleNLP
    card: CardRequest = CardRequest()
    name: str | None = None  # of the model, for its card; None: that of the folder
    to_hub: str | None = None  # NAME or OWNER/NAME on a hub, instead of `target`
    hub_private: bool = False
    hub_update: bool = False
    hub_token_file: Path | None = None


AnyRequest = TypeVar("AnyRequest", bound=Request)


def convert(request: Request, check: Callable[[Path, Model], str] | None = None) -> dict[str, Any]:
    """Read, map, write and check; returns the report.

    Args:
        check: (the folder as it was written, the model) -> a note; it raises ConversionError for another model.
    """
    model = read(request)

    def write(folder: Path) -> None:
        WRITERS[request.to_format](folder, model)
        if check is not None:
            model.notes.append(check(folder, model))
        write_notes(folder, model, request)
        if request.to_format == "native":
            checkpoint_files.write_manifest(folder, step=0)

    write_directory(request.target, write)
    return model.report(request.to_format)


def write_notes(folder: Path, model: Model, request: Request) -> None:
    """The texts of the model's use, its card, and the report."""
    model.write_texts(folder)
    write_card(folder, model, request.to_format, request.card, request.name or request.target.name)
    write_json(folder / REPORT_FILE, model.report(request.to_format))


def read(request: Request) -> Model:
    """Find and read the source: the heads of one task, a vocabulary, a model description.

    Refuses a target that exists before anything is read.
    """
    check_target(request.target)
    path = locating.resolve(request.source)
    pretrained = read_pretrained(
        path, config_file=request.config_file, fused_qkv=request.fused_qkv, allow_unknown=request.allow_unknown
    )
    config = pretrained.config
    if config is None:
        raise ConversionError(
            f"{path} has no model description beside it, and the number of attention heads cannot "
            "be inferred from weights; name the bert_config.json: --config-file"
        )
    notes = pretrained.notes
    if pretrained.format == "paddlenlp" and request.task == "question-answering":
        parameters = tensor_names.with_question_answering_head(pretrained.parameters)
        pretrained = replace(pretrained, parameters=parameters)
    task = choose_task(pretrained, request.task)
    parameters = parameters_for(task, pretrained.parameters, notes)
    vocab_file = request.vocab_file or pretrained.vocab_file
    tokens = vocabularies.find_tokens(pretrained.folder, vocab_file, request.do_lower_case, notes)
    if tokens is not None:
        vocabularies.check_ids(tokens, config, notes)
    return Model(
        **{**vars(pretrained), "parameters": parameters, "task": task},
        source=path,
        tokens=tokens,
        texts=kept_texts(pretrained.folder),
        keep_padding=request.keep_padding,
    )


def table(report: dict[str, Any]) -> str:
    """A report as a table for the terminal."""
    rows = {
        "from": f"{report['source']} ({report['source_format']})",
        "to": report["to_format"],
        "for": report["task"],
        "tensors": f"{report['tensors']:,}",
        "parameters": f"{report['parameters']:,}",
    }
    lines = [f"{name:<12}{value}" for name, value in rows.items()]
    return "\n".join([*lines, "changes:", *(f"  {note}" for note in report["notes"])])


def parse_request(argv: Sequence[str] | None) -> Request:
    """The command line of run_convert.py."""
    parser = source_parser(
        "run_convert.py",
        "Convert a BERT between this project, Hugging Face, PaddleNLP, NVIDIA's Paddle and Google's TensorFlow.",
        source="--from",
        source_help="a checkpoint directory or a file of weights in any of these formats (detected), "
        "or a name that PaddleNLP knows",
        task_help="the task of the model, if the source does not name it; other heads are left out",
        needs_target=False,
    )
    parser.add_argument("--to-format", choices=FORMATS, help="the format to write; with --to-hub it is hf")
    hub = parser.add_argument_group("Hugging Face hub (HF_ENDPOINT names another)")
    hub.add_argument("--to-hub", metavar="NAME", help="push it there as [OWNER/]NAME, with its card, instead of --to")
    hub.add_argument("--hub-private", action="store_true", help="make the repository private")
    hub.add_argument("--hub-update", action="store_true", help="make a new commit in a repository that has a model")
    hub.add_argument("--hub-token-file", type=Path, metavar="FILE", help="with a token that may write (else HF_TOKEN)")
    parser.add_argument(
        "--fused-qkv",
        metavar="blocks|heads:NUMBER",
        help="order of columns in the fused attention matrices of NVIDIA's Paddle checkpoints trained with --fuse-mha",
    )
    parser.add_argument(
        "--allow-unknown",
        action="store_true",
        help="leave out tensors that no BERT has, instead of refusing them; they are listed",
    )
    parser.add_argument(
        "--keep-padding",
        action="store_true",
        help="write the rows that pad the vocabulary to a "
        "multiple of 8 to the other formats too, as part of the vocabulary",
    )
    parser.add_argument(
        "--check", action="store_true", help="load the result with PaddleNLP's own classes and compare the outputs"
    )
    request = request_of(Request, parser.parse_args(argv))
    if (request.target is None) == (request.to_hub is None):
        raise ValueError("give the folder to make, --to DIR, or the name on a hub, --to-hub NAME: one of them")
    if request.to_hub is None and request.to_format is None:
        raise ValueError(f"--to DIR needs --to-format, one of {', '.join(FORMATS)}; add it")
    if request.to_hub is not None and request.to_format not in (None, "hf"):
        raise ValueError(f"--to-format {request.to_format}: --to-hub writes hf, which transformers loads; omit it")
    if request.to_hub is None and (request.hub_private or request.hub_update or request.hub_token_file):
        raise ValueError("--hub-private, --hub-update and --hub-token-file are for --to-hub NAME; omit them")
    request = replace(request, to_format=request.to_format or "hf")
    if request.check and request.to_format != "paddlenlp":
        raise ValueError(f"--check: PaddleNLP loads no {request.to_format}; use --to-format paddlenlp, or omit it")
    if request.check and importlib.util.find_spec("paddlenlp") is None:
        raise ValueError(
            f"--check needs PaddleNLP; run `{sys.executable} -m pip install paddlenlp==2.8.1`, with Paddle 2.6, or "
            "omit it"
        )
    return request


def source_parser(
    program: str, description: str, *, source: str, source_help: str, task_help: str, needs_target: bool = True
) -> Parser:
    """A parser with the flags of both commands: the model to read and the folder to make."""
    parser = Parser(prog=program, description=description, formatter_class=Formatter, allow_abbrev=False)
    parser.add_argument(source, dest="source", required=True, metavar="DIR_OR_FILE", help=source_help)
    parser.add_argument(
        "--to", dest="target", required=needs_target, type=Path, metavar="DIR", help="the folder to make"
    )
    parser.add_argument("--task", choices=HEADS, help=task_help)
    parser.add_argument(
        "--config-file", type=Path, help="the model's bert_config.json or config.json, if none is beside the weights"
    )
    parser.add_argument("--vocab-file", type=Path, help="vocab.txt or tokenizer.json, if none is beside the weights")
    parser.add_argument(
        "--do-lower-case",
        action=argparse.BooleanOptionalAction,
        help="whether the vocabulary is of lower-cased text (default: from the source)",
    )
    card = parser.add_argument_group("model card (README.md)")
    card.add_argument("--license", help="of the model, as the hub spells it: apache-2.0, cc-by-4.0, other")
    card.add_argument("--language", dest="languages", nargs="+", default=(), metavar="CODE", help="of its text: en de")
    card.add_argument(
        "--watts", type=float, help="drawn by the machine while it trained (default: a guess by its processor, named)"
    )
    return parser


def request_of(kind: type[AnyRequest], arguments: argparse.Namespace) -> AnyRequest:
    """The request of a parsed command line."""
    values = vars(arguments)
    card = CardRequest(**{field.name: values.pop(field.name) for field in fields(CardRequest)})
    return kind(**values, card=card)
