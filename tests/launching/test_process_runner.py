"""Commands are run one at a time, and signals reach the ranks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bert.exit_codes import INTERRUPTED
from bert.launching.process_runner import Runner, ranks_of
from tests.support.waiting import wait_until


def test_a_signal_before_training_stops_too():
    runner = Runner()
    try:
        runner._on_signal(signal.SIGTERM, None)
        assert runner.run([sys.executable, "-c", "1/0"]) == INTERRUPTED
    finally:
        for name in ("SIGTERM", "SIGHUP", "SIGUSR1"):
            signal.signal(signal.Signals[name], signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ranks_of_paddles_launcher_are_signalled_directly(tmp_path):
    """Paddle's launcher would kill them 30 seconds after its own SIGTERM, in the middle of a long save."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '30']).wait()"
    process = subprocess.Popen([sys.executable, "-c", script, "paddle.distributed.launch"])
    try:
        wait_until(lambda: ranks_of(process))
        ranks = ranks_of(process)
        assert len(ranks) == 1
        assert Path(f"/proc/{ranks[0]}/cmdline").read_bytes().startswith((b"sleep", sys.executable.encode()))
    finally:
        for pid in ranks_of(process):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
