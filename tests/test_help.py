"""`--help` of every script and module: at most 100 columns wide, and nothing is installed or written for it."""

import argparse
import contextlib
import importlib
import io
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bert import REPOSITORY
from bert.commands import convert, export, pretrain
from bert.config.command_line import SettingsParser
from bert.config.plain_commands import read_flags
from bert.help_parser import SENTENCE_END, HelpParser, wrapped
from bert.interpreter import shell_command
from bert.launching.arguments import LauncherParser
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
    """Return each module that runs as a program."""
    found = []
    rooms = (path for room in ("bert", "data", "tests/benchmarks") for path in (REPOSITORY / room).rglob("*.py"))
    for path in sorted([*REPOSITORY.glob("run_*.py"), *rooms]):
        name = str(path.relative_to(REPOSITORY))
        if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8") and not OTHERS.fullmatch(name):
            found.append(name.removesuffix(".py").replace("/", ".").removesuffix(".__main__"))
    return found


def commands() -> dict[str, list[str]]:
    """Map each command that users type to its module and words."""
    tasks = ("pretraining", "classify", "vectors", "squad", "glue", "ner")
    typed = {f"scripts/run_{task}.sh": ["bert.commands", task] for task in tasks}
    typed |= {f"scripts/run_{task}.sh --seeds 5": ["bert.commands", task, "--seeds", "5"] for task in ("ner", "glue")}
    others = {name for name in modules() if name.startswith(("run_", "data."))} - {*NOT_TYPED}
    others |= {"bert.indexing", "bert.serving", "bert.reporting", "bert.doctor", "bert.commands.slurm"}
    return typed | {name: [name] for name in sorted(others)}


NOT_TYPED = ("data.preprocessing.estimates",)  # create_datasets_from_start.sh starts it
LONGEST_GROUP, LONGEST_FIRST_HELP = 45, 50  # lines of a screen
NAMED_DEFAULT = re.compile(r"\(default: (none|None|\(.*|)\)")


def help_and_parsers(module: str, *words: str) -> tuple[str, list[HelpParser]]:
    """Return the output of a command with --help, and the parsers that it makes."""
    made, out = list[HelpParser](), io.StringIO()

    def make(parser: HelpParser, **settings: Any) -> None:
        original(parser, **settings)
        made.append(parser)

    original = HelpParser.__init__
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        patch.setattr(HelpParser, "__init__", make)
        patch.setattr(sys, "argv", [module, *words, "--help"])
        patch.setattr(sys, "warnoptions", [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a module that an earlier one has imported
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code in (None, 0)
    return out.getvalue(), made


def examples_in(text: str) -> list[list[str]]:
    """Return the words of the commands below "Examples:"."""
    lines = text.partition("\nExamples:\n")[2].partition("\n\n")[0]
    return [shlex.split(line) for line in lines.replace("\\\n", "").splitlines()]


def unread(parser: HelpParser, words: list[str]) -> list[str]:
    """Return the words after a command that its parser does not know."""
    if isinstance(parser, SettingsParser):
        first = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
        return parser.read_known(words[first:])[1]
    if "--seeds" in words:  # the other words are of one training
        return []
    if "bert.commands.slurm" in parser.prog:
        return LauncherParser(pretrain.LAUNCHER).read_known(words[1:])[1]
    return parser.parse_known_intermixed_args(words)[1]


@pytest.mark.parametrize("name", commands())
def test_help_begins_with_a_sentence_and_two_examples_that_the_command_reads(name):
    text, parsers = help_and_parsers(*commands()[name])
    first = text.partition("\n\n")[0]
    assert first.endswith(".") and not SENTENCE_END.search(first) and not first.startswith("usage"), first
    examples = examples_in(text)
    assert len(examples) >= 2, text
    start = shlex.split(shell_command(name.partition(" ")[0] if ".sh" in name else typed_name(name)))
    for words in examples:
        assert words[: len(start)] == start
        assert not parsers or not unread(parsers[0], words[len(start) :]), words
    assert not too_wide(text)


def typed_name(module: str) -> str:
    return f"{module}.py" if module.startswith("run_") else module


@pytest.mark.parametrize("name", commands())
def test_every_flag_is_explained_and_its_default_is_a_value(name):
    text, parsers = help_and_parsers(*commands()[name])
    assert "none: as" not in text
    if name.endswith(".sh"):
        assert len(text.splitlines()) <= LONGEST_FIRST_HELP
        assert {"--model", "--output-dir", "--epochs", "--learning-rate", "--batch-size", "--dry-run"} <= {
            *text.split()
        }
    for parser in parsers:
        for group in parser._action_groups:
            actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
            for action in actions:
                assert action.help and action.help[0] not in "( ", (name, action.option_strings)
                assert not NAMED_DEFAULT.search(action.help), (name, action.help)
                assert not re.match("of |in the |by ", action.help), (name, action.help)
            formatter = parser._get_formatter()
            formatter.add_arguments(actions)
            assert len(formatter.format_help().splitlines()) <= LONGEST_GROUP, (name, group.title)


FOR_USERS = ("run_pre", "run_cl", "run_sq", "run_glue", "run_ner", "run_vec", "setup", "doctor", "docker/", "run.sub")


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != ".ci/run"])
def test_the_comment_of_a_script_is_a_help_text(script):
    """--help prints the comment where no packages are installed."""
    lines = (REPOSITORY / script).read_text(encoding="utf-8").splitlines()[1:]
    comment = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    text = "\n".join(line[2:] for line in comment if not line.startswith("#SBATCH"))
    assert not too_wide(text), "--help would fold these lines"
    assert not re.search(r"[Ss]ee `[^`]*--help`", text), "the comment is what --help prints"
    path = REPOSITORY / script
    if script.removeprefix("scripts/").startswith(FOR_USERS) and not path.is_symlink() and "_p" not in path.stem[-3:]:
        first, _, rest = text.partition("\n\n")
        assert first.endswith(".") and not SENTENCE_END.search(first)
        assert len(re.findall(r"^  (?:bash|sbatch) \S+", rest, re.M)) >= 2


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 100]


def asked(words: list, folder: Path = REPOSITORY, **environment: str) -> str:
    """Return the output of the command, started as users start it."""
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
    """The only Python has no packages; a launcher says how to get them, and what the launcher does."""
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
