"""Decodes bytes, replaces undecodable ones by U+FFFD, and counts them."""

import codecs
import threading

from data.text import seven_bit  # noqa: F401 (registers a codec)
from data.text.charset_labels import known_codec

_HANDLER = "replace and count"


class _Errors(threading.local):
    """Undecodable bytes that the error handler counts during one call, for each thread."""

    num_bytes = 0


_errors = _Errors()


def _replace_and_count(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _errors.num_bytes += error.end - error.start
    return "\ufffd", error.end


# Python finds an error handler by a name that all modules share, and passes it the error alone. So the handler cannot
# know its decoder, and the decoder takes the count after each call.
codecs.register_error(_HANDLER, _replace_and_count)


class CountingDecoder:
    """Decodes bytes with a codec (Python's or the web's name), as a whole or in pieces.

    Raises:
        LookupError: Python does not know the codec.
    """

    def __init__(self, codec: str) -> None:
        codec = known_codec(codec)
        self._codec = codec
        self._pieces = codecs.getincrementaldecoder(codec)(_HANDLER)

    def decode(self, data: bytes) -> tuple[str, int]:
        """Decode a whole text: (text, number of undecodable bytes)."""
        _errors.num_bytes = 0
        return data.decode(self._codec, _HANDLER), _errors.num_bytes

    def decode_piece(self, data: bytes, is_last: bool) -> tuple[str, int]:
        """Decode the next piece, which continues the earlier ones. The last piece may be empty."""
        _errors.num_bytes = 0
        return self._pieces.decode(data, is_last), _errors.num_bytes
