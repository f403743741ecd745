"""One clone for all commands: the files run in the order of their names, each uses what the earlier ones left."""

import pytest

from tests.support.documents import fresh_clone


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    return fresh_clone(tmp_path_factory.mktemp("documents") / "clone")
