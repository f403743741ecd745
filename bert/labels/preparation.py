"""Prepares a user's rows for a training: checks them, holds some out, and oversamples rare classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert.labels.columns import unused_texts
from bert.labels.examples import ALONE, Examples
from bert.labels.schema import LabelSchema, labels_alike, number
from bert.labels.settings import LabelConfig
from bert.labels.split import balanced_rows, count_in_both, counted, notes_of_groups, row_folds, row_groups
from data.text.columns import Column, joined_name, joined_parts
from data.text.encodings import Decoding

_HOLD = ("holds", "hold")


@dataclass(frozen=True)
class PreparedRows:
    """The rows to train on and to evaluate on.

    Attributes:
        held_out: the rows to evaluate on; None if there is an evaluation file, or nothing is evaluated.
        notes: lines for the user about columns, classes, held-out rows and unused settings.
    """

    training: Examples
    held_out: Examples | None
    notes: list[str]


def prepare(config: LabelConfig, schema: LabelSchema, examples: Examples) -> PreparedRows:
    """Prepare the rows of a training file as the settings say.

    Raises:
        ValueError: settings for single classes with several labels or numbers; too few texts or groups.
    """
    data, classes = config.data, None
    if not schema.is_regression and schema.separator is None:
        classes = schema.encode(examples.labels or ())
    elif data.balance or data.positive_label:
        raise ValueError(
            f"{examples.source}: --balance and --positive-label are for classes of which a text has one; omit them"
        )
    notes = _notes_of_the_file(config, schema, examples)
    training, held_out = examples, None
    if config.holds_out():
        training, held_out, split_notes = hold_out(config, examples, classes)
        notes += split_notes
    elif unused := {"fold", "folds", "group_column"} & data.model_dump(exclude_defaults=True).keys():
        notes.append(f"not used: {', '.join(sorted(unused))}, as nothing is held out of --train-file")
    if data.positive_label and data.wanted_recall is None:
        notes.append("not used: positive_label, as there is no --wanted-recall for it")
    if data.balance:
        training = training.take(balanced_rows(schema.encode(training.labels or ())))
        notes.append(f"balanced: {counted(training.labels or ())}")
    return PreparedRows(training, held_out, notes)


def _notes_of_the_file(config: LabelConfig, schema: LabelSchema, examples: Examples) -> list[str]:
    """Notes about the columns and classes of the training file, and about rows without a group."""
    labels = examples.labels or ()
    if schema.is_regression:
        kind = _numbers(labels)
    else:
        kind = "classes" if schema.separator is None else f"labels separated by {schema.separator!r}"
    texts = " and ".join(_shown_text(text) for text in schema.split("train").texts)
    notes = [f"columns: text {texts}, {kind} {config.data.label_column!r}"]
    if unused := _unused(config, examples):
        joined = joined_name([*unused, config.data.text_column])
        names = ", ".join(map(repr, unused))
        notes.append(f"not used: {names}, which {_HOLD[len(unused) > 1]} text too; --text-column {joined} joins them")
    if kind == "classes":
        notes.append(f"classes: {counted(labels)}")
        if alike := labels_alike(schema.labels or ()):
            names = "; ".join(" and ".join(map(repr, some)) for some in alike[:5])
            notes.append(f"alike, but classes of their own: {names}. If they are one, correct the file")
    if alone := sum(group.startswith(ALONE) for group in examples.groups or ()):
        notes.append(f"{alone:,} rows have no {config.data.group_column}: each is a group of its own")
    return notes


def _shown_text(column: Column) -> str:
    """Describe a column of text, or columns that are joined, for the user."""
    parts = joined_parts(column)
    return f"{' + '.join(map(repr, parts))} (joined; --text-column {parts[-1]} reads one)" if parts else repr(column)


def _unused(config: LabelConfig, examples: Examples) -> list[str]:
    """The columns of text that the settings do not use."""
    data = config.data
    if data.text_pair_column is not None:
        return []
    others = [name for name in (data.label_column, data.index_column, data.group_column) if name is not None]
    return unused_texts(examples.source, data.text_column, others, Decoding.of(data))


def hold_out(
    config: LabelConfig, examples: Examples, classes: np.ndarray | None
) -> tuple[Examples, Examples, list[str]]:
    """Split rows by the fold of the settings: (training rows, held-out rows, notes).

    Args:
        classes: int64 [n], classes that are held out in proportion; None if a text has several labels or a number.
    """
    data = config.data
    groups = row_groups(examples, data.folds)
    mask = row_folds(examples, groups, classes, data.folds, config.run.seed) == data.fold
    training, held_out = examples.take(~mask), examples.take(mask)
    together = f"equal {data.group_column}" if data.group_column else "equal and nearly equal texts"
    in_proportion = "" if classes is None else "with the classes in proportion, "
    notes = [
        f"held out: {mask.sum():,} of {len(mask):,} rows (part {data.fold} of {data.folds}, --fold and --folds)"
        f", {in_proportion}{together} together",
        *notes_of_groups(groups, data.folds),
    ]
    if classes is not None and (lost := set(examples.labels or ()) - set(training.labels or ())):
        which = f"all rows of {', '.join(sorted(lost))} are held out, none is trained on"
        notes.append(f"{which}: add rows, or pass another --fold")
    if examples.groups is not None:
        shared, nearly = count_in_both(held_out, training)
        if shared:
            notes.append(f"{shared:,} of the held-out texts are in the training part too, of other groups{nearly}")
    return training, held_out, notes


def _numbers(labels: Sequence[str]) -> str:
    odd = next((label for label in labels if "," in label or "%" in label), None)
    return "numbers" if odd is None else f"numbers with a decimal comma or a % ({odd} is {number(odd):g})"
