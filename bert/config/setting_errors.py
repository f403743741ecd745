"""Errors of settings in one line each: the value, the rule, the remedy."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from bert.config.flags import choices_of, field_at, flag_name, is_optional, value_flags
from bert.config.settings_base import Settings

# Names of one thing in this and other trainers (Hugging Face, PaddleNLP, NVIDIA, GluonNLP, fairseq, Lightning): a flag
# of ours first.
OTHER_TRAINERS = tuple(
    tuple(line.split())
    for line in """
learning-rate lr peak-lr max-lr base-lr
batch-size per-device-train-batch-size per-gpu-train-batch-size train-batch-size micro-batch-size mbs bs
predict-batch-size per-device-eval-batch-size per-gpu-eval-batch-size eval-batch-size test-batch-size
global-batch-size total-batch-size gbs
gradient-merge-steps gradient-accumulation-steps accumulate-grad-batches update-freq grad-accum accumulate
gradient-merge-steps num-accumulation-steps
epochs num-train-epochs num-epochs n-epochs max-epochs max-epoch
max-steps max-train-steps num-train-steps train-steps total-steps max-update max-iters num-steps
warmup-proportion warmup-ratio warmup-steps num-warmup-steps warmup-updates warmup
from-pretrained-params model-name-or-path pretrained-model-name-or-path model-name model init-checkpoint checkpoint
from-pretrained-params weights pretrained-model init-weights
from-checkpoint resume-from-checkpoint resume start-step
vocab-file tokenizer-name tokenizer vocab vocab-path
config-file config-name bert-config-file bert-config model-config
max-seq-length max-seq-len max-length seq-length seq-len sequence-length block-size
max-predictions-per-seq max-preds
num-steps-per-checkpoint save-steps save-freq save-interval save-every ckpt-interval save-checkpoints-steps
keep-checkpoints save-total-limit keep-last-n-checkpoints max-to-keep
log-freq logging-steps log-interval logging-freq display-loss-steps steps-per-loop iterations-per-loop
steps-this-run steps-this-session
last-step-of-checkpoint resume-step
report-file json-summary dllog-path
eval-freq eval-steps evaluation-steps eval-interval val-check-interval
eval-file validation-file dev-file
predict-file test-file eval-file validation-file dev-file
eval-dir validation-dir valid-dir data-eval eval-files
input-dir data-dir dataset train-dir data input-files train-files
train-file train-data-path
amp fp16 bf16 use-amp use-fp16 manual-fp16 use-bf16 mixed-precision use-mixed-precision dtype precision
scale-loss loss-scale init-loss-scale
recompute checkpoint-activations gradient-checkpointing recompute-granularity
max-grad-norm clip-grad-norm gradient-clip-val clip-norm grad-clip
weight-decay wd
epsilon adam-epsilon adam-eps eps
beta1 adam-beta1
beta2 adam-beta2
optimizer optim optimizer-type
num-gpus nproc-per-node gpus num-processes ngpus
num-nodes nnodes
num-workers dataloader-num-workers
output-dir output results-dir save-dir out-dir ckpt-dir model-dir
task-name task glue-task
do-lower-case lower-case uncased
""".split("\n")
    if line
)

# What other trainers have by a flag, and this one in another way or not at all.
_OTHERWISE = [
    line.partition(": ")
    for line in """
use-xla enable-xla xla: no compiler is used; --fuse-attention, --fuse-linear, --fuse-dropout-add take its place on GPUs
use-horovod horovod hvd local-rank use-env: Fleet takes its place: --num-gpus and --num-nodes of the scripts
allreduce-post-accumulation allreduce-post-accumulation-fp16: gradients are always summed once an update; drop it
dense-sequence-output no-dense-sequence-output: only predicted places reach the vocabulary's layer; drop it
use-tpu tpu-name num-tpu-cores: there is no path to TPUs; --device is cpu or gpu
no-cuda use-cuda cuda: --device cpu or gpu chooses
cuda-graphs profile disable-progress-bar: there is none; drop it
do-train: it always trains; drop it
do-eval: --eval-dir FOLDER of held-out shards evaluates
skip-checkpoint: the last state is always saved; --num-steps-per-checkpoint says how often others are
eval-batch-size max-eval-steps: the shards of --eval-dir are evaluated whole, with --batch-size; drop it
phase1-end-step: phase 2 starts with --from-phase1-final-params
report-loss verbose-logging: losses are logged at every --log-freq updates; drop it
""".split("\n")
]

# Settings and flags of earlier versions, without dashes -> what to do instead.
LEFT_OUT: dict[str, str] = {
    "fit-batch-size": "a batch that does not fit ends in an error that names one that does; --dry-run shows the memory",
    "learning-rates": "give each --learning-rate an --output-dir of its own; python -m bert.reporting compares them",
    "keep-models": "--keep-checkpoints says how many checkpoints a run keeps",
    "on-log": "read the records in OUTPUT_DIR/STAGE/metrics.jsonl",
}

_AS_TYPED = {"num_processes": "num_gpus"}  # the words of NVIDIA's scripts and of the documents

_RULES = {  # by the type of a pydantic error, whose own words are for programmers
    "path_type": "must be a path, in quotes if it is of digits alone",
    "string_pattern_mismatch": "must be of letters, digits, '.', '_' and '-', the first a letter or digit",
}


def explain(error: ValueError, source: str | None = None) -> list[str]:
    """One line for each mistake; `source` is where the values can be changed, their flags by default."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    settings = [subclass for subclass in _subclasses(Settings) if subclass.__name__ == error.title][-1]
    return [_explain_one(dict(detail), settings, source) for detail in error.errors()]


def _subclasses(parent: type[Settings]) -> list[type[Settings]]:
    return [subclass for child in parent.__subclasses__() for subclass in (child, *_subclasses(child))]


def _explain_one(detail: dict[str, Any], settings: type[Settings], source: str | None) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    name, field = field_at(settings, detail["loc"])
    name = _AS_TYPED.get(name, name)
    flag, flags = flag_name(name), [value_flag for value_flag, _ in value_flags(field).values()]
    if detail["type"] == "missing":
        what = f"one of {' and '.join(flags)}" if flags else flag
        return f"{what} must be given ({field.description}), or a recipe with --config"
    own = f"{detail['msg'][0].lower()}{detail['msg'][1:]}".replace("input should be", "must be")
    rule = _RULES.get(detail["type"], own)
    remedy = f"change it in {source}" if source else f"change {' or '.join(flags) or flag}"
    if detail["type"] == "literal_error":
        choices = [*map(str, choices_of(field)), *(["none"] if is_optional(field) else [])]
        rule, remedy = f"must be one of {', '.join(choices)}", suggest(str(detail["input"]), choices, remedy)
    return f"{name}={detail['input']} {rule}; {remedy}"


def suggest(word: str, known: Iterable[str], otherwise: str) -> str:
    """What took the place of a word that was left out or is another trainer's, or `did you mean ...?` with the known
    word of another trainer's name or the most similar one; else `otherwise`."""
    if (name := _plain(word).removeprefix("no-")) in LEFT_OUT:
        return f"it was left out: {LEFT_OUT[name]}"
    plain = {_plain(name): name for name in known}
    same = [name for names in OTHER_TRAINERS if _plain(word) in names for name in names if name in plain]
    if not same and (otherwise_here := [text for names, _, text in _OTHERWISE if _plain(word) in names.split()]):
        return otherwise_here[0]
    close = [*same, *difflib.get_close_matches(_plain(word), list(plain), n=1, cutoff=0.6)]
    return f"did you mean {plain[close[0]]}?" if close else otherwise


def _plain(name: str) -> str:
    return name.lower().removeprefix("--").replace("_", "-")
