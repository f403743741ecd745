"""Measures the peak resident memory of code in its own process."""

import subprocess
import sys

from bert import REPOSITORY

# ru_maxrss would have the parent's peak
_PEAK = "\nprint('peak', open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], file=sys.stderr)"


def peak_of(code: str, *arguments: object) -> int:
    """Return the most KiB that `code`, which may use `sys.argv[1:]`, needed."""
    words = [sys.executable, "-c", f"import sys; {code}{_PEAK}", *map(str, arguments)]
    done = subprocess.run(words, cwd=REPOSITORY, check=True, text=True, capture_output=True)
    return int(done.stderr.rpartition("peak ")[2])
