import pytest

from tests.own_text.workplace import Workplace


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Workplace:
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path, monkeypatch)
