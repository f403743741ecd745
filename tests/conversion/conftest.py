"""Small files beside a model's weights, each written by hand."""

import json

import pytest


@pytest.fixture
def put(tmp_path):
    def put(name, value):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
        return tmp_path / name

    return put
