"""Writes a model as a checkpoint of this project, of Hugging Face or of PaddleNLP."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert.conversion import tensor_layout, tensor_names
from bert.conversion.model import Model
from bert.conversion.sentence_vectors import POOLING_KEYS
from bert.conversion.settings import MODEL_FORMATS
from bert.conversion.task_file import read_usage
from bert.conversion.untrusted_files import ConversionError, write_json
from bert.conversion.usage import LABELS_FILE, VectorForm
from bert.conversion.vocabularies import write_vocabulary

# Of a reranker: without these keys CrossEncoder of sentence-transformers, from version 4 on and before, puts the one
# number of a pair through a sigmoid.
_IDENTITY = "torch.nn.modules.linear.Identity"
_SCORES_AS_THEY_ARE = {
    "sentence_transformers": {"activation_fn": _IDENTITY},
    "sbert_ce_default_activation_function": _IDENTITY,
}


def write_native(folder: Path, model: Model) -> None:
    """Write a checkpoint of ours without an optimizer; `convert` adds the manifest."""
    save_file(dict(model.parameters), folder / "bert_paddle.safetensors", metadata={"format": "pd"})
    write_json(folder / "bert_config.json", model.description(model.config))
    if model.labels is not None and len(model.labels) == model.num_outputs():
        (folder / LABELS_FILE).write_text(json.dumps(model.labels, ensure_ascii=False) + "\n", encoding="utf-8")
    if model.tokens is not None:
        write_vocabulary(folder, model.tokens)
        write_json(folder / "tokenizer_config.json", model.tokens.normalization.settings())


def write_hugging_face(folder: Path, model: Model) -> None:
    """Write config.json, model.safetensors and the tokenizer's files."""
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
    special = {} if config.has_token_types() else model.special_token_ids()  # a BERT's configuration has none
    usage = read_usage(model.folder)
    scores = _SCORES_AS_THEY_ARE if usage.reranking and model.task == "sequence-classification" else {}
    description = {**model.description(config), **special, **scores, "torch_dtype": "float32"}
    write_json(folder / "config.json", description)
    model.write_tokenizer(folder, usage.max_seq_length if scores else None)
    if model.task == "encoder":
        _note_absent_pooler(model, "transformers")
        if form := usage.vectors:
            _write_sentence_transformers(folder, model, form)


def _write_sentence_transformers(folder: Path, model: Model, form: VectorForm) -> None:
    """Write the additional files that sentence-transformers reads."""
    modules = {"": "Transformer", "1_Pooling": "Pooling", **({"2_Normalize": "Normalize"} if form.normalize else {})}
    listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules.items()]
    pooling = {"word_embedding_dimension": model.config.hidden_size}
    for name in filter(None, modules):
        (folder / name).mkdir()
    length = read_usage(model.folder).max_seq_length or model.config.max_position_embeddings
    files = {
        "modules": [{"idx": number, "name": str(number), **module} for number, module in enumerate(listed)],
        "1_Pooling/config": pooling | {key: mode == form.pooling for key, mode in POOLING_KEYS.items()},
        "sentence_bert_config": {"max_seq_length": length, "do_lower_case": False},
        "config_sentence_transformers": {
            "prompts": {"query": form.query_prefix, "document": form.passage_prefix},
            "default_prompt_name": "document" if form.passage_prefix else None,  # as ours: a text is a passage
            "similarity_fn_name": "cosine",
        },
    }
    for name, content in files.items():
        write_json(folder / f"{name}.json", content)


def write_paddlenlp(folder: Path, model: Model) -> None:
    """Write config.json, model_state.pdparams and the tokenizer's files."""
    if not model.config.has_token_types():
        name = "no ModernBERT" if model.config.is_modern() else "other names and positions of a RoBERTa"
        raise ConversionError(f"model_type={model.config.model_type}: PaddleNLP 2.8 has {name}; use the format hf")
    if model.config.hidden_act == "gelu_tanh":
        raise ConversionError(
            "hidden_act=gelu_tanh: PaddleNLP's BERT has only gelu and relu, so its outputs would "
            "differ; use the format hf, or train with --hidden-act gelu"
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
    elif model.tokens is not None and model.tokens.normalization.equal_letters:
        model.notes.append("PaddleNLP's tokenizer composes no letters: give it text in NFC (unicodedata.normalize)")
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
assert tuple(WRITERS) == MODEL_FORMATS
