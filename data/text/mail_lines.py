"""Selects the lines of a mail that its sender wrote: no quotations, signature, or headers of forwarded mails."""

import re
from collections.abc import Sequence
from itertools import count

_BELOW = re.compile(r"--|-{3,} ?[^-]{3,40} ?-{3,}|_{10,}")  # the line above a signature, an original or a list's footer
_DATE, _MOST_INTRODUCTION = re.compile(r"\d{4}|\d:\d\d"), 3  # lines before a quotation that say who wrote it, and when
_SENDER = """from von de da van fra från lähettäjä od feladó kimden mittente от від από מאת من 보낸사람 发件人 寄件者
差出人""".split()
_OTHER_HEADERS = """sent date to cc bcc subject reply-to gesendet datum an kopie betreff envoyé à objet enviado
fecha data para asunto assunto inviato a oggetto verzonden aan onderwerp sendt til emne dato skickat till ämne
kopia lähetetty vastaanottaja aihe päiväys wysłano do temat odesláno komu předmět dátum címzett tárgy gönderildi
kime konu tarih отправлено кому тема дата копия надіслано στάλθηκε προς θέμα ημερομηνία נשלח אל נושא תאריך تاريخ
إلى الموضوع 보낸날짜 받는사람 제목 날짜 发送时间 收件人 主题 日期 抄送 收件者 主旨 宛先 件名 日時 送信日時""".split()
_HEADER = re.compile(  # as mail programs write and translate them
    rf"[*\s]*(?:(?P<sender>{'|'.join(_SENDER)})|{'|'.join(_OTHER_HEADERS)})\s?\*?\s?[:\uff1a]\*?(?:\s.*|)",
    re.IGNORECASE,
)
_LEAST_HEADERS = 3


def own_text(lines: Sequence[str]) -> str:
    """The lines without quotations and their introductions ("On Monday X wrote:"), signatures and headers.

    Headers of another mail, below own text, begin what was forwarded or answered, and end the own text. If there is no
    text above them, the mail below them is what was sent, and they alone are left out.
    """
    own_lines: list[str] = []
    headers = 0  # lines that still belong to headers
    lines = [line.strip() for line in lines]
    for place, line in enumerate(lines):
        if headers:
            headers -= 1
            continue
        headers = _header_lines(lines, place)
        if headers and any(own_lines):
            break
        if headers:
            headers -= 1
        elif line.startswith(">"):
            while own_lines and not own_lines[-1]:
                own_lines.pop()
            if own_lines and own_lines[-1].endswith((":", "\uff1a")):
                above = [own_lines[-length] for length in range(1, min(_MOST_INTRODUCTION, len(own_lines)) + 1)]
                del own_lines[-next((length for length, one in enumerate(above, start=1) if _DATE.search(one)), 1) :]
        elif not _BELOW.fullmatch(line):
            own_lines.append(line)
        elif any(own_lines):
            break
    return "\n".join(own_lines).strip()


def _header_lines(lines: Sequence[str], start: int) -> int:
    """Number of lines from there on that are mail headers, blank lines included; 0 for other text.

    The first or second of them names the sender. A long list of receivers goes on in the next line, with a comma or an
    address.
    """
    if not _HEADER.fullmatch(lines[start]):
        return 0
    names, num_headers, end = False, 0, start
    for place in count(start):
        line = lines[place] if place < len(lines) else "."
        header = _HEADER.fullmatch(line)
        if header:
            num_headers += 1
            names |= header["sender"] is not None and num_headers <= 2
            end = place + 1
        elif line and not (place == end and re.search(r"[;,@]", lines[place - 1]) and "@" in line):
            break
        elif line:
            end = place + 1
    return (end - start) * (names and num_headers >= _LEAST_HEADERS)
