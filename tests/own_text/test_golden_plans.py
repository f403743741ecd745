"""Plans equal those of commit fd7a38ed, where one constructor held all rules."""

import dataclasses
import json
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.config.architecture import BertConfig
from bert.own_text.facts import Weights
from bert.own_text.plan import TextPlan
from bert.own_text.sources import REPLAY, TextSource
from bert.tokenization.normalization import CASED, UNCASED
from tests.own_text.plans import EIGHT_GPUS, LAPTOP, ONE_GPU, SERVER, plan_of, text

RECORD = REPOSITORY / "tests/golden/own_text_plans.json"
SMALL = dataclasses.replace(LAPTOP, cores=3, memory_bytes=2 * 10**9, disk_bytes=10**8, note=" (idle)")
GPUS = dataclasses.replace(EIGHT_GPUS, segmenter="jieba")
SAMPLED = text(5, characters_per_token=4.2, sampled_tokens=4096, slowness=1.7, reading_seconds=3.0)
CHINESE = text(2, words=7000, characters=700_000, distinct_characters=3000, is_chinese=True)
GERMAN = text(3, case=CASED, why_case="marks", unknown="many unknown words", is_estimate=True)
REPLAYED = TextSource(REPLAY, (Path("R"),), 0.1)
SOURCES = (TextSource("a", (Path("A"),), 0.6), TextSource("b", (Path("B"),), 0.3), REPLAYED)
WITH_PARTS = dataclasses.replace(SAMPLED, parts={"a": text(3), "b": text(1), REPLAY: text(9)})
SIZES = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536, max_position_embeddings=200)
WEIGHTS = Weights(Path("minilm"), SIZES, UNCASED, ("pooler",), ("a warning",))
WITH_HEADS = dataclasses.replace(WEIGHTS, heads=("pooler", "masked-LM head", "next-sentence head"))
SETTINGS = {
    "learning_rate": 1e-3,
    "warmup_proportion": 0.2,
    "hidden_dropout_prob": 0.3,
    "lr_decay_share": 0.4,
    "batch_size": 4,
    "max_seq_length": 96,
    "vocab_size": 1234,
    "masked_lm_ratio": 0.3,
}
CASES = {
    "minutes": (SAMPLED, LAPTOP, {"hours": 0.12}),
    "two hours": (SAMPLED, LAPTOP, {"hours": 2}),
    "no length": (SAMPLED, LAPTOP, {}),
    "three epochs": (SAMPLED, LAPTOP, {"epochs": 3}),
    "little text, long": (text(0.3), LAPTOP, {"hours": 2}),
    "little text, sixty epochs": (text(0.3), LAPTOP, {"epochs": 60}),
    "a server": (text(40), SERVER, {"hours": 2}),
    "much text on a server": (text(2500), SERVER, {"hours": 48}),
    "a card": (text(2500), ONE_GPU, {"hours": 2}),
    "eight cards for two days": (text(15_000), GPUS, {"hours": 48}),
    "fifty updates": (SAMPLED, LAPTOP, {"max_steps": 50}),
    "updates and batch": (SAMPLED, LAPTOP, {"max_steps": 900, "settings": {"global_batch_size": 96}}),
    "Lamb": (SAMPLED, LAPTOP, {"hours": 1, "settings": {"optimizer": "Lamb", "global_batch_size": 32}}),
    "nothing held out": (SAMPLED, LAPTOP, {"hours": 0.5, "held_out_fraction": 0.0}),
    "settings": (SAMPLED, LAPTOP, {"hours": 1, "settings": SETTINGS}),
    "another schedule": (text(40), ONE_GPU, {"epochs": 5, "settings": {"lr_schedule": "poly"}}),
    "a named model": (text(40), LAPTOP, {"hours": 1, "model": "mini", "duplicate_factor": 2}),
    "next sentences": (SAMPLED, LAPTOP, {"hours": 1, "settings": {"objective": "mlm_nsp"}}),
    "one rank": (SAMPLED, SERVER, {"hours": 1, "num_processes": 1, "lang": "de"}),
    "weights": (text(0.3), LAPTOP, {"hours": 0.5, "weights": WEIGHTS}),
    "weights with heads": (SAMPLED, ONE_GPU, {"weights": WITH_HEADS, "settings": {"learning_rate": 2e-4}}),
    "added words": (SAMPLED, LAPTOP, {"epochs": 3, "weights": WEIGHTS, "add_words": 500}),
    "sources": (WITH_PARTS, LAPTOP, {"hours": 1, "weights": WEIGHTS, "sources": SOURCES}),
    "Chinese with jieba": (CHINESE, GPUS, {"hours": 2}),
    "Chinese without": (CHINESE, LAPTOP, {"hours": 1, "word_segmenter": "none"}),
    "a full disk": (GERMAN, SMALL, {"hours": 2}),
}


def facts_of(plan: TextPlan) -> dict:
    """Return the decisions of a plan, without its wording."""
    known = dataclasses.asdict(plan)
    choices, warnings = known.pop("choices"), known.pop("warnings")
    rows = {row["name"]: row["value"] for row in choices}
    return json.loads(json.dumps(known | {"rows": rows, "num_warnings": len(warnings)}))


@pytest.mark.parametrize("case", CASES)
def test_a_plan_equals_its_record(case, write_golden):
    """To record an intended change: pytest tests/own_text/test_golden_plans.py -n 0 --write-golden"""
    facts, machine, asked = CASES[case]
    plan = facts_of(plan_of(facts, machine, **asked))
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if write_golden:
        write(record | {case: plan})
        return
    expected = record[case]
    assert plan.keys() == expected.keys()
    for name, value in expected.items():
        assert plan[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


def write(record: dict[str, dict]) -> None:
    """Write a line for each fact of a plan."""
    cases = []
    for case, plan in record.items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in plan.items())
        cases.append(f"  {json.dumps(case)}: {{\n{lines}\n  }}")
    RECORD.write_text("{\n" + ",\n".join(cases) + "\n}\n")
