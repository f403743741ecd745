r"""Seven-bit encodings: their bytes are ASCII, and escape sequences encode the text.

ISO-2022-JP   ESC $ B or ESC $ @ begins Japanese, ESC ( B ends it
ISO-2022-KR   ESC $ ) C in the first line; SO begins Korean, SI ends it
HZ            ~{ begins Chinese, ~} ends it
UTF-7         + begins characters in base64, - ends them

Mails and pages in ISO-2022-JP hold characters that only Microsoft's variant has (NEC's row 13, IBM's extensions). The
codec iso2022_jp_ms reads a line by the standard, and where that fails, by the variant.
"""

import codecs
import re
from collections.abc import Mapping
from typing import Any

from data.text.text_check import NotTextError

_JAPANESE, _KOREAN = re.compile(rb"\x1b\$(?:[@B]|\([BD])"), b"\x1b$)C"
_CHINESE = re.compile(rb"\x1b\$(?:\)[AGE]|\*H)")
_HZ = re.compile(rb"~\{((?:[\x21-\x77][\x21-\x7e])+)~\}")
_HZ_COMMON = re.compile(rb"(?s)(?:[\x21-\x23\x30-\x57].)*")  # marks, and the commoner half of the characters
_UTF_7 = re.compile(rb"\+([A-Za-z0-9+/]{2,})")
_MODES = re.compile(rb"\x1b(\$\(D|\$\(?[@B]|\([BJIH])")
_LEAST_HZ, _LEAST_UTF_7 = 2, 3  # characters
SIGNS = _ESCAPE, _TILDE, _PLUS = b"\x1b$", b"~{", b"+"
CODECS = ("iso2022", "hz", "utf-7")


def seven_bit_codec(samples: Mapping[bytes, bytes]) -> str | None:
    """Codec of a file whose ASCII encodes other characters; None for plain ASCII.

    Args:
        samples: of each of SIGNS that occurs, the lines from the first one on.

    Raises:
        NotTextError: it is ISO-2022-CN, for which Python has no codec.
    """
    escaped = samples.get(_ESCAPE, b"")
    if _JAPANESE.search(escaped):
        return "iso2022_jp_ms"
    if _KOREAN in escaped:
        return "iso2022_kr"
    if _CHINESE.search(escaped):
        raise NotTextError("is ISO-2022-CN, which is not read; convert it (iconv -f ISO-2022-CN -t UTF-8)")
    if _is_hz(samples.get(_TILDE, b"")):
        return "hz"
    return "utf-7" if _is_utf_7(samples.get(_PLUS, b"")) else None


def _is_hz(sample: bytes) -> bool:
    runs = _HZ.findall(sample)
    hidden = b"".join(runs)
    is_all = sample.count(b"~{") - len(runs) in (0, 1)  # the sample may end inside of one
    return is_all and len(hidden) >= 2 * _LEAST_HZ and len(_HZ_COMMON.match(hidden)[0]) > 0.8 * len(hidden)  # type: ignore[index]


def _is_utf_7(sample: bytes) -> bool:
    """Whether every + begins valid UTF-7, of an alphabet with small code points or of one script throughout."""
    runs = _UTF_7.findall(sample)
    if len(runs) < 2:
        return False
    try:
        text = codecs.getincrementaldecoder("utf-7")().decode(sample)
    except UnicodeDecodeError:
        return False
    foreign = [character for character in text if character > "\x7f"]
    is_of_alphabet = sum(run[:1] in b"AB" or run[:2] in (b"IB", b"IC", b"IK") for run in runs) > 0.9 * len(runs)
    is_foreign = 2 * len(foreign) > len(text)
    letters = sum(character.isalpha() for character in foreign)
    return len(foreign) >= _LEAST_UTF_7 and 2 * letters > len(foreign) and (is_of_alphabet or is_foreign)


def _shift_jis(pairs: bytes) -> bytes:
    """Shift JIS bytes of positions in JIS X 0208's table."""
    made = bytearray()
    for row, cell in zip(pairs[::2], pairs[1::2], strict=False):
        lead = ((row - 0x21) >> 1) + 0x81
        trail = cell + (0x7E if row % 2 == 0 else 0x20 if cell >= 0x60 else 0x1F)
        made += bytes([lead + 0x40 * (lead > 0x9F), trail])
    return bytes(made) + pairs[len(pairs) & ~1 :]


def _decode_microsoft(line: bytes, errors: str) -> str:
    first, *parts = _MODES.split(line)
    texts = [first.decode("ascii", errors)]
    for mode, content in zip(parts[::2], parts[1::2], strict=True):
        if mode == b"$(D":
            text = (b"\x1b$(D" + content).decode("iso2022_jp_1", errors)
        elif mode.startswith(b"$"):
            spaces = len(content) - len(content.lstrip(b" \r\n"))  # at the end of a line that does not end the mode
            body = content.rstrip(b"\r\n")
            text = _shift_jis(body[spaces:]).decode("cp932", errors) + content[len(body) :].decode()
        elif mode == b"(I":
            text = bytes(byte | 0x80 if byte > 0x20 else byte for byte in content).decode("cp932", errors)
        else:
            text = content.decode("ascii", errors)
        texts.append(text)
    return "".join(texts)


def _decode(data: Any, errors: str = "strict") -> tuple[str, int]:
    try:
        return bytes(data).decode("iso2022_jp_ext"), len(data)
    except UnicodeDecodeError:
        pass
    texts = []
    for line in bytes(data).splitlines(keepends=True):
        try:
            texts.append(line.decode("iso2022_jp_ext"))
        except UnicodeDecodeError:
            texts.append(_decode_microsoft(line, errors))
    return "".join(texts), len(data)


class _IncrementalDecoder(codecs.BufferedIncrementalDecoder):
    """Decodes whole lines; at each line's end the state is ASCII again."""

    def _buffer_decode(self, data: Any, errors: str, final: bool) -> tuple[str, int]:
        end = len(data) if final else bytes(data).rfind(b"\n") + 1
        return _decode(data[:end], errors)


def _search(name: str) -> codecs.CodecInfo | None:
    if name != "iso2022_jp_ms":
        return None
    encode = codecs.lookup("iso2022_jp_ext").encode
    return codecs.CodecInfo(encode, _decode, incrementaldecoder=_IncrementalDecoder, name=name)


codecs.register(_search)
