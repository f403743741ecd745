"""Opens the zip archives of Office documents and e-books safely."""

import zipfile
from pathlib import Path

from data.text.size_limits import TooMuchError, require_no_bomb
from data.text.text_check import NotTextError

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a zip file; NotTextError if it is protected, of an older Office, or too large when unpacked."""
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
    """XML parser's handler of entity declarations, which raises NotTextError."""
    raise NotTextError("declares XML entities, which no Office program does")
