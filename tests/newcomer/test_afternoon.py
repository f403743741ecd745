"""The commands of docs/tutorials/afternoon.md, one after the other: from a clone to a model that answers over HTTP.

The two trainings on text get BERT_NEWCOMER_HOURS each (default 0.05) in place of the page's 0.1, and the quickstart a
tenth of its updates.
"""

import json
import os
import re

import pandas as pd

from bert import REPOSITORY
from tests.newcomer.afternoon import NUM_NEW, PACKAGES
from tests.support.documents import commands, fresh_clone
from tests.support.shell import finished, read_until, start

COMMANDS = commands((REPOSITORY / "docs/tutorials/afternoon.md").read_text(encoding="utf-8"))
HOURS = os.environ.get("BERT_NEWCOMER_HOURS", "0.05")
QUICKSTART = "bash scripts/run_pretraining.sh"
SHORTER = f"{QUICKSTART} --phase1-max-steps 250 --phase2-max-steps 50"
SERVER = ".venv/bin/python -m bert.serving"


def test_an_afternoon_from_the_clone_to_an_answer(tmp_path):
    clone = fresh_clone(tmp_path / "clone")
    server, answers, address = None, [], ""
    for line in COMMANDS:
        if line.startswith(SERVER):
            server = start(f"exec {line.replace('--port 8000', '--port 0')}", clone)
            address = re.search(r"http://(\S+:\d+)", read_until(server, " is ready: "))[1]
        elif line.startswith("curl "):
            code, shown = finished(start(line.replace("localhost:8000", address), clone))
            answers += json.loads(shown)["results"]
        else:
            line = SHORTER if line == QUICKSTART else line.replace("--hours 0.1", f"--hours {HOURS}")
            code, shown = finished(start(line, clone), timeout=2400)
            assert code == 0 and "Traceback" not in shown, f"{line}\n{shown[-3000:]}"
    assert server is not None
    server.terminate()
    assert server.wait(60) == 0 and [answer["label"] in PACKAGES for answer in answers] == [True]

    table = pd.read_csv(clone / "results/new.csv")
    assert table["number"].tolist() == [*range(NUM_NEW)]
    assert table[[f"probability_{name}" for name in PACKAGES]].sum(axis=1).between(0.999, 1.001).all()
    right = [label == PACKAGES[number % len(PACKAGES)] for number, label in enumerate(table["label"])]
    assert sum(right) > 0.5 * NUM_NEW, "chance is a third"
