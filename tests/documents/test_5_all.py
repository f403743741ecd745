"""The last tests: the tests before have noted what they ran and what it suggested."""

from tests.documents.document import OUTPUTS, TRIED
from tests.support import suggestions as suggested
from tests.support.documents import COMMANDS

# .ci/run runs these, or they run all tests.
NOT_FROM_INSIDE = ("bash scripts/run_tests.sh", "bash scripts/run_fault_tests.sh", "bash .ci/run")
NOT_FROM_INSIDE += ("bash scripts/run_gpu_record.sh", "bash scripts/run_mutation_tests.sh")


def test_every_printed_suggestion_runs(clone):
    """After the tests above, whose outputs made them: the quickstarts, own text, exports ..."""
    known = [line for line in TRIED if line.startswith("bash scripts/")]
    tried = suggested.try_all(OUTPUTS, clone, known)[len(known) :]
    for part in (
        "visualdl --logdir",
        "run_predict.py",
        "run_export.py",
        "run_classify.sh --train YOUR",
        "--phase1-max-steps",
    ):
        assert any(part in line for line in tried), (part, tried)


def test_no_command_was_left_out():
    assert sorted(line for line in set(COMMANDS) - TRIED if not line.startswith(NOT_FROM_INSIDE)) == []
