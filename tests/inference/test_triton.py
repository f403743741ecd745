"""Tests of exports for Triton: config.pbtxt fits Triton's schema and the inputs and outputs of ONNX Runtime."""

import ast
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from bert.inference.heads import load_model
from tests.inference import models
from tests.inference.models import LABELS, export

pytest.importorskip("onnxruntime")
TASKS = ("pretraining", "question-answering", "sequence-classification", "token-classification")
KINDS = {"TYPE_INT64": ("tensor(int64)", "int64"), "TYPE_FP32": ("tensor(float)", "float32")}


def published_schema() -> type:
    """Return the message inference.ModelConfig of the tritonclient package.

    Its module wants a newer protobuf than Paddle's; the schema in it is a literal, which any version reads.
    """
    package = importlib.util.find_spec("tritonclient")
    if package is None or package.submodule_search_locations is None:
        pytest.skip("tritonclient not found: bash scripts/run_tests.sh installs it")
    path = Path(package.submodule_search_locations[0]) / "grpc/model_config_pb2.py"
    literals = [
        node.args[0].value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile"
    ]
    file = descriptor_pb2.FileDescriptorProto.FromString(literals[0])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


folders = models.folders  # fixture


@pytest.fixture(scope="module")
def exports(folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    return {task: export(folders[task], root / task, "--format", "triton") for task in TASKS}


def config_of(folder: Path):
    return text_format.Parse((folder / "config.pbtxt").read_text(), published_schema()())


@pytest.mark.parametrize("task", TASKS)
def test_the_folder_says_what_the_graph_takes_and_gives_and_is_a_model_of_ours_too(folders, exports, task):
    import onnxruntime

    folder = exports[task]
    config = config_of(folder)
    assert config.backend == "onnxruntime" and config.max_batch_size == 64 and config.HasField("dynamic_batching")
    session = onnxruntime.InferenceSession(str(folder / "1/model.onnx"), providers=["CPUExecutionProvider"])
    name_of = type(config).DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number
    for described, real in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        assert [tensor.name for tensor in described] == [tensor.name for tensor in real]
        for tensor, there in zip(described, real, strict=True):
            assert KINDS[name_of[tensor.data_type].name][0] == there.type
            dims = [size if isinstance(size, int) else -1 for size in there.shape[1:]]
            assert list(tensor.dims) == dims and isinstance(there.shape[0], str)  # the batch is Triton's
    feed = {tensor.name: np.ones((3, 7), KINDS[name_of[tensor.data_type].name][1]) for tensor in config.input}
    for tensor, found in zip(config.output, session.run(None, feed), strict=True):
        assert found.shape[0] == 3
        assert [size if size > 0 else 7 for size in tensor.dims] == list(found.shape[1:])
    labels = folder / "labels.txt"
    assert (tuple(labels.read_text().splitlines()) if labels.exists() else None) == LABELS.get(task)
    named = [tensor.label_filename for tensor in config.output]
    assert named == (["labels.txt"] if task == "sequence-classification" else [""] * len(named))
    assert {"tokenizer.json", "vocab.txt", "serving.json"} < {path.name for path in folder.iterdir()}
    assert json.loads((folder / "serving.json").read_text())["check"]["relative_error"] < 1e-4
    if task == "sequence-classification":
        (found,) = load_model(folder).predict(["word1 word2"])
        (expected,) = load_model(folders[task], device="cpu").predict(["word1 word2"])
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)


def test_int8_is_written_for_triton_too(folders, tmp_path):
    words = ("--format", "triton", "--precision", "int8", "--tolerance", 2)
    folder = export(folders["sequence-classification"], tmp_path / "small", *words)
    assert config_of(folder).input[0].dims == [-1]
    assert sorted(path.name for path in (folder / "1").iterdir()) == ["model.onnx"]
