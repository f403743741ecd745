"""Fixtures: uninterrupted runs for comparison, each made once."""

import pytest

from tests.faults.trainings import uninterrupted_run
from tests.faults.tunings import NAMES, whole_tuning


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    with uninterrupted_run(tmp_path_factory.mktemp("reference")) as found:
        yield found


@pytest.fixture(scope="session")
def tunings(reference):
    """Make an uninterrupted run of each task of fine-tuning."""
    return [whole_tuning(name, reference) for name in NAMES]
