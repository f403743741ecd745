"""BERT on Paddle: the library.

`zlib` is imported here, before anything of this package can import Paddle: libpaddle.so exports zlib's symbols,
and a process that loads it first cannot decompress afterwards (gzip, zipfile, scipy fail or crash).
"""

import logging
import zlib  # noqa: F401

from bert.interpreter import CODE, prepare_command

__version__ = "0.1.0"
REPOSITORY = CODE
MESSAGES = logging.getLogger(__name__)  # the parent of all our loggers
MESSAGES.addHandler(logging.NullHandler())  # a library shows nothing by itself
prepare_command()
