"""A linear probe: how well a linear classifier tells labelled lines apart by the frozen encoder's mean states."""

from functools import cached_property
from typing import Any

import numpy as np

from bert.config.training_settings import TrainingConfig
from bert.model.objectives import EncoderObjective
from bert.pretraining.labelled_lines import FOLDS, LabelledLines
from bert.tokenization.library import text_tokenizer
from bert.tokenization.normalization import Normalization
from bert.tokenization.vocabulary import Vocabulary
from bert.training.devices import Device
from bert.training.interruption import beat
from program import PredictionProgram, build_prediction_program

PROBE_ACCURACY = "eval_probe_accuracy"
_BATCH, _MULTIPLE = 32, 8


class Probe:
    """The lines as sequences of tokens, and the encoder's program, which uses the weights in a device's scope."""

    def __init__(
        self,
        lines: LabelledLines,
        config: TrainingConfig,
        max_seq_length: int,
        vocabulary: Vocabulary,
        normalization: Normalization,
    ) -> None:
        self._labels, self._config = np.array(lines.labels), config
        ids, offsets = text_tokenizer(vocabulary, normalization).encode_texts(lines.texts)
        cls_id, sep_id = vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
        rows = [ids[start:stop][: max_seq_length - 2] for start, stop in zip(offsets, offsets[1:], strict=False)]
        self._rows = [np.array([cls_id, *row, sep_id], np.int64) for row in rows]
        self._pad = vocabulary.id_of("[PAD]")

    @cached_property
    def _program(self) -> PredictionProgram:
        return build_prediction_program(EncoderObjective(self._config.model))

    def accuracy(self, device: Device) -> float:
        """Mean over folds, each of which is predicted by a classifier that was fitted on the others."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        return float(cross_val_score(classifier, self.embeddings(device), self._labels, cv=folds).mean())

    def embeddings(self, device: Device) -> np.ndarray:
        """The mean of the last hidden states over all tokens of each line, float32 [n, hidden]."""
        order = sorted(range(len(self._rows)), key=lambda row: len(self._rows[row]))
        means = np.empty((len(order), self._config.model.hidden_size), np.float32)
        output = self._program.outputs["last_hidden_state"]
        for start in range(0, len(order), _BATCH):
            beat("running the probe's lines")
            rows = order[start : start + _BATCH]
            feed = self._feed(rows)
            (states,) = device.executor.run(self._program.main, feed=feed, fetch_list=[output], scope=device.scope)
            mask = feed["attention_mask"][:, :, None]
            means[rows] = (states * mask).sum(1) / mask.sum(1)
        return means

    def _feed(self, rows: list[int]) -> dict[str, Any]:
        length = -(-max(len(self._rows[row]) for row in rows) // _MULTIPLE) * _MULTIPLE
        length = min(length, self._config.model.max_position_embeddings)
        ids, mask = np.full((len(rows), length), self._pad, np.int64), np.zeros((len(rows), length), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(self._rows[row])], mask[place, : len(self._rows[row])] = self._rows[row], 1
        return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}
