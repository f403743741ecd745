"""Products are made once, and again when their inputs change."""

import pytest

from bert.jobs.making import Make, Products
from tests.support.jobs import execution_of


def test_a_step_that_failed_or_changed_is_repeated(tmp_path):
    codes, product = iter([3, 0, 0]), tmp_path / "product"
    ran = []

    def run(words):
        ran.append(words)
        product.write_text("")
        return next(codes)

    def make(*command):
        return Products(tmp_path).make("title", command, product, run)

    assert make("make", "1") == 3 and not Products(tmp_path).has(product, ["make", "1"])
    assert make("make", "1") == 0 and Products(tmp_path).has(product, ["make", "1"])
    assert make("make", "1") == 0 and not Products(tmp_path).has(product, ["make", "2"])
    assert make("make", "2") == 0
    assert ran == [("make", "1"), ("make", "1"), ("make", "2")]
    (tmp_path / "prepared.json").write_text("{cut")
    codes = iter([0])
    assert make("make", "2") == 0 and len(ran) == 4


def test_what_was_made_from_a_product_made_anew_is_made_anew(tmp_path):
    ran = []

    def run(words):
        ran.append(words[-1])
        (tmp_path / words[-1]).parent.mkdir(exist_ok=True)
        (tmp_path / words[-1]).write_text("")
        return 0

    def make_all(version):
        for command in (["corpus", version, "text"], ["preprocess", "shards/manifest.json"]):
            assert Products(tmp_path).make("title", command, tmp_path / command[-1], run) == 0

    make_all("1")
    make_all("1")
    assert ran == ["text", "shards/manifest.json"]
    (tmp_path / "shards/of-the-old-text.parquet").write_text("")
    make_all("2")
    assert ran == ["text", "shards/manifest.json"] * 2
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["manifest.json"]


def test_another_source_makes_everything_again(tmp_path):
    ran = []

    def run(command):
        (tmp_path / "text").write_text("")
        return ran.append(command) or 0

    for source in ("files of Monday", "files of Monday", "files of Tuesday"):
        Products(tmp_path, source).make("title", ["import"], tmp_path / "text", run)
    assert len(ran) == 2


def test_a_command_without_its_product_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="should exist after `make`"):
        Products(tmp_path).make("title", ["make"], tmp_path / "product", lambda words: 0)


def test_a_step_is_done_once_its_command_has_made_the_product(tmp_path):
    product = tmp_path / "shards/manifest.json"

    def run(words):
        product.parent.mkdir(exist_ok=True)
        product.write_text("")
        return 0

    step = Make("making shards", ("preprocess", "--seed", "1"), product, tmp_path)
    execution = execution_of(tmp_path, run)
    assert not step.is_done(execution)
    assert execution.run(step) == execution.run(step) == 0
    assert step.is_done(execution) and execution.runner.ran == [["preprocess", "--seed", "1"]]
    assert not Make("making shards", ("preprocess", "--seed", "2"), product, tmp_path).is_done(execution)
    product.unlink()
    assert not step.is_done(execution)
