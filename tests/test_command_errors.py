"""Errors of a command give one line and an exit code, and nothing after the block runs."""

import os
import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.command_errors import command
from bert.exit_codes import BAD_INPUT, CTRL_C, DIVERGED, NOT_SAVED, Failure

PROGRAM = """
import sys
from bert.command_errors import command
with command({place}):
    {body}
print("after", file=sys.stderr)
"""


def run(place: str, body: str) -> tuple[int, str]:
    """Return exit code and standard error of a command whose reader has left."""
    line = [sys.executable, "-c", PROGRAM.format(place=place, body=body)]
    pipes = {"cwd": REPOSITORY, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(line, env={**os.environ, "PYTHONUNBUFFERED": ""}, **pipes)
    assert process.stdout is not None
    process.stdout.close()
    return process.wait(timeout=60), process.stderr.read()


@pytest.mark.parametrize(("place", "code"), [("", 0), ("place=None", BAD_INPUT), ("'folder'", BAD_INPUT)])
def test_a_reader_that_left_ends_the_command_within_the_block(place, code):
    body = "[print('x' * 1000, flush=True) for _ in range(1000)]; sys.exit('went on')"
    assert run(place, body) == (code, "")


def test_a_reader_that_left_when_all_was_done_is_no_error():
    assert run("place=None", "print('x')") == (0, "after\n")


class Diverged(Failure):
    exit_code = DIVERGED


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("seed=x must be a number"), BAD_INPUT, "error: seed=x must be a number"),
        (Diverged("NaN"), DIVERGED, "error: NaN"),
        (FileNotFoundError(2, "No such file", "a.txt"), BAD_INPUT, "error: a.txt: No such file; check that the path"),
        (OSError(28, "No space left on device"), NOT_SAVED, "error: No space left on device; free space"),
        (KeyboardInterrupt(), CTRL_C, "interrupted"),
    ],
)
def test_each_error_is_one_line_and_an_exit_code(capsys, error, code, text):
    with pytest.raises(SystemExit) as ended, command(place=None):
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(text)


def test_an_error_with_text_of_strangers_is_one_line(capsys):
    with pytest.raises(SystemExit), command():
        raise ValueError("a\x1b[2J\nerror: b\n  c\u2028d\u202ee\udcff")
    assert capsys.readouterr().err == "error: a\\x1b[2J\\nerror: b\n  c\\u2028d\\u202ee\\udcff\n"
