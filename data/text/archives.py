"""Opens the zip files that Office documents and e-books are, if they may be unpacked."""

import zipfile
from pathlib import Path

from data.text.size_limits import TooMuchError, require_no_bomb
from data.text.text_check import NotTextError

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_archive(path: Path) -> zipfile.ZipFile:
    """A zip file; NotTextError for one that is protected, of an older Office, or becomes too large."""
    with open(path, "rb") as file:
        if file.read(len(_OLE)) == _OLE:
            raise NotTextError("is protected by a password, or of an older Office; save it again without")
    archive = zipfile.ZipFile(path)
    try:
        require_no_bomb(path, (member.file_size for member in archive.infolist()))
    except TooMuchError:
        archive.close()
        raise
    return archive


def refuse_entities(*_: object) -> None:
    """The handler of a parser of XML for the declaration of an entity: NotTextError."""
    raise NotTextError("declares XML entities, which no Office program does")
