"""`--help` of every script and module: at most 100 columns wide, and nothing is installed or written for it."""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.commands import convert, export
from bert.config.plain_commands import read_flags
from bert.help_parser import HelpParser, wrapped
from data.preprocessing.request import ShardRequest
from data.train_vocabulary import VocabularyRequest

PARTS = ("packages.sh", "entrypoint.sh", "install_python.sh")  # of other scripts
FOUND = [*(REPOSITORY / "scripts").glob("*.sh"), *(REPOSITORY / "scripts/docker").glob("*.sh"), REPOSITORY / ".ci/run"]
FOUND += [REPOSITORY / "data/create_datasets_from_start.sh", REPOSITORY / "run.sub"]
SCRIPTS = sorted(str(path.relative_to(REPOSITORY)) for path in FOUND if path.name not in PARTS)
OTHERS = re.compile("tests/benchmarks/(.*_torch|inference_ours).py")  # of another environment
# Runs each module of standard input with --help in one process; prints name -> exit code, output and errors.
ASKING = """
import contextlib, io, json, runpy, sys, warnings
warnings.simplefilter("ignore")  # a module that an earlier one has imported
answers = {}
for name in json.load(sys.stdin):
    out, err, code, sys.argv = io.StringIO(), io.StringIO(), None, [name, "--help"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            code = ended.code
    answers[name] = code, out.getvalue(), err.getvalue()
print(json.dumps(answers))
"""


def modules() -> list[str]:
    """Each module that runs as a program."""
    found = []
    rooms = (path for room in ("bert", "data", "tests/benchmarks") for path in (REPOSITORY / room).rglob("*.py"))
    for path in sorted([*REPOSITORY.glob("run_*.py"), *rooms]):
        name = str(path.relative_to(REPOSITORY))
        if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8") and not OTHERS.fullmatch(name):
            found.append(name.removesuffix(".py").replace("/", ".").removesuffix(".__main__"))
    return found


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 100]


def asked(words: list, folder: Path = REPOSITORY, **environment: str) -> str:
    """What the command prints, started as users start it."""
    given = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "COLUMNS": "200", **environment}
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{words}: {done.stderr}"
    assert done.stdout.strip() and not too_wide(done.stdout), f"{words}: {too_wide(done.stdout)}"
    return done.stdout


def test_a_long_line_breaks_after_the_clause_of_a_path_that_fits():
    short, wide = "/a/short/path", f"/tmp/{'x' * 20}"
    assert wrapped(f"saved {short}; it goes on here", 30, "  ") == f"saved {short};\n  it goes on here"
    assert wrapped(f"a copy of {wide}; now", 34, "  ") == f"a copy of\n  {wide}; now"


def test_old_names_of_flags_are_accepted_and_not_listed():
    parser = HelpParser(prog="run")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction)
    parser.add_old_names({"--outdir": "--output-dir", "--do-lower-case": "--lowercase"})
    for words in ("--outdir D --no-do-lower-case", "--outdir=D --no-lowercase", "--output-dir D --no-lowercase"):
        options = parser.parse_args(words.split())
        assert (options.output_dir, options.lowercase) == ("D", False), words
    assert parser.parse_args("--outdir D -- --outdir".split()).words == ["--outdir"], "a word after --"
    assert "--outdir" not in parser.format_help() and "--do-lower-case" not in parser.format_help()


OLD_NAMES = {  # a command line with old names -> the same with the names of now
    "preprocess_bert_pretrain --text a --sink b --vocab-file c --target-seq-length 64 --local-n-workers 3 --lang de": (
        "--text a --output-dir b --vocab-file c --max-seq-length 64 --num-processes 3 --language de"
    ),
    "train_vocabulary --input a --output b.json --model bpe": "--input a --output b.json --tokenizer bpe",
}


@pytest.mark.parametrize("line", OLD_NAMES)
def test_old_lines_of_data_commands_are_read_as_before(line, capsys):
    name, *words = line.split()
    request = {"preprocess_bert_pretrain": ShardRequest, "train_vocabulary": VocabularyRequest}[name]
    assert read_flags(request, words, description="") == read_flags(request, OLD_NAMES[line].split(), description="")
    with pytest.raises(SystemExit):
        importlib.import_module(f"data.{name}").main(["--help"])
    listed = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert "--output-dir" in listed or "--output" in listed
    assert listed.isdisjoint({"--sink", "--target-seq-length", "--local-n-workers", "--lang", "--model"})


def test_old_lines_of_conversions_are_read_as_before():
    old = "--from a --to b --to-format hf --no-do-lower-case"
    new = "--model a --output-dir b --output-format hf --no-lowercase"
    of_convert, of_export = (
        partial(read_flags, request, description="") for request in (convert.ConvertRequest, export.ExportRequest)
    )
    assert of_convert(old.split()) == of_convert(new.split())
    old, new = "--checkpoint a --to b --format onnx", "--model a --output-dir b --output-format onnx"
    assert of_export(old.split()) == of_export(new.split())


@pytest.mark.long
def test_every_module_says_how_it_is_used():
    done = subprocess.run(
        [sys.executable, "-c", ASKING],
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "200"},
        input=json.dumps(modules()),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers.keys() == set(modules()) and len(answers) > 30
    wrong = {name: (code, err) for name, (code, out, err) in answers.items() if code or err or not out.strip()}
    assert not wrong
    assert not {name: wide for name, (_, out, _) in answers.items() if (wide := too_wide(out))}


@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["run_pretraining.py", "-m data.inspect", "-m bert.serving", "scripts/run_squad.sh"], ids=str
)
def test_a_command_says_how_it_is_used(words):
    program = "bash" if words.endswith(".sh") else sys.executable
    asked([program, *words.split(), "--help"], BERT_PYTHON=sys.executable)


@pytest.mark.long
def test_in_a_fresh_clone_nothing_is_installed_for_it(tmp_path):
    """The only Python has no packages; a launcher says how to get them, and what it does."""
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/") and (REPOSITORY / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, clone / name)
    before = sorted(clone.rglob("*"))
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -B -S "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    launchers = []
    for script in SCRIPTS:
        text = asked(["bash", script, "--help"], clone, HOME=str(home), PATH=f"{tmp_path}:/usr/bin:/bin")
        launchers += [script] if "run 'bash scripts/setup.sh' once" in text else []
    assert {"scripts/run_pretraining.sh", "scripts/run_ner.sh", "scripts/benchmark_serving.sh"} <= set(launchers)
    assert sorted(clone.rglob("*")) == before and list(home.iterdir()) == []
