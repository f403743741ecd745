"""The BERT models that PaddleNLP 2.8 knows by name: addresses, sizes and case. PaddleNLP itself is not needed.

The server states no sha256. PPNLP_ENDPOINT replaces https://bj.bcebos.com/paddlenlp, as in PaddleNLP.
"""

import json
import os
from typing import Any, NamedTuple

_ENDPOINT = "https://bj.bcebos.com/paddlenlp"
_MODELS = "paddlenlp/models/transformers"
_GOOGLE_VOCABULARIES = "paddle-hapi/models/bert"


class PaddleNlpModel(NamedTuple):
    """A model: paths of its files on the server, and its sizes.

    Attributes:
        sizes: vocabulary, hidden size, layers, heads, intermediate size.
    """

    weights: str
    vocabulary: str
    sizes: tuple[int, int, int, int, int]
    do_lower_case: bool

    def addresses(self) -> dict[str, str]:
        """File name -> URL."""
        endpoint = os.environ.get("PPNLP_ENDPOINT", _ENDPOINT).rstrip("/").removesuffix("/paddlenlp")
        return {"model_state.pdparams": f"{endpoint}/{self.weights}", "vocab.txt": f"{endpoint}/{self.vocabulary}"}

    def texts(self) -> dict[str, str]:
        """Files that the server does not have: file name -> content."""
        names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        config: dict[str, Any] = {"model_type": "bert", "architectures": ["BertForPretraining"]}
        config |= dict(zip(names, self.sizes, strict=True))
        config |= {"hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2}
        return {
            "config.json": json.dumps(config, indent=1) + "\n",
            "tokenizer_config.json": json.dumps({"do_lower_case": self.do_lower_case}) + "\n",
        }


def _base(vocab_size: int) -> tuple[int, int, int, int, int]:
    return vocab_size, 768, 12, 12, 3072


def _large(vocab_size: int) -> tuple[int, int, int, int, int]:
    return vocab_size, 1024, 24, 16, 4096


def _google(name: str, folder: str, sizes: tuple[int, int, int, int, int], do_lower_case: bool) -> PaddleNlpModel:
    vocabulary = f"{_GOOGLE_VOCABULARIES}/{name}-vocab.txt"
    return PaddleNlpModel(f"{_MODELS}/{folder}{name}.pdparams", vocabulary, sizes, do_lower_case)


def _roberta(kind: str, hidden: int, layers: int) -> PaddleNlpModel:
    sizes = (21128, hidden, layers, hidden // 64, 4 * hidden)
    return PaddleNlpModel(
        f"{_MODELS}/uer/chinese_roberta_{kind}.pdparams", f"{_MODELS}/uer/chinese_roberta_vocab.txt", sizes, True
    )


_CHINESE = f"{_GOOGLE_VOCABULARIES}/bert-base-chinese-vocab.txt"
MODELS: dict[str, PaddleNlpModel] = {
    "bert-base-uncased": _google("bert-base-uncased", "", _base(30522), True),
    "bert-large-uncased": _google("bert-large-uncased", "", _large(30522), True),
    "bert-base-multilingual-uncased": _google("bert-base-multilingual-uncased", "", _base(105879), True),
    "bert-base-cased": _google("bert-base-cased", "bert/", _base(28996), False),
    "bert-large-cased": _google("bert-large-cased", "bert/", _large(28996), False),
    "bert-base-multilingual-cased": _google("bert-base-multilingual-cased", "bert/", _base(119547), False),
    "bert-base-chinese": _google("bert-base-chinese", "bert/", _base(21128), False),
    **{
        name: PaddleNlpModel(f"{_MODELS}/bert/{name}.pdparams", f"{_MODELS}/bert/{name}-vocab.txt", _base(21128), False)
        for name in ("bert-wwm-chinese", "bert-wwm-ext-chinese")
    },
    "macbert-base-chinese": PaddleNlpModel(
        f"{_MODELS}/macbert/macbert-base-chinese.pdparams", _CHINESE, _base(21128), False
    ),
    "macbert-large-chinese": PaddleNlpModel(
        f"{_MODELS}/macbert/macbert-large-chinese.pdparams", _CHINESE, _large(21128), False
    ),
    "simbert-base-chinese": PaddleNlpModel(
        f"{_MODELS}/simbert/simbert-base-chinese-v1.pdparams", f"{_MODELS}/simbert/vocab.txt", _base(13685), True
    ),
    "uer/chinese-roberta-base": _roberta("base", 768, 12),
    "uer/chinese-roberta-medium": _roberta("medium", 512, 8),
    "uer/chinese-roberta-6l-768h": _roberta("6l_768h", 768, 6),
    "uer/chinese-roberta-small": _roberta("small", 512, 4),
    "uer/chinese-roberta-mini": _roberta("mini", 256, 4),
    "uer/chinese-roberta-tiny": _roberta("tiny", 128, 2),
}
