"""Tests of `Predictor` with a stub of its runtime: lengths, padding, dtypes and refused devices."""

import json
import types

import numpy as np
import pytest
from tokenizers.processors import BertProcessing

from bert.inference import predictor
from bert.inference.predictor import Predictor
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import reference_tokenizer

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *(f"w{number}" for number in range(9))))
CLS, SEP, W0 = (VOCABULARY.id_of(token) for token in ("[CLS]", "[SEP]", "w0"))
DESCRIPTION = {"inputs": ["input_ids", "attention_mask"], "outputs": {"hidden": ["b", "s", 2], "pooled": ["b", 2]}}


@pytest.fixture
def export(tmp_path):
    """Make a folder of a Paddle Inference export of sequences of at most 20 tokens; its files are empty."""

    def write(**changes):
        (tmp_path / "serving.json").write_text(json.dumps({**DESCRIPTION, "max_length": 20, **changes}))
        return tmp_path

    names = (
        "model.pdmodel",
        "model.pdiparams",
        "calibration.npz",
        "model.onnx",
        "openvino_model.xml",
        "openvino_model.bin",
    )
    for name in names:
        (tmp_path / name).touch()
    tokenizer = reference_tokenizer(VOCABULARY)
    tokenizer.post_processor = BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return write


@pytest.fixture
def shapes(monkeypatch):
    """Return the shapes and dtypes that Paddle's predictor gets; the stub returns the ids as states and their sums."""
    seen, held = [], {}

    class Runtime:
        def get_input_handle(self, name):
            return types.SimpleNamespace(copy_from_cpu=lambda values: held.update({name: values}))

        def run(self):
            seen.append({name: (values.shape, values.dtype.name) for name, values in held.items()})

        def get_output_names(self):
            return ["0", "1"]

        def get_output_handle(self, name):
            ids = held["input_ids"].astype("float32")
            values = np.stack([ids, ids * held["attention_mask"]], axis=-1)
            return types.SimpleNamespace(copy_to_cpu=lambda: values if name == "0" else values.sum(1))

    monkeypatch.setattr(predictor.paddle.inference, "create_predictor", lambda config: Runtime())
    return seen


def test_paddle_gets_lengths_of_multiples_of_8_or_the_longest_and_gives_those_of_the_feed(export, shapes):
    served = Predictor(export(), device="cpu")
    for length in range(1, 21):
        ids = np.arange(2 * length, dtype=np.int32).reshape(2, length) + 1
        found = served.run({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids})
        width = min(20, -(-length // 8) * 8)
        assert shapes[-1] == dict.fromkeys(DESCRIPTION["inputs"], ((2, width), "int64"))
        assert found["hidden"].tolist() == np.stack([ids, ids], axis=-1).tolist()
        assert found["pooled"].tolist() == [[row.sum()] * 2 for row in ids]
    assert [*found] == served.outputs == ["hidden", "pooled"]


def test_texts_are_cut_to_the_given_length_or_that_of_the_export_and_padded_to_the_longest(export, shapes):
    served = Predictor(export(max_length=8), device="cpu")
    long = " ".join(f"w{number}" for number in range(9))
    ids = [[CLS, *range(W0, W0 + 6), SEP], [CLS, W0 + 3, SEP, *[0] * 5]]
    found = served.tokenize([long, "w3"])
    assert found["input_ids"].tolist() == ids and found["attention_mask"].tolist() == [[1] * 8, [1] * 3 + [0] * 5]
    assert served.tokenize(["w1", "w3 w4"])["input_ids"].shape == (2, 4)
    assert served.tokenize([long], max_length=5)["input_ids"].tolist() == [[CLS, W0, W0 + 1, W0 + 2, SEP]]
    pair = served.tokenize([("w1 w2", "w3"), ("w1", "w4")])
    assert pair["input_ids"][0].tolist() == [CLS, W0 + 1, W0 + 2, SEP, W0 + 3, SEP]
    assert pair["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]
    assert served.texts([long], max_length=5)["hidden"].shape == (1, 5, 2)
    assert served.texts([long])["hidden"].shape == (1, 8, 2) and "token_type_ids" not in shapes[-1]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"format": "openvino"}, "OpenVINO"),
        ({"format": "openvino", "precision": "int8"}, "INT8"),
        ({"format": "onnx", "precision": "int8"}, "INT8"),
        ({"precision": "int8"}, "INT8"),
    ],
)
def test_an_export_for_cpus_is_not_run_on_a_card(export, monkeypatch, changes, kind):
    """With `auto` it runs on the CPU, even if there is a card."""
    used = []

    def start(files, description, device, threads):
        used.append((len(files), device, threads))

    for name in ("_openvino_session", "_onnx_session", "_paddle_session"):
        monkeypatch.setattr(predictor, name, start)
    folder = export(**changes)
    if changes.get("format") != "openvino":
        for device in ("gpu", "tensorrt"):
            with pytest.raises(
                ValueError, match=rf"device={device}: .* is an export for CPUs \({kind}\); pass --device cpu"
            ):
                Predictor(folder, device=device)
    Predictor(folder, cpu_threads=3)
    Predictor(folder, device="cpu")
    number = {"openvino": 2, "onnx": 1}.get(changes.get("format"), 3)
    assert used == [(number, "cpu", 3), (number, "cpu", 1)]


def test_an_openvino_export_is_refused_on_a_card(export):
    for device in ("gpu", "tensorrt"):
        with pytest.raises(ValueError, match=rf"device={device}: .* is an export for CPUs \(OpenVINO\); .*or onnx and"):
            Predictor(export(format="openvino", precision="float32"), device=device)


def test_other_exports_get_the_device_that_was_asked_for(export, monkeypatch):
    used = []
    monkeypatch.setattr(predictor, "_paddle_session", lambda files, description, device, threads: used.append(device))
    for device in ("auto", "gpu", "tensorrt", "cpu"):
        Predictor(export(precision="fp16"), device=device)
    assert used == ["auto", "gpu", "tensorrt", "cpu"]


class Calls:
    """Notes the calls of its methods: (name, arguments, keywords)."""

    def __init__(self, *made) -> None:
        self.calls = [("made", made, {})]

    def __getattr__(self, name):
        return lambda *arguments, **keywords: self.calls.append((name, arguments, keywords))

    def quantizer_config(self):
        return self


@pytest.fixture
def config_of(monkeypatch):
    """Return the calls that configure Paddle Inference, except its log."""
    monkeypatch.setattr(predictor.paddle.inference, "Config", Calls)
    monkeypatch.setattr(predictor, "card_number", lambda: 3)
    monkeypatch.setattr(predictor, "IS_PADDLE_3", False)

    def calls(device: str, precision: str | None, files=("m", "p"), inputs=()):
        description = {"precision": precision, "inputs": inputs} if precision else {"inputs": inputs}
        noted = predictor.paddle_config([*files], description, device, 5).calls
        return [
            (name, *arguments, *keywords.items()) for name, arguments, keywords in noted if name != "disable_glog_info"
        ]

    return calls


def test_paddle_is_told_the_device_the_precision_and_the_threads(config_of):
    types_of = predictor.paddle.inference.PrecisionType
    made, cpu = ("made", "m", "p"), [("disable_gpu",), ("set_cpu_math_library_num_threads", 5)]
    one_dnn = [("enable_mkldnn",), ("set_mkldnn_cache_capacity", 16)]
    assert config_of("cpu", "float32") == config_of("cpu", None) == config_of("cpu", "fp16") == [made, *cpu]
    assert config_of("cpu", "bfloat16") == [made, *cpu, *one_dnn, ("enable_mkldnn_bfloat16",)]
    for precision, kind in (("fp16", types_of.Half), ("bfloat16", types_of.Bfloat16), ("float32", types_of.Float32)):
        card = [made, ("enable_use_gpu", 256, 3, kind)]
        assert config_of("gpu", precision) == card
        tensorrt = [("enable_tensorrt_engine", ("precision_mode", kind), ("use_calib_mode", False))]
        assert config_of("tensorrt", precision) == [*card, *tensorrt, ("enable_tuned_tensorrt_dynamic_shape",)]


@pytest.mark.parametrize(("number", "rows"), [(3, [0, 1, 2]), (130, range(0, 128, 2)), (200, range(0, 192, 3))])
def test_int8_is_calibrated_on_at_most_64_sequences_of_every_length(config_of, tmp_path, number, rows):
    ids = np.arange(number * 4).reshape(number, 4)
    np.savez(tmp_path / "c.npz", input_ids=ids, attention_mask=ids + 1, other=ids)
    names = ["input_ids", "attention_mask"]
    *_, made, data, size, types_of = config_of("cpu", "int8", ("m", "p", tmp_path / "c.npz"), names)
    assert made == ("enable_quantizer",) and data[0] == "set_quant_data"
    assert [tensor.name for tensor in data[1]] == names
    for shift, tensor in enumerate(data[1]):
        assert tensor.as_ndarray().tolist() == (ids[[*rows]] + shift).tolist()
    assert (size, types_of) == (("set_quant_batch_size", len(rows)), ("set_enabled_op_types", {"fc"}))


@pytest.mark.parametrize(("version", "is_there"), [((0, 0, 0), False), ((10, 0, 1), True), ((8, 5, 3), True)])
def test_tensorrt_is_there_by_any_part_of_its_version(monkeypatch, version, is_there):
    monkeypatch.setattr(predictor.paddle.inference, "get_trt_runtime_version", lambda: version)
    monkeypatch.setattr(predictor.paddle.inference, "get_trt_compile_version", lambda: (8, 5, 3))
    if is_there:
        predictor.require_tensorrt()
    else:
        with pytest.raises(ValueError, match="needs libnvinfer 8.5.3"):
            predictor.require_tensorrt()


def test_onnx_runtime_on_a_cpu_gets_its_threads_and_is_not_asked_for_cuda(export, monkeypatch, caplog):
    started = []

    class Session:
        def __init__(self, file, options, providers):
            started.append((file.rpartition("/")[2], vars(options), providers))

        def get_providers(self):
            return ["CPUExecutionProvider"]

        def run(self, names, feed):
            return [feed["input_ids"] * 2, feed["attention_mask"].sum(1)]

    runtime = types.SimpleNamespace(
        SessionOptions=types.SimpleNamespace,
        InferenceSession=Session,
        get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    monkeypatch.setattr(predictor, "_runtime", lambda *names: runtime)
    served = Predictor(export(format="onnx"), device="cpu", cpu_threads=3)
    assert started == [("model.onnx", {"intra_op_num_threads": 3}, ["CPUExecutionProvider"])] and not caplog.records
    ids = np.array([[1, 2, 3]], np.int32)
    found = served.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    assert found["hidden"].tolist() == [[2, 4, 6]] and found["pooled"].tolist() == [3]


@pytest.mark.parametrize(("precision", "hint"), [("float32", "f32"), ("bfloat16", "bf16"), ("int8", "bf16")])
def test_openvino_gets_its_threads_and_the_arithmetic_of_the_export(export, monkeypatch, precision, hint):
    """OpenVINO by itself would compute float32 in bfloat16 on processors that can."""
    compiled = []

    class Core:
        def compile_model(self, file, device, settings):
            compiled.append((file.rpartition("/")[2], device, settings))
            infer = lambda feed: {"pooled": feed["input_ids"].sum(1), "hidden": feed["input_ids"]}  # noqa: E731
            return types.SimpleNamespace(create_infer_request=lambda: types.SimpleNamespace(infer=infer))

    monkeypatch.setattr(predictor, "_runtime", lambda *names: types.SimpleNamespace(Core=Core))
    served = Predictor(export(format="openvino", precision=precision), cpu_threads=3)
    settings = {"INFERENCE_NUM_THREADS": 3, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": hint}
    assert compiled == [("openvino_model.xml", "CPU", settings)]
    ids = np.array([[1, 2, 3]])
    found = served.run({"input_ids": ids, "attention_mask": ids})
    assert found["pooled"].tolist() == [6] and found["hidden"].tolist() == [[1, 2, 3]]


def test_missing_files_are_all_named(export):
    folder = export(precision="int8")
    for name in ("model.pdmodel", "calibration.npz", "tokenizer.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=r"lacks model.pdmodel and calibration.npz; export it again"):
        Predictor(folder)


def test_texts_need_a_tokenizer(export, shapes):
    folder = export()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="was exported without a vocabulary; export it with --vocab-file"):
        Predictor(folder, device="cpu").texts(["w1"])
