"""Models predict and are served, runs are compared, after the quickstarts."""

import json
import shlex
import subprocess

from tests.documents.document import TRIED, command, example, output_of, run
from tests.support.documents import COMMANDS


def test_every_model_is_used_with_one_command(clone):
    """After the quickstarts above: each line of the documents with run_predict.py, without a terminal."""
    outputs = ""
    for line in [line for line in COMMANDS if "run_predict.py" in line and "localhost" not in line]:
        TRIED.add(line)
        outputs += output_of(line if "|" in line else f"{line} < /dev/null", clone)
    for part in ('"filled": "Returns a ', '"answers": [', '"probabilities": {', '"entities": [', "true word: "):
        assert part in outputs, part
    neighbours = [json.loads(line) for line in (clone / "results/neighbours.jsonl").read_text().splitlines()]
    assert len(neighbours) > 100 and sum("nearest" in record for record in neighbours) > 100


def test_a_model_is_served(clone):
    """After the quickstarts above, with the documents' address."""
    output_of(command("bash scripts/setup.sh serve"), clone)
    start = command(".venv/bin/python -m bert.serving results/glue_quickstart/sentiment")
    server = subprocess.Popen(["bash", "-c", f"exec {start}"], cwd=clone, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None and any(" is ready: " in line for line in server.stderr)
        shown = {}
        for line in [line for line in COMMANDS if line.startswith("curl -s localhost:8000")]:
            TRIED.add(line)
            shown[line.split("localhost:8000")[1].split()[0]] = run(line, clone).stdout
        assert json.loads(shown["/predict"])["results"][0]["label"]
        assert json.loads(shown["/ready"]) == {"status": "ready"} and "bert_requests_total" in shown["/metrics"]
        client = shlex.quote(example("import requests\n\ntexts"))
        assert output_of(f".venv/bin/python -c {client}", clone).startswith("['")
    finally:
        server.terminate()
    assert server.wait(60) == 0
    line = command("bash scripts/benchmark_serving.sh").replace("--seconds 8", "--seconds 2")
    output_of(line, clone, "| 64 | one at a time |", timeout=600)


def test_reports_of_the_quickstart_are_written(clone):
    """Runs after the quickstart."""
    for line in [line for line in COMMANDS if line.startswith(".venv/bin/python -m bert.reporting")]:
        TRIED.add(line)
        output_of(line, clone)
    assert (clone / "results/quickstart/report.html").stat().st_size > 100_000
    assert "data:image/png" in (clone / "results/both.md").read_text()
