"""docs/troubleshooting.md has a remedy for each error, and quotes errors that are cheap to provoke."""

import re

import pytest

from bert import REPOSITORY
from bert.commands.__main__ import main
from bert.exit_codes import BAD_INPUT

PAGE = (REPOSITORY / "docs/troubleshooting.md").read_text(encoding="utf-8")
ROWS = [row.split(" | ") for row in re.findall(r"^\| (`.*) \|$", PAGE, re.M)]
MESSAGES = [re.match(r"`([^`]+)`", row[0])[1] for row in ROWS]


def test_every_error_has_a_cause_and_a_remedy():
    assert len(MESSAGES) >= 20 and len(set(MESSAGES)) == len(MESSAGES)
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in ROWS)


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
