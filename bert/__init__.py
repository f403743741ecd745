"""BERT on Paddle: the library.

`zlib` is imported here, before anything of this package can import Paddle: libpaddle.so exports zlib's symbols,
and a process that loads it first cannot decompress afterwards (gzip, zipfile, scipy fail or crash).
"""

import logging
import os
import sys
import zlib  # noqa: F401

from bert.interpreter import CODE, prepare_command
from bert.printable import printable
from bert.rank_environment import take_withheld

__version__ = "0.1.0"
REPOSITORY = CODE
MESSAGES = logging.getLogger(__name__)  # the parent of all our loggers


class _Warnings(logging.Handler):
    """Prints warnings on standard error in a process that has set up no logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if MESSAGES.handlers == [self] and not logging.getLogger().handlers:
            print(printable(f"{record.levelname.lower()}: {record.getMessage()}", True), file=sys.stderr, flush=True)


MESSAGES.addHandler(_Warnings(logging.WARNING))
# pydantic would look for plugins among all installed packages, a tenth of the time of `--help`; none is used here.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
prepare_command()
take_withheld()
