"""TROUBLESHOOTING.md quotes the program's own words: literals of the source, and what it prints where that is cheap."""

import ast
import re
from functools import cache

import pytest

from bert import REPOSITORY
from bert.commands.__main__ import main
from bert.exit_codes import BAD_INPUT

PAGE = (REPOSITORY / "scripts/TROUBLESHOOTING.md").read_text(encoding="utf-8")
ROWS = [row.split(" | ") for row in re.findall(r"^\| (`.*) \|$", PAGE, re.M)]
MESSAGES = [re.match(r"`([^`]+)`", row[0])[1] for row in ROWS]
HOLE = "\0"  # where a message has a value


@cache
def words_of_the_source() -> tuple[str, ...]:
    """Every string of the program, values replaced by a hole; and the lines of set-up."""
    folders = [REPOSITORY / name for name in ("bert", "data")]
    trees = [ast.parse(path.read_bytes()) for folder in folders for path in folder.rglob("*.py")]
    strings = []
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.JoinedStr):
            strings.append("".join(str(p.value) if isinstance(p, ast.Constant) else HOLE for p in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node.value)
    shell = "".join((REPOSITORY / "scripts" / name).read_text(encoding="utf-8") for name in ("setup.sh", "packages.sh"))
    return (*strings, *re.sub(r"\$\{[^}]*\}|\$[*0-9]", HOLE, shell).splitlines())


def is_in_the_source(message: str) -> bool:
    pattern = f".*{HOLE}.*".join(re.escape(part.strip(" ")) for part in message.split("..."))
    return any(re.search(pattern, text) for text in words_of_the_source())


def test_every_error_has_a_cause_and_a_remedy():
    assert len(MESSAGES) >= 20 and len(set(MESSAGES)) == len(MESSAGES)
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in ROWS)
    assert not is_in_the_source("words that no message ... has")


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_the_programs(message):
    assert is_in_the_source(message)


def test_flags_are_in_the_remedies_of_known_commands():
    source = "\n".join(words_of_the_source())
    for flag in re.findall(r"`--([a-z-]+)", PAGE):
        assert flag in source or flag.replace("-", "_") in source, flag


@pytest.mark.parametrize(
    "arguments",
    [
        ["pretraining", "--text", "/nowhere/notes"],
        ["pretraining", "--lerning-rate", "1"],
        ["pretraining", "--config", "large", "--dry-run", "--phase1-batch-size", "7"],
        ["glue", "--from-pretrained-params", "results/qickstart", "--task-name", "custom", "--train-file", "x.csv"],
    ],
    ids=lambda words: words[1],
)
def test_a_cheap_one_is_printed(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    patterns = (".*".join(re.escape(part.strip(" ")) for part in message.split("...")) for message in MESSAGES)
    assert ended.value.code == BAD_INPUT and any(re.search(pattern, said) for pattern in patterns), said
