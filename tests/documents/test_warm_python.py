"""A command of a clone behaves the same in a new process and as a fork of the warm server."""

import json
import os
import re
import signal

import psutil
import pytest

from tests.support import shell
from tests.support.waiting import wait_until
from tests.support.warm_python import COLD

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("without a model")]
FACTS = """
import json, os, signal, subprocess, sys, threading, time
kind = sys.argv[1]
if kind == "facts":
    mask = os.umask(0)
    child = [sys.executable, "-u", __file__, "child", str(os.getpid())]
    ended = subprocess.run(child, cwd="/", start_new_session=True, capture_output=True, env={**os.environ, "B": "2"})
    facts = {
        "argv": sys.argv, "folder": os.getcwd(), "umask": mask, "path": sys.path, "input": sys.stdin.read(),
        "file": __file__, "name": __name__, "A": os.environ.get("A"), "descriptors": os.listdir("/proc/self/fd"),
        "SIGPIPE": signal.getsignal(signal.SIGPIPE).name, "threads": threading.active_count(),
        "child": [ended.returncode, ended.stdout.decode(), ended.stderr.decode()], "ours": "bert" in sys.modules,
    }
    print(json.dumps(facts))
elif kind == "child":
    print(os.getppid() == int(sys.argv[2]), os.getsid(0) == os.getpid(), os.getcwd(), os.environ["B"], flush=True)
    sys.exit(7)
elif kind == "waits":
    print(os.getpid(), flush=True)
    time.sleep(60)
else:
    exec(kind)
"""


@pytest.fixture(scope="module")
def script(clone) -> str:
    (clone / "run_facts.py").write_text(FACTS)
    return ".venv/bin/python run_facts.py"


def test_a_warm_command_sees_what_a_cold_one_sees_and_is_the_parent_of_what_it_starts(clone, script):
    warm, cold = (
        json.loads(
            shell.output_of(f"umask 27; echo typed | {script} facts 'two words'", clone, A="\u00e4", **variables)
        )
        for variables in ({}, COLD)
    )
    assert warm == cold and warm["child"] == [7, "True True / 2\n", ""] and not warm["ours"]


@pytest.mark.parametrize(
    "statement",
    [
        "sys.exit(3)",
        "sys.exit('a message')",
        "raise ValueError('wrong')",
        "raise KeyboardInterrupt",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os._exit(4)",
        "__import__('atexit').register(print, 'at the end')",
        "threading.Thread(target=lambda: (time.sleep(0.2), print('of a thread'))).start()",
    ],
)
def test_a_warm_command_ends_as_a_cold_one(clone, script, statement):
    warm, cold = (shell.run(f'{script} "{statement}"; echo $?', clone, **variables) for variables in ({}, COLD))
    assert warm.stdout == cold.stdout
    last = [re.sub(r"\d+", "N", done.stderr.strip().rpartition("\n")[2]) for done in (warm, cold)]  # names processes
    assert last[0] == last[1]


def test_ctrl_c_and_a_kill_reach_a_warm_command(clone, script):
    for number, code in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -9)):
        with shell.started(f"{script} waits", clone) as client:
            pid = int(shell.read_until(client, "\n"))
            assert pid != client.pid  # the fork's
            os.killpg(client.pid, number)
            assert client.wait(60) == code
            wait_until(lambda pid=pid: not psutil.pid_exists(pid))
