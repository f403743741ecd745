"""Question answering as a fine-tuning task: files -> windows, logits -> answers, scores and files."""

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.model_usage import READER_FILE, Usage, usage_texts
from bert.files import write_atomically
from bert.finetuning import feature_cache, text_files
from bert.finetuning.feature_cache import FeatureCache
from bert.finetuning.loader import FeatureTable
from bert.finetuning.resumable_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.finetuning.squad import examples as squad_examples
from bert.finetuning.squad import features as squad_features
from bert.finetuning.squad.config import SquadConfig, reader_settings
from bert.finetuning.squad.examples import SquadExamples, read_squad
from bert.finetuning.squad.features import FeatureCounts, SquadFeatures, build_features
from bert.finetuning.squad.metrics import answers_of, best_thresholds, score_squad_1, score_squad_2
from bert.finetuning.squad.predictions import AnswerSettings, Predictions, n_best_as_json, predict
from bert.finetuning.squad.streaming import count_questions, stream_questions
from bert.finetuning.streamed_prediction import StreamedSet, Window
from bert.finetuning.task import FineTuning, FineTuningData, Outputs, PredictedSet
from bert.model.objectives import QuestionAnsweringObjective
from bert.runtime.distributed import Group
from bert.samples import sample_table as samples
from bert.tokenization import fast_tokenizer
from bert.tokenization import offsets as token_offsets
from bert.tokenization.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


def open_task(config: SquadConfig, group: Group) -> FineTuning:
    return FineTuning(config, group, read_data(config))


def read_data(config: SquadConfig) -> FineTuningData:
    """Read the files that the settings name, and log what was left out.

    Raises:
        ValueError: a file is damaged, in another form, or lacks answers that are needed.
    """
    data, run = config.data, config.run
    vocabulary = Vocabulary.from_file(data.vocab_file)
    cache = FeatureCache(data.cache_dir)
    if data.eval_script is not None:
        logger.info(f"eval_script={data.eval_script} is not run: the official scores are computed by this program")
    train, fingerprint = None, ""
    if run.do_train:
        assert data.train_file is not None
        features, counts = _features(config, data.train_file, vocabulary, cache, training=True)
        train = table_of(features, vocabulary, labelled=True)
        fingerprint = feature_cache.fingerprint(vars(features))  # not the key: that follows the program's text
        for line in describe(data.train_file, counts):
            logger.info(line)
    return FineTuningData(
        QuestionAnsweringObjective(config.model, config.hardware.fuse_mha),
        fingerprint,
        "eval_f1",
        train,
        evaluation=[_evaluated_set(config, vocabulary, cache)] if run.do_eval else [],
        prediction=[_streamed_set(config, vocabulary)] if run.do_predict and not run.do_eval else [],
        texts={
            READER_FILE: reader_settings(data),
            **usage_texts(Usage("squad", data.max_seq_length), data.do_lower_case),
        },
        summary_names={"eval_exact_match": "exact_match", "eval_f1": "F1"},
    )


def _features(
    config: SquadConfig,
    path: Path,
    vocabulary: Vocabulary,
    cache: FeatureCache,
    training: bool,
    examples: SquadExamples | None = None,
) -> tuple[SquadFeatures, FeatureCounts]:
    """The windows of a file, from the cache if possible; otherwise the file is read."""
    data = config.data
    settings = {"windows": vars(data.windows()), "training": training, "version_2": data.version_2_with_negative}
    key = cache.key(
        "squad-train" if training else "squad-predict",
        files=[path],
        vocabulary=vocabulary,
        settings=settings,
        code=[squad_features, squad_examples, text_files, token_offsets, fast_tokenizer, samples],
    )

    def build():
        found = examples or read_squad(path, version_2=data.version_2_with_negative)
        features, counts = build_features(found, vocabulary, data.windows(), training)
        return vars(features), vars(counts)

    arrays, notes = cache.get_or_build(key, build)
    return SquadFeatures(**arrays), FeatureCounts(**notes)


def table_of(features: SquadFeatures, vocabulary: Vocabulary, labelled: bool) -> FeatureTable:
    """The windows as a table of features."""
    labels = (
        {
            "start_positions": features.start_positions.astype(np.int64),
            "end_positions": features.end_positions.astype(np.int64),
        }
        if labelled
        else {}
    )
    return FeatureTable(
        features.input_ids, features.offsets, features.first_lengths, labels, pad_id=vocabulary.id_of("[PAD]")
    )


def describe(path: Path, counts: FeatureCounts) -> list[str]:
    """Lines for the log: how many questions were used, truncated or skipped, and why."""
    lines = [
        f"{path}: {counts.questions:,} questions in {counts.windows:,} windows, {counts.long_paragraph:,} "
        f"questions with a paragraph of several windows, {counts.truncated_questions:,} questions truncated"
    ]
    if counts.windows_without_answer:
        lines.append(f"{path}: {counts.windows_without_answer:,} windows do not contain the answer: they teach [CLS]")
    if counts.skipped():
        reasons = ("misplaced_answer", "answer_without_token", "empty_paragraph", "empty_question")
        named = ", ".join(
            f"{getattr(counts, name):,} {name.replace('_', ' ')}" for name in reasons if getattr(counts, name)
        )
        lines.append(f"{path}: {counts.skipped():,} questions are not used for training: {named}")
    return lines


def _evaluated_set(config: SquadConfig, vocabulary: Vocabulary, cache: FeatureCache) -> PredictedSet:
    data = config.data
    assert data.predict_file is not None
    examples = read_squad(data.predict_file, version_2=data.version_2_with_negative)
    features, counts = _features(config, data.predict_file, vocabulary, cache, False, examples)
    for line in describe(data.predict_file, counts):
        logger.info(line)
    latest: list[tuple[Outputs, Predictions]] = []

    def predictions(outputs: Outputs) -> Predictions:
        if not latest or latest[0][0] is not outputs:  # scores and files are made of the same outputs
            latest[:] = [(outputs, _predictions(examples, features, outputs, data.answers()))]
        return latest[0][1]

    def write(outputs: Outputs, directory: Path) -> None:
        write_predictions(predictions(outputs), directory, data.version_2_with_negative)

    def score(outputs: Outputs) -> dict[str, float]:
        return scores(examples, predictions(outputs), data.version_2_with_negative)

    return PredictedSet(data.predict_file.name, table_of(features, vocabulary, labelled=False), score, write)


def _streamed_set(config: SquadConfig, vocabulary: Vocabulary) -> StreamedSet:
    """The file to predict, which is checked now and read again while it is predicted."""
    data, path = config.data, config.data.predict_file
    assert path is not None
    version_2 = data.version_2_with_negative

    def windows(start: int) -> Iterator[Window]:
        for examples in stream_questions(path, version_2, start, WINDOW_EXAMPLES, WINDOW_CHARACTERS):
            features, counts = build_features(examples, vocabulary, data.windows(), training=False)
            render = partial(_render, examples, features, data.answers(), start > 0)
            yield Window(table_of(features, vocabulary, labelled=False), len(examples), render, vars(counts))
            start += len(examples)

    number = count_questions(path, version_2)
    logger.info(f"{path}: {number:,} questions")
    return StreamedSet(
        path.name,
        path,
        number,
        "questions",
        windows,
        dict.fromkeys(prediction_files(version_2), (b"{\n", b"\n}\n")),
        lambda counts: describe(path, FeatureCounts(**counts)),
    )


def _predictions(
    examples: SquadExamples, features: SquadFeatures, outputs: Outputs, settings: AnswerSettings
) -> Predictions:
    start, end = (flat(outputs[name], features) for name in ("start_logits", "end_logits"))
    return predict(examples, features, start, end, settings)


def _render(
    examples: SquadExamples, features: SquadFeatures, settings: AnswerSettings, continues: bool, outputs: Outputs
) -> list[bytes]:
    """What these questions add to each file."""
    found = _predictions(examples, features, outputs, settings)
    contents = prediction_contents(found, settings.version_2)
    return [(b",\n" if continues else b"") + _json(content)[2:-3] for content in contents]


def flat(logits: np.ndarray, features: SquadFeatures) -> np.ndarray:
    """Logits of the windows' own tokens, float32 [T], from padded ones, float32 [n, longest]."""
    return logits[np.arange(logits.shape[1]) < features.lengths()[:, None]]


def scores(examples: SquadExamples, predictions: Predictions, version_2: bool) -> dict[str, float]:
    """The official scores in percent; for SQuAD 2.0 also those at the best null threshold."""
    answers = answers_of(examples)
    if not version_2:
        return {f"eval_{name}": value for name, value in score_squad_1(answers, predictions.answers).items()}
    found = score_squad_2(answers, predictions.answers)
    found["exact_match"] = found.pop("exact")
    found |= best_thresholds(answers, predictions.best_answers, predictions.null_odds)
    return {f"eval_{name}": value for name, value in found.items()}


def prediction_files(version_2: bool) -> list[str]:
    return ["predictions.json", "nbest_predictions.json", *["null_odds.json"] * version_2]


def prediction_contents(predictions: Predictions, version_2: bool) -> list[dict[str, Any]]:
    """The content of each of `prediction_files`."""
    return [predictions.answers, n_best_as_json(predictions), *[predictions.null_odds] * version_2]


def write_predictions(predictions: Predictions, directory: Path, version_2: bool) -> None:
    """predictions.json, nbest_predictions.json and, in version 2, null_odds.json, each written atomically."""
    directory.mkdir(parents=True, exist_ok=True)
    contents = prediction_contents(predictions, version_2)
    for name, content in zip(prediction_files(version_2), contents, strict=True):
        write_atomically(directory / name, _json(content))


def _json(content: dict[str, Any]) -> bytes:
    """A line "{", the members, a line "}"."""
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
