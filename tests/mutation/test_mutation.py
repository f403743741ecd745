"""The mutation check: which edits it makes, what it notices, and that the checkout stays as it is."""

import os
import subprocess
import sys

import pytest

from bert import REPOSITORY
from tests.mutation.operators import choose, fault_of_text, faults_of
from tests.mutation.workplace import own_tests


def edits(source: str) -> set[str]:
    """Return the changed sources, without the line's end."""
    encoded = f"{source}\n".encode()
    chosen = choose(faults_of("a.py", encoded), 99, 0, encoded)
    return {fault.apply(encoded).decode().rstrip("\n") for fault in chosen}


@pytest.mark.parametrize(
    "source, expected",
    [
        ("y = a < b", {"y = a <= b"}),
        ("y = (a) not in (b)", {"y = (a) in (b)"}),
        ("y = a - b", {"y = a + b", "y = a"}),
        ("y = 'a' + b", set()),
        ("y = folder / b", set()),
        ("y = a[b:]", {"y = a[b + 1:]"}),
        ("y = 4", {"y = 5", "y = 3"}),
        ("y = a[-1]", {"y = a[-2]"}),
        ("y = x and not z", {"y = x", "y = (not z)", "y = x or not z", "y = x and z"}),
        ("y = p if c else q", {"y = p", "y = q"}),
        ("y = max(p.q, r)", {"y = min(p.q, r)", "y = max(r, p.q)"}),
        ("y = text.lower()", {"y = text"}),
        ("y = sorted(text)", {"y = list(text)", "y = text"}),
        ("y = f(a, b=c)", {"y = f(a)"}),
        ("y = f(a=(b), c=True)", {"y = f(c=True)", "y = f(a=(b))", "y = f(a=(b), c=False)"}),
        ("y = range(n)", {"y = range(n - 1)", "y = range(n + 1)"}),
        ("y = {p, *q}", {"y = {*q}", "y = {p}"}),
        ("if a:\n    pass", {"if False:\n    pass", "if True:\n    pass"}),
        ("for a in b:\n    continue", {"for a in b:\n    pass"}),
        ("x += y", {"pass", "x -= y"}),
        (
            "try:\n    a\nexcept (B, C):\n    pass",
            {"try:\n    a\nexcept (C):\n    pass", "try:\n    a\nexcept (B):\n    pass"},
        ),
        ("def f(a: int = 1) -> 3:\n    g(a)", None),
        ("y = [a for a in b if c]", {"y = [a for a in b if True]"}),
    ],
)
def test_edits(source, expected):
    if expected is None:
        expected = {source.replace("1", "2"), source.replace("1", "0"), source.replace("g(a)", "pass")}
    assert edits(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Text of 3 words."""',
        "import a.b",
        "assert a < 3",
        "raise ValueError(f'{a + 1} of {b}', 4)",
        "def f():\n    logger.info('a', 3)",
        "if __name__ == '__main__':\n    f(3)",
        "x: Field[3]",
        "x = TypeVar('x', bound=a)",
        "y = f(help='a', encoding='utf-8')",
    ],
)
def test_words_and_hints_have_no_faults(source):
    assert edits(source) == set()


def test_letters_of_several_bytes_are_left_alone():
    assert edits("y = ('ü', a < b, 'é')") == {"y = ('ü', a <= b, 'é')"}


def test_the_same_faults_are_chosen_for_a_seed_from_all_lines():
    source = b"x = 1 + 2 + 3 + 4 + 5 + 6\ny = 7\nz = 8\n"
    chosen, again, others = (choose(faults_of("a.py", source), 3, seed, source) for seed in (0, 0, 1))
    assert chosen == again != others
    assert {fault.line for fault in chosen} == {1, 2, 3}


def test_a_fault_of_a_text_needs_one_place():
    assert fault_of_text("a.py", b"a\nb = 1\n", "b = 1", "b = 2").line == 2
    assert fault_of_text("a.py", b"b = 1\nb = 1\n", "b = 1", "b = 2") is None


def test_the_tests_of_a_module_are_those_of_its_folder_with_its_own_first():
    assert own_tests("bert/labels/metrics.py", REPOSITORY)[0] == "tests/labels/test_metrics.py"
    assert {file.rpartition("/")[0] for file in own_tests("bert/labels/scores.py", REPOSITORY)} == {"tests/labels"}
    assert {file.rpartition("/")[0] for file in own_tests("bert/samples/formats/parquet.py", REPOSITORY)} == {
        "tests/samples"
    }
    assert own_tests("program.py", REPOSITORY)[0] == "tests/test_program.py"
    assert set(own_tests("bert/files.py", REPOSITORY)) >= {"tests/data/test_data_faults.py"}


MODULE = """
def clip(value, most):
    return min(value, most) if value > most else value


def count(number):
    while number > 0:
        number -= 2
    return number
"""
TEST = """
from tiny.clipping import clip, count


def test_clip():
    assert (clip(3, 5), clip(9, 5)) == (3, 5)


def test_count():
    assert count(4) == 0
"""
FAULTS = """
fault = [
  {path = "tiny/clipping.py", old = "min(", new = "max("},
  {path = "tiny/clipping.py", old = "value > most", new = "value >= most"},
  {path = "tiny/clipping.py", old = "number -= 2", new = "import os; os._exit(0)"},
  {path = "tiny/clipping.py", old = "number += 2", new = "pass"},
]
"""


def test_a_fault_is_noticed_and_an_equivalent_one_survives(tmp_path):
    repository, temporary = tmp_path / "repository", tmp_path / "temporary"
    for name, text in (("tiny/clipping.py", MODULE), ("tests/tiny/test_clipping.py", TEST), ("faults.toml", FAULTS)):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    temporary.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "a"]):
        subprocess.run([*git, *command], cwd=repository, check=True)
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "tests.mutation", "--file", "faults.toml", "--at-least", "90"]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[0] == "stale: tiny/clipping.py does not have once: number += 2"
    assert [line.split()[-1] for line in lines[2:4]] == ["test_clipping.py::test_clip", "SURVIVES"]
    assert lines[4].endswith("test_clipping.py::test_count (it ended the process)")
    assert "tiny/clipping.py                                         3        2        1    67%" in lines
    assert lines[-1] == "tiny/clipping.py:3  value > most => value >= most"
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before
    assert not list(temporary.iterdir())
