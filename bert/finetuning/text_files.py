"""Decodes text files of users, or refuses them with the reason and the remedy."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bert.config.flags import is_on
from bert.conversion.usage import Usage
from data.text.compression import read_chunks
from data.text.contents import text_chunks
from data.text.encodings import MAX_ROW_CHARACTERS, Decoding, decoded, whole_lines
from data.text.file_formats import table_input
from data.text.findings import Findings
from data.text.text_check import NotTextError


def text_lines(path: Path, decoding: Decoding, notes: list[str]) -> Iterator[str]:
    """Lines of a file, plain or compressed, without line ends and byte order mark.

    Args:
        notes: gets what is unusual about its encoding.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file; check the path")
    findings = Findings()
    chunks = text_chunks(table_input(path, "txt"), findings, decoding.encoding, decoding.language)
    damaged = 0  # the first such line
    try:
        for number, text in enumerate(whole_lines(chunks), start=1):
            if text is None:
                raise ValueError(f"{path}:{number}: the line is longer than {MAX_ROW_CHARACTERS} characters; split it")
            damaged = damaged or number * ("\ufffd" in text)
            yield text
    except NotTextError as error:
        raise ValueError(f"{path} {error}; pass a file of text") from None
    for name, place in (("undecodable bytes", f" from line {damaged} on"), ("NUL characters removed", "")):
        if number := findings.counts[name]:
            what = f"{number:,} {name.removesuffix(' removed')}{place}"
            raise ValueError(f"{path}: {what}; name its --encoding, or the --language of its text, or save it as UTF-8")
    notes += [f"{path}: {line}" for line in findings.encoding_lines()]


def implied_decoding(values: Mapping[str, Any], usage: Usage) -> dict[str, Any]:
    """The decoding of a training's files if no setting names it; files of the trained model follow it.

    Args:
        usage: of weights that are used without training.
    """
    said = {name: value for name in ("encoding", "language") if (value := getattr(usage, name)) is not None}
    file = Path(str(values.get("train_file"))).expanduser()
    if is_on(values, "do_train") and file.is_file() and "encoding" not in values:
        language, source = decoding_of(values).language, table_input(file, "txt")
        with suppress(NotTextError):  # Parquet, Excel
            found, _ = decoded(lambda: read_chunks(file, source.compression), "auto", language, Counter())
            said |= {"encoding": f"auto:{page}"} if (page := found.code_page()) else {}
    return said


def decoding_of(values: Mapping[str, Any]) -> Decoding:
    """The decoding that flat settings name; ValueError for an unknown encoding."""
    header = is_on({"header": True, **values}, "header")
    return Decoding(values.get("encoding") or "auto", values.get("language") or "en", header)
