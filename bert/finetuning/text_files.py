"""Text files of users and of published tasks: decoded, or refused with the line and the remedy."""

from pathlib import Path


class DataError(ValueError):
    """A file that cannot be used. The message names the file, the line, the value, the rule and the remedy."""


def decoded_text(path: Path) -> str:
    """The text of a UTF-8 file, without its byte order mark.

    Raises:
        DataError: the file is missing, not UTF-8, or has NUL characters.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file; check the path")
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16; save it as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: byte {data[error.start]:#04x} is not UTF-8 ({error.reason}); save the file as "
            "UTF-8, e.g. with iconv -f LATIN1 -t UTF-8, or copy it again if it was truncated"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}:{line}: a NUL character; the file is binary, or UTF-16: save it as UTF-8 text")
    return text
