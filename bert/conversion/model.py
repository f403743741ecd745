"""A model that was read from any known format and can be written in another: tensors, task, accompanying files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import locating, tensor_names, vocabularies, vocabulary_padding
from bert.conversion.model_description import architecture_of, named_classes
from bert.conversion.reading import PretrainedWeights, read_pretrained
from bert.conversion.settings import ModelSource
from bert.conversion.task_file import files_to_copy, unread_vector_steps
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import TASK_FILE
from bert.conversion.vocabularies import Tokens, write_tokenizer
from bert.model.head_specs import HEADS


@dataclass(frozen=True)
class Model(PretrainedWeights):
    """Weights to write: the tensors of one task and accompanying files. Writers add to `notes`."""

    config: BertConfig
    task: str
    source: Path
    tokens: Tokens | None
    texts: Mapping[str, str]  # other files, name -> content
    keep_padding: bool  # write the padding rows of the vocabulary too

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
        """Parameters and description without the padding rows of the vocabulary, for other libraries."""
        if self.keep_padding:
            padded = self.config.padded_vocab_size()
            self.notes.append(f"padding of the vocabulary kept: vocab_size is {padded}")
            return dict(self.parameters), self.config.model_copy(update={"vocab_size": padded})
        return vocabulary_padding.strip_vocabulary(self.parameters, self.config.vocab_size, self.notes), self.config

    def num_outputs(self) -> int | None:
        """Number of classes of the classifier; None without one."""
        bias = self.parameters.get("classifier.bias")
        return None if bias is None else len(bias)

    def has_pooler(self) -> bool:
        return "bert.pooler.dense.weight" in self.parameters

    def description(self, config: BertConfig, library: int = 0) -> dict[str, Any]:
        """Content of config.json; `library` is the index of its class name in HEADS[task].classes."""
        values = {"architectures": [architecture_of(self.task, config, library)], **json.loads(config.to_json())}
        count = self.num_outputs()
        if "classification" in self.task and count:
            labels = named_classes(self.labels or (), count)
            values["id2label"] = {str(index): label for index, label in enumerate(labels)}
            values["label2id"] = {label: index for index, label in enumerate(labels)}
            if count == 1:
                values["problem_type"] = "regression"
            if json.loads(self.texts.get(TASK_FILE, "{}")).get("label_separator"):
                values["problem_type"] = "multi_label_classification"
        return values

    def special_token_ids(self) -> dict[str, int | None]:
        """Ids of special tokens by transformers' keys of config.json; None without a vocabulary.

        Without these keys, transformers takes the ids of another vocabulary, which may not exist in this one.
        """
        of_tokens = {"bos": "[CLS]", "eos": "[SEP]"}
        if self.config.is_modern():
            of_tokens |= {"cls": "[CLS]", "sep": "[SEP]"}
        ids: dict[str, int | None] = {"pad_token_id": self.config.pad_token_id}
        for name, token in of_tokens.items():
            ids[f"{name}_token_id"] = None if self.tokens is None else self.tokens.vocabulary.id_of(token)
        return ids

    def write_texts(self, folder: Path) -> None:
        for name, text in self.texts.items():
            (folder / name).write_text(text, encoding="utf-8")

    def write_tokenizer(self, folder: Path, max_length: int | None = None) -> None:
        """Write the tokenizer, which cuts texts to `max_length` tokens; None: to as many as the model reads."""
        if self.tokens is not None:
            length, token_types = max_length or self.config.max_position_embeddings, self.config.has_token_types()
            write_tokenizer(folder, self.tokens, length, token_types=token_types)


def read(request: ModelSource) -> Model:
    """Find and read a model: the head of one task, the vocabulary and the description."""
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
    case = {"lowercase": request.do_lower_case, "strip_accents": request.strip_accents}
    tokens = vocabularies.find_tokens(pretrained.folder, vocab_file, notes, **case)
    if tokens is not None:
        vocabularies.check_ids(tokens, config, notes)
    if task == "encoder" and (steps := unread_vector_steps(pretrained.folder)):
        notes.append(f"left out: {', '.join(steps)} of sentence-transformers; its vectors cannot be made from this")
    return Model(
        **{**vars(pretrained), "parameters": parameters, "task": task},
        source=path,
        tokens=tokens,
        texts=files_to_copy(pretrained.folder),
        keep_padding=request.keep_padding,
    )


def choose_task(weights: PretrainedWeights, requested: str | None) -> str:
    """The requested task, otherwise the task in the model's description, otherwise the task that its heads allow.

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
    tops = set(heads) - {"pooler", "token weights"}
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
    """The parameters of the encoder and the task's heads; a note names each other head."""
    modern = tensor_names.is_modern(parameters)
    used = {*HEADS[task].needs, *HEADS[task].may_have, *(() if modern and task == "encoder" else ("pooler",))}
    unused = [head for head in tensor_names.heads_of(parameters) if head not in used]
    notes += [f"left out: {head}, not used by {task}" for head in unused]
    names = {name for head in unused for name in tensor_names.heads_by_name(modern)[head]}
    return {name: array for name, array in parameters.items() if name not in names}
