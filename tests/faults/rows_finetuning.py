"""The row about whole fine-tunings: killed in training, saves, evaluations, and while results are written."""

import re
import shutil
import signal

from tests.faults.harness import Row, Trials
from tests.faults.trainings import must_end
from tests.faults.tunings import NAMES, whole_tuning

PARTS = ("stream", "save", "batches", "best", "results", "any time")


def killed_tunings(trials: Trials) -> None:
    """Chains of up to three kill -9 and restarts; each chain ends in the losses, weights and files of the whole run."""
    kills = chain = 0
    while kills < trials.count and len(trials.losses) < 10:
        name, chain = NAMES[chain % len(NAMES)], chain + 1
        server, whole = whole_tuning(name)
        output, mine = trials.folder / f"chain{chain}", []  # type: ignore[var-annotated]
        argv, command = whole.tuning.argv(output), f"run_{name}"
        with trials.trial(f"chain {chain}, {name}"):
            for _ in range(min(3, trials.count - kills)):
                part = PARTS[kills % len(PARTS)] if not trials.full else trials.random.choice(PARTS)
                place = trials.random.uniform(0.4, 0.9) if kills else 0.47  # in a restart fewer are left
                if part == "any time":
                    training = server.start(argv, output, command=command)
                    training.wait(place * whole.seconds)
                    training.kill()
                else:
                    at = {int(place * whole.boundaries[part]): [signal.SIGKILL]}
                    training = server.run(argv, output, command=command, part=part, signals_at=at)
                if training.code != -signal.SIGKILL:
                    must_end(training)
                    break
                mine.append(part)
                kills += 1
            must_end(server.run(argv, output, command=command))
            assert whole.tuning.digest(output) == whole.digest, f"killed in {mine}, it is not the uninterrupted run"
        trials.tried += max(0, len(mine) - 1)
        shutil.rmtree(output)
    trials.note(f"{kills} kills in {chain} chains of SQuAD, an own table and NER")


def tunings_that_hang(trials: Trials) -> None:
    """A batch of an evaluation or of a prediction never comes."""
    for number, output in trials.folders():
        name = NAMES[number % len(NAMES)]
        server, whole = whole_tuning(name)
        argv, command = whole.tuning.argv(output, "--watchdog-seconds", "8"), f"run_{name}"
        place = trials.random.randrange(1, whole.boundaries["batches"] + 1) if number else whole.boundaries["batches"]
        with trials.trial(f"{name}, batch {place} of {whole.boundaries['batches']}"):
            training = server.run(argv, output, command=command, hangs_at=place, timeout=90)
            must_end(training, 70)
            said = training.said()
            assert "nothing moved for" in said and re.search(r"since '(evaluating|saving)", said), said[-2000:]
            assert "in counted" in (whole.tuning.stage(output) / "stacks/rank0.txt").read_text()
            must_end(server.run(argv, output, command=command))
            assert whole.tuning.digest(output) == whole.digest


ROWS = [
    Row(
        33,
        "kill -9 of a fine-tuning: at any time, in saves, best weights, evaluations, results, streamed predictions",
        "the same command ends in the same losses, best weights and files",
        killed_tunings,
        (6, 200),
        ("position in the data is not restored", "partial predictions are continued at their end"),
    ),
    Row(
        36,
        "an evaluation or a prediction that hangs",
        "stacks dumped, exit code 70 in time, exactly continued",
        tunings_that_hang,
        (3, 20),
        ("no watchdog",),
    ),
]
