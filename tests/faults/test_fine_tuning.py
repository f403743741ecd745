"""Whole fine-tunings that are killed or hang in training, saves, evaluations, and while results are written.

Rows 33 and 36 of the fault matrix (tests/README.md): the same command then ends in the losses, best weights and files
of the uninterrupted run.
"""

import random
import re
import shutil
import signal

import pytest

from tests.faults.trainings import must_end
from tests.support.full_counts import IS_FULL, times

pytestmark = pytest.mark.long
PARTS = ("stream", "save", "batches", "best", "results", "any time")


@pytest.mark.nightly
def test_fine_tunings_killed_anywhere_end_in_the_same_results(tunings, tmp_path):
    """Row 33: chains of up to three kill -9 and restarts of SQuAD, an own table and NER."""
    kills, chain, wanted, chance = 0, 0, times(6, 200), random.Random(1033)
    while kills < wanted:
        whole, chain = tunings[chain % len(tunings)], chain + 1
        output = tmp_path / f"chain{chain}"
        for _ in range(min(3, wanted - kills)):
            part = chance.choice(PARTS) if IS_FULL else PARTS[kills % len(PARTS)]
            place = chance.uniform(0.4, 0.9) if kills else 0.47  # in a restart fewer are left
            if part == "any time":
                training = whole.start(output)
                training.wait(place * whole.seconds)
                training.kill()
            else:
                at = {int(place * whole.boundaries[part]): [signal.SIGKILL]}
                training = whole.run(output, part=part, signals_at=at)
            if training.code != -signal.SIGKILL:
                must_end(training)
                break
            kills += 1
        whole.continue_and_compare(output)
        shutil.rmtree(output)


@pytest.mark.nightly
def test_a_batch_of_an_evaluation_or_prediction_that_never_comes_ends_with_stacks(tunings, tmp_path):
    """Row 36 of the fault matrix in tests/README.md."""
    chance = random.Random(1036)
    for number in range(times(3, 20)):
        whole, output = tunings[number % len(tunings)], tmp_path / str(number)
        place = chance.randrange(1, whole.boundaries["batches"] + 1) if number else whole.boundaries["batches"]
        training = must_end(whole.run(output, "--watchdog-seconds", "8", hangs_at=place, timeout=90), 70)
        said = " ".join(training.said().split())
        assert "nothing moved for" in said and re.search(r"since '(evaluating|saving)", said), said[-2000:]
        assert "in counted" in (whole.tuning.stage(output) / "stacks/rank0.txt").read_text()
        whole.continue_and_compare(output)
