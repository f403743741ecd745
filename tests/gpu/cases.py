"""Cases to record: every GPU recipe at eight ranks, and other settings that change the program. Imports no Paddle."""

import dataclasses
from typing import Any

from bert.config.architecture import BUILT_IN_MODELS, BertConfig, FusedKernels
from bert.config.automatic import AMPERE, DeviceFeatures, resolve_auto
from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.config.training_settings import derive
from bert.finetuning.config import FineTuningOptimizerSettings
from bert.finetuning.squad.config import RECIPES as SQUAD_RECIPES
from bert.glue.config import GLUE_RECIPES
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.recipes import RECIPES

NUM_RANKS = 8
# Settings that decide when and how fast to learn are numbers in a table of the program, not operators.
_SCHEDULE = (
    "learning_rate",
    "warmup_start_lr",
    "warmup_proportion",
    "end_learning_rate",
    "lr_schedule",
    "lr_decay_power",
    "lr_decay_from",
    "lr_decay_share",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """Holds everything from which the program of rank 0 is made."""

    objective_name: str  # of bert.model.objectives, contrastive or reranking
    model: BertConfig
    optimizer: OptimizerSettings
    precision: PrecisionSettings
    batch_size: int
    micro_steps: int
    sequence_length: int
    predictions: int = 0  # masked positions of a sequence, at most
    num_ranks: int = NUM_RANKS
    fuse_mha: bool = True
    kernels: FusedKernels = FusedKernels()
    group_size: int | None = None  # sequences of a group, of a reranker

    def objective(self):
        from bert.model import contrastive, objectives, reranking

        modules = (objectives, contrastive, reranking)
        (objective,) = {getattr(module, self.objective_name, None) for module in modules} - {None}
        made = objective(self.model, self.fuse_mha, self.kernels)
        return made if self.group_size is None else dataclasses.replace(made, group_size=self.group_size)

    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the largest micro-batch."""
        objective, batch = self.objective(), self.batch_size
        sizes = {1: (batch,), 2: (batch, self.sequence_length)}
        tokens = (batch * self.sequence_length,)
        packed = dict.fromkeys(("input_ids", "token_type_ids", "position_ids"), tokens)
        packed["sequence_offsets"] = (batch + 2,)
        declared = {**objective.encoder_inputs(), **objective.labels}
        batch_texts = (2 * batch * self.micro_steps * self.num_ranks, self.model.hidden_size)
        packed |= {"pair_numbers": (batch_texts[0] // 2,)}
        masked = {"batch_vectors": batch_texts, "not_negatives": (batch_texts[0] // 2, batch_texts[0] // 2)}
        masked |= {name: (batch * self.predictions,) for name in declared if name.startswith("masked_lm_")}
        shapes = {name: shape for name, (shape, _) in declared.items() if -1 in shape}
        return {
            name: masked.get(name) or (len(shape) == 1 and packed.get(name)) or sizes[len(shape)]
            for name, shape in shapes.items()
        }

    def without_schedule(self) -> "Case":
        """Return the case without its schedule: it is equal for cases of one program."""
        values = {name: value for name, value in self.optimizer.model_dump().items() if name not in _SCHEDULE}
        return dataclasses.replace(self, optimizer=OptimizerSettings(**values))


def recorded_kernels(config: PretrainingConfig) -> FusedKernels:
    """Return the kernels with `auto` as plain, the fallback; the variants have the fused kernels."""
    automatic = {f"fuse_{name}": "off" for name, value in config.hardware.fusions().items() if value == "auto"}
    return resolve_auto(derive(config, **automatic), DeviceFeatures("gpu", AMPERE)).kernels()


def pretraining(config: PretrainingConfig, num_ranks: int = NUM_RANKS) -> Case:
    return Case(
        "PretrainingObjective" if config.run.objective == "mlm_nsp" else "MaskedLMObjective",
        config.model,
        config.optimizer,
        config.precision,
        config.batch.batch_size,
        config.batch.gradient_accumulation_steps(num_ranks),
        config.data.max_seq_length,
        config.data.max_predictions_per_seq,
        num_ranks,
        config.hardware.fuse_mha,
        recorded_kernels(config),
    )


def fine_tuning(objective: str, recipe: dict[str, Any], model: str) -> Case:
    """Return a recipe of flat names; settings that it leaves open have their defaults."""

    def settings(kind):
        return kind(**{name: value for name, value in recipe.items() if name in kind.model_fields})

    batch = recipe["batch_size"]
    micro_steps = recipe.get("global_batch_size", batch * NUM_RANKS) // (batch * NUM_RANKS)
    return Case(
        objective,
        BUILT_IN_MODELS[recipe.get("bert_model", model)],
        settings(FineTuningOptimizerSettings),
        settings(PrecisionSettings),
        batch,
        micro_steps,
        recipe["max_seq_length"],
    )


def all_cases() -> dict[str, Case]:
    """Return cases by name: the recipes, one of them with one micro-step an update on many nodes, and variants."""
    found = {name: pretraining(recipe()) for name, recipe in RECIPES.items() if not name.startswith("quickstart")}
    found |= {
        name: fine_tuning("QuestionAnsweringObjective", SQUAD_RECIPES[name](), "bert-large-uncased")
        for name in ("squad_large", "squad_large_tf32", "squad2_large")
    }
    found["mnli_large"] = fine_tuning(
        "SequenceClassificationObjective", GLUE_RECIPES["mnli_large"](), "bert-large-uncased"
    )
    found["sts-b_large"] = dataclasses.replace(found["mnli_large"], objective_name="SequenceRegressionObjective")
    pairs = {"batch_size": 64, "global_batch_size": 1024, "max_seq_length": 128, "amp": True}
    found["vectors_base"] = fine_tuning("ContrastiveObjective", pairs, "bert-base-uncased")
    groups = fine_tuning(
        "RerankingObjective", {**pairs, "batch_size": 40, "global_batch_size": 640}, "bert-base-uncased"
    )
    found["reranker_base"] = dataclasses.replace(groups, group_size=5)
    large = RECIPES["phase1_large"]()
    found["phase1_large_32_nodes"] = pretraining(large, 32 * NUM_RANKS)
    found["phase1_large_32_nodes_bfloat16"] = pretraining(derive(large, amp_dtype="bfloat16"), 32 * NUM_RANKS)
    phase2 = derive(RECIPES["phase2_large"](), **VARIANTS["unpad_fuse_all"])
    found["phase2_large_unpad_fuse_all"] = pretraining(phase2)
    return found | {f"phase1_large_{name}": pretraining(derive(large, **changes)) for name, changes in VARIANTS.items()}


VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16": dict(amp_dtype="bfloat16"),
    "pure_fp16": dict(use_pure_fp16=True),
    "fleet": dict(fleet_strategies="amp,gradient_merge"),
    "fuse_linear": dict(fuse_linear="on"),
    "fuse_dropout_add": dict(fuse_dropout_add="on"),
    "fuse_attention": dict(fuse_attention="on"),
    "fuse_all": dict(fuse_linear="on", fuse_dropout_add="on", fuse_attention="on"),
    "unpad_fuse_all": dict(unpad="on", fuse_linear="on", fuse_dropout_add="on", fuse_attention="on"),
}


def distinct(cases: dict[str, Case]) -> dict[str, str]:
    """Map each name to the first case of the same program, which holds the record of both."""
    first: dict[str, str] = {}
    result = {}
    for name, case in cases.items():
        key = repr(case.without_schedule())
        result[name] = first.setdefault(key, name)
    return result
