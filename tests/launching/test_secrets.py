"""No file of a run or of a temporary folder holds a variable that may be a secret, and the ranks have all of them."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.launching.processes import start_process
from bert.launching.ranks import Ranks, ranks_command
from bert.rank_environment import WITHHELD, of_launcher
from tests.faults.trainings import make_data
from tests.support.corpora import WORDS

NAMES = (
    "HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY MLFLOW_TRACKING_PASSWORD BERT_API_KEY AWS_ACCESS_KEY_ID "
    "AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_CLIENT_SECRET GITHUB_TOKEN GITLAB_PRIVATE_TOKEN OPENAI_API_KEY "
    "NVIDIA_API_KEY PADDLE_API_KEY DATABASE_URL MY_DB_PASSWORD PGPASSWORD SLACK_WEBHOOK_URL SLURM_JWT "
    "PIP_INDEX_URL https_proxy SENTRY_DSN"
).split()
CANARY = "canary-of-a-secret"
SECRETS = {name: f"http://user:{CANARY}-{name}@127.0.0.1:9" for name in NAMES}
DIGEST = hashlib.sha256("".join(SECRETS.values()).encode()).hexdigest()
RANK = """
import hashlib, os, sys
from pathlib import Path
import bert
from bert.parent_death import end_with_launcher
end_with_launcher()
seen = hashlib.sha256("".join(os.environ.get(name, "") for name in sys.argv[2:]).encode()).hexdigest()
Path(sys.argv[1]).with_suffix("." + os.environ["PADDLE_TRAINER_ID"]).write_text(seen)
"""
WANDB = """
import hashlib, os
class _Run:
    id = hashlib.sha256("".join(os.environ.get(name, "") for name in NAMES).encode()).hexdigest()
    def __getattr__(self, name): return lambda *_, **__: None
def init(**_): return _Run()
"""


def holders(*folders: Path) -> list[str]:
    """Return the files that hold a canary, also in their names."""
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in paths if CANARY.encode() in path.read_bytes() + os.fsencode(path)]


def dumps(folder: Path) -> list[Path]:
    logs = [path for path in folder.rglob("*.log") if b"environ({" in path.read_bytes()]
    return [*folder.rglob("backup_env*"), *folder.rglob("envlog*"), *logs]


@pytest.mark.parametrize("start", ["ours", "typed"])
def test_ranks_have_the_secrets_and_the_launchers_files_do_not(tmp_path, monkeypatch, start):
    script, seen, log = tmp_path / "rank.py", tmp_path / "seen", tmp_path / "log"
    script.write_text(RANK)
    for name, value in (SECRETS | {"PYTHONPATH": str(REPOSITORY), "TOKENIZERS_PARALLELISM": "false"}).items():
        monkeypatch.setenv(name, value)
    command = ranks_command(Ranks(num_processes=2), None, log, [script, seen, *NAMES])
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = start_process(command, **output) if start == "ours" else subprocess.Popen(command, **output)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    names = [name for name in NAMES if start == "ours" or name != "https_proxy"]  # which Paddle's launcher drops
    digest = hashlib.sha256("".join(SECRETS[name] for name in names).encode()).hexdigest()
    assert [seen.with_suffix(f".{rank}").read_text() for rank in range(2)] == [digest] * 2
    assert holders(log) == [] and dumps(log) == [] and CANARY not in text


def test_the_launcher_has_what_it_reads_itself_and_what_is_read_before_python():
    needed = (
        "LD_PRELOAD PYTHONPATH TZ MALLOC_CONF NSYS_PROFILING_SESSION_ID CUDA_VISIBLE_DEVICES POD_IP PORT_RANGE".split()
    )
    withheld = "PADDLE_PWD FLAGS_DSN CUDA_TOKEN POD_IP_KEY SSH_AUTH_SOCK UCX_TLS my_tok PYTHONWARNINGS".split()
    environment, descriptor = of_launcher(dict.fromkeys([*needed, *withheld], "1"))
    os.close(descriptor)
    assert environment == dict.fromkeys(needed, "1") | {WITHHELD: str(descriptor)}


@pytest.mark.parametrize("kind", ["missing", "pipe"])
def test_a_rank_that_cannot_read_them_says_so(kind):
    """The pipe belongs to another process, which took over the rank of a launcher that has ended."""
    reading, writing = os.pipe()
    environment = {**os.environ, WITHHELD: str(reading if kind == "pipe" else 999), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", "import bert"]
    rank = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    os.close(reading)
    os.close(writing)
    assert rank.returncode == 137 and rank.stderr.startswith(b"error: Paddle's launcher has ended, or this machine")


def test_the_command_of_the_page_lists_what_earlier_versions_left(tmp_path):
    page = (REPOSITORY / "docs/troubleshooting.md").read_text(encoding="utf-8")
    (command,) = (line for line in page.splitlines() if line.startswith("grep -r"))
    launch = tmp_path / "results" / "run" / "phase1" / "launch"
    launch.mkdir(parents=True)
    rank = {"HF_TOKEN": CANARY, "PADDLE_TRAINER_ID": "0"}
    (launch / "backup_env.0.json").write_text(json.dumps(rank, indent=4))
    (launch / "envlog.0").write_text("".join(f"{name}={value}\n" for name, value in rank.items()))
    (launch / "job.pod.log").write_text(f"environ({{'HF_TOKEN': '{CANARY}'}})\n[]\n")
    (launch / "launcher.log").write_text(f"Container rank 0 status failed\nenv {rank}\n")
    (launch / "workerlog.0").write_text("step 1\n")
    found = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {Path(line).name for line in found.splitlines()} == {path.name for path in launch.iterdir()} - {
        "workerlog.0"
    }


@pytest.fixture
def tmp_path():
    """Make a short path: the socket of two ranks in its TMPDIR may have 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(folder: Path, *words: str) -> str:
    """Return the output of a command with all secrets in its environment; outputs and temporary files are in
    `folder`."""
    for name in ("temporary", "packages"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "packages" / "wandb.py").write_text(WANDB.replace("NAMES", repr(NAMES)))
    paths = os.pathsep.join([str(folder / "packages"), str(REPOSITORY)])
    environment = {**os.environ, **SECRETS, "PYTHONPATH": paths, "TMPDIR": str(folder / "temporary")}
    command = [sys.executable, "-m", "bert.commands", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0 and CANARY not in output, output
    return output


def sentences(number: int) -> str:
    return "".join(f"{' '.join(WORDS[(number * row) % 7 :][:9])} in paragraph {row} of {number}. " for row in range(60))


@pytest.mark.long
def test_no_file_of_a_pretraining_holds_a_secret_and_its_tracker_has_them(tmp_path):
    out = tmp_path / "out"
    run(tmp_path, "pretraining", *make_data(tmp_path / "data").argv(out, "--num-gpus", "2", "--report-to", "wandb"))
    assert (out / "phase1" / "wandb_run").read_text() == DIGEST
    assert holders(tmp_path) == [] and dumps(tmp_path) == []
    assert (out / "phase1" / "launch").stat().st_mode & 0o777 == 0o700


@pytest.mark.nightly
@pytest.mark.long
def test_no_file_of_own_text_or_of_its_probe_holds_a_secret(tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for number in range(40):
        (text / f"{number}.txt").write_text(sentences(number))
    words = f"--text {text} --output-dir {tmp_path / 'out'} --max-steps 2"
    run(tmp_path, "pretraining", *shlex.split(words))
    assert holders(tmp_path) == [] and dumps(tmp_path) == [] and not list((tmp_path / "temporary").iterdir())


@pytest.mark.nightly
@pytest.mark.long
def test_no_file_of_a_fine_tuning_holds_a_secret(tmp_path):
    make_data(tmp_path / "data")
    rows = [f"{' '.join(WORDS[row % 5 :][:4])},{'ab'[row % 2]}" for row in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    model = "--bert-model bert-test --vocab-size 106 --hidden-size 32 --num-hidden-layers 1 --num-attention-heads 4"
    words = f"{model} --intermediate-size 37 --max-position-embeddings 32 --max-seq-length 24 --max-steps 2"
    files = (
        f"--train {tmp_path / 'train.csv'} --vocab-file {tmp_path / 'data/vocab.txt'} --output-dir {tmp_path / 'out'}"
    )
    run(tmp_path, "classify", *shlex.split(f"{files} {words} --device cpu --num-gpus 2"))
    assert holders(tmp_path) == [] and dumps(tmp_path) == []
