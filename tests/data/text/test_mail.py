"""Mails become what their senders wrote, one document each; threads are groups. Malformed mails end no import."""

import base64
import json
import mailbox
import random
from collections import Counter
from email.message import EmailMessage
from pathlib import Path

import pytest

from data import import_text
from data.text.mail import read_mails
from data.text.readers import Reading
from data.text.survey import survey

ANSWER = """Danke, das ging.

On Mon, Jan 5, 2026 at 10:00 AM Ann Very Long
<ann@x.org> wrote:

> Guten Tag,
>> alt

Und ein Satz danach.
--
Firma
"""
HTML = """<html><head><style>p {}</style></head><body><p>An HTML mail.</p><div>On 5 Jan 2026, X wrote:</div>
<blockquote>Old. <blockquote>Older.</blockquote></blockquote></body></html>"""


def mail(subject: str, body: str, number: int, root: int = 0, subtype: str = "plain", **content) -> EmailMessage:
    made = EmailMessage()
    made["From"], made["Subject"], made["Message-ID"] = "Ann <ann@x.org>", subject, f"<{number}@x>"
    if root:
        made["References"] = f"<{root}@x> <{number - 1}@x>"
    made.set_content(body, subtype=subtype, **content)
    return made


def mails() -> list[EmailMessage]:
    answer = mail("Re: AW: Drucker – Büro", ANSWER, 2, root=1, charset="utf-8", cte="base64")
    answer.add_attachment(b"\x89PNG" * 999, maintype="image", subtype="png", filename="a.png")
    answer.add_attachment("An attached text.", filename="n.txt")
    both = mail(
        "Frage", "Ja, für 5 €.\n\n-----Ursprüngliche Nachricht-----\nVon: Bob\n", 3, charset="cp1252", cte="8bit"
    )
    both.add_alternative("<p>The same.</p>", subtype="html")
    return [
        mail("Drucker – Büro", "Er druckt nicht.\nFrom here on.\n", 1),
        answer,
        both,
        mail("Only a quotation", "> Nothing new.\n", 4),
        mail("Seite", HTML, 5, subtype="html"),
    ]


TEXTS = [
    "Drucker – Büro Er druckt nicht. From here on.",
    "Drucker – Büro Danke, das ging. Und ein Satz danach.",
    "Frage Ja, für 5 €.",
    "",
    "Seite An HTML mail.",
]


def write_box(path: Path) -> Path:
    box = mailbox.mbox(path)
    for one in mails():
        box.add(one)
    box.close()
    return path


def imported(folder: Path, output: Path, *flags: str) -> tuple[dict, dict[str, str]]:
    import_text.main(["--input", str(folder), "--output-dir", str(output), *flags])
    lines = [line for path in sorted(output.rglob("source/en/*.txt")) for line in path.read_text().splitlines()]
    return json.loads((output / "report.json").read_text()), dict(line.split(" ", 1) for line in lines)


@pytest.mark.parametrize("name", ["a.mbox", "inbox", "support.mbox.txt"])
def test_an_mbox_gives_a_document_for_each_mail(tmp_path, name):
    (tmp_path / "in").mkdir()
    write_box(tmp_path / "in" / name)
    report, found = imported(tmp_path / "in", tmp_path / "out")
    stem = name.removesuffix(".txt").removesuffix(".mbox") if name == "a.mbox" else name.removesuffix(".txt")
    assert found == {f"{stem}:{number}": text for number, text in enumerate(TEXTS, start=1) if text}
    assert report["counts"]["attachments of mails, not read"] == 2 and report["counts"]["dropped: empty"] == 1


def test_mails_in_files_and_folders_of_a_maildir_are_read(tmp_path):
    (tmp_path / "one.eml").write_bytes(bytes(mails()[1]))
    box = mailbox.Maildir(tmp_path / "Mail")
    box.add(mails()[0])
    box.add_folder("Sent").add(mails()[2])
    (tmp_path / "Mail/tmp/1.host:2,").write_text("Not yet.")
    report, found = imported(tmp_path, tmp_path / "out")
    assert sorted(found.values()) == sorted(TEXTS[:3])
    read = survey([tmp_path / "Mail", tmp_path / "one.eml"], Reading())
    assert read.files == {"eml": 3} and read.groups == {"<1@x>", "<3@x>"}


def test_a_thread_is_held_out_or_trained_on_as_a_whole(tmp_path):
    box = mailbox.mbox(tmp_path / "a.mbox")
    for thread in range(40):
        root = 10 * thread + 1
        for number in range(root, root + 4):
            text = f"Mail {number} of thread {thread}x. " + "It has some more words. " * (60 if number % 10 == 2 else 2)
            box.add(mail("Some words", text, number, root=root if number > root else 0))
    box.close()
    report, _ = imported(tmp_path / "a.mbox", tmp_path / "out", "--held-out-fraction", "0.2")
    parts = [
        {
            word
            for path in (tmp_path / "out" / part).rglob("*.txt")
            for word in path.read_text().split()
            if word[-2:] == "x."
        }
        for part in ("train", "held_out")
    ]
    assert report["counts"]["groups"] == 40 == sum(map(len, parts)) and not parts[0] & parts[1]
    assert 0.1 < report["parts"]["held_out"]["share"] < 0.3


def nested(depth: int) -> bytes:
    heads = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (at, at) for at in range(depth))
    return b"Subject: x\n" + heads + b"Content-Type: text/plain\n\nHello there.\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (nested(10), "x\nHello there."),
        (nested(50), ""),
        (nested(5000), None),
        (b"Content-Type: message/rfc822\n\n" * 5000, None),
        (b"Subject: =?utf-8?b?A?= =?none?q?a?=\n\nHello.", "Hello."),
        (b"Subject: " + b"=?utf-8?q?" * 9 + b"\n\nHello.", "=?utf-8?q?utf-8?q?"),
        (b"Content-Type: text/plain; charset=rot13\n\nHello.", "Hello."),
        (b"Content-Type: text/plain; charset=iso-2022-jp\n\n" + "川。".encode("iso-2022-jp"), "川。"),
        (b"Content-Type: text/plain; charset=iso-8859-1\n\n5 \x80 \xe9.", "5 € é."),
        (b"Content-Type: text/plain; charset=us-ascii\n\nD\xc3\xa9j\xc3\xa0 vu.", "Déjà vu."),
        (b"\n-----BEGIN PGP SIGNED MESSAGE-----\n\nSigned.\n-----BEGIN PGP SIGNATURE-----\niQ\n", "Signed."),
        (b"\n\nYes.\n\nI read this:\n> A word.\n", "Yes."),
        (b"", ""),
    ],
)
def test_malformed_and_unusual_mails_are_read_or_named(content, text):
    (row,) = list(read_mails([content], "eml", "auto", "en", Counter())) or [None]
    if text is None:
        assert row.values is None and row.problem.startswith("is no mail that can be read (RecursionError")
    else:
        assert (row is None and text == "") or row.values["text"].startswith(text)


def test_mails_of_any_bytes_are_rows():
    rng, content = random.Random(1), b"".join(map(bytes, mails()))
    for _ in range(200):
        changed = bytearray(content)
        for _ in range(20):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        for kind in ("mbox", "eml"):
            rows = list(read_mails([bytes(changed)], kind, "auto", "en", Counter()))
            assert rows and all(row.problem or isinstance(row.values["text"], str) for row in rows)


def test_documents_of_base64_are_dropped_and_not_offered_as_text(tmp_path, capsys):
    encoded = base64.encodebytes(random.Random(1).randbytes(3000)).decode()
    (tmp_path / "a.txt").write_text("A picture:\n" + encoded)
    (tmp_path / "b.txt").write_text("A text of many words is here. " * 200 + encoded)
    (tmp_path / "c.b64").write_text(encoded)
    (tmp_path / "d.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "e.css").write_text("p { color: red }\n")
    (tmp_path / "f.bin").write_bytes(bytes(range(256)))
    (tmp_path / "g.words").write_text("Words.\n")
    report, found = imported(tmp_path, tmp_path / "out")
    assert list(found) == ["b"] and report["counts"]["dropped: mostly base64"] == 1
    reasons = dict(line.removeprefix(f"{tmp_path}/").split(": ", 1) for line in report["left out"])
    for name in ("c.b64", "d.png", "e.css", "f.bin"):
        assert reasons[name] == f"is of no format that is read ({name[1:]})"
    assert reasons["g.words"] == "is of no format that is read (.words); if it is text, name it *.txt"
    assert reasons["a"] == "is mostly base64"
    assert "  is mostly base64: a" in list(survey([tmp_path], Reading()).lines())


LOG = """2026-11-26 12:01:13,123 INFO server: started on port 80
[2026-11-26T12:01:13Z] [error] disk is full
Nov 26 12:01:13 host sshd[12]: login ok
[   12.345678] usb 1-1: new device
26/Nov/2026:12:01:13 +0000 GET /x
ERROR: 12 things
The 5 of them. Errors in May 5 cases.
"""


def test_stamps_of_log_lines_are_removed_if_asked_for(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.log").write_text(LOG)
    _, found = imported(tmp_path / "in", tmp_path / "1")
    assert found["a"] == " ".join(LOG.split())
    _, found = imported(tmp_path / "in", tmp_path / "2", "--strip-log-stamps", "--document-separator", "line")
    assert list(found.values()) == [
        "server: started on port 80",
        "disk is full",
        "host sshd[12]: login ok",
        "usb 1-1: new device",
        "GET /x",
        "12 things",
        "The 5 of them. Errors in May 5 cases.",
    ]


def test_source_code_keeps_its_lines_which_are_sentences(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.py").write_text("import os\n\n\ndef f(x):\n    return x + 1. if x else 2\n")
    (tmp_path / "in/b.txt").write_text("Text.")
    report, found = imported(tmp_path / "in", tmp_path / "1")
    assert list(found) == ["b"]
    assert report["left out"][0].endswith("a.py: is source code (.py); pass --source-code to read it")
    for folder, flags in (("in", ["--source-code"]), ("in/a.py", [])):
        _, found = imported(tmp_path / folder, tmp_path / f"out{folder[-1]}", *flags)
        line = next(line for line in (tmp_path / f"out{folder[-1]}").rglob("0.txt"))
        code = "import os\u2028def f(x):\u2028return x + 1. if x else 2"
        assert code in line.read_text()


def only_mail(content: bytes | EmailMessage, kind: str = "eml") -> str:
    (row,) = read_mails([bytes(content)], kind, "auto", "en", Counter())
    return " ".join(row.values["text"].split()) if row.values else row.problem


PLAIN = b"Content-Type: text/plain; charset=%s\n\n%s\n"


@pytest.mark.parametrize(
    ("subject", "charset", "body"),
    [
        ("Grüße aus Köln", "utf-8", "Ja, für 5 €."),
        ("Ответ на вопрос", "koi8-r", "Это так."),
        ("会议记录", "gb2312", "镜和镕。"),
        ("会議の①", "iso-2022-jp", "記録です。"),
    ],
)
def test_a_raw_subject_is_utf8_or_in_the_encoding_of_the_text(subject, charset, body):
    codec = {"gb2312": "gbk", "iso-2022-jp": "iso2022_jp_2004"}.get(charset, charset)
    if charset == "iso-2022-jp":  # as Microsoft writes the circled one
        raw = subject[:-1].encode("iso-2022-jp")[:-3] + b"-!\x1b(B"
    else:
        raw = subject.encode(codec)
    for bytes_of_subject in (raw, subject.encode()):
        content = b"Subject: Re: " + bytes_of_subject + b"\n" + PLAIN % (charset.encode(), body.encode(codec))
        assert only_mail(content) == f"{subject} {body}"


@pytest.mark.parametrize(
    ("label", "text", "codec"),
    [
        ("windows-874", "สวัสดีครับ", "cp874"),
        ("x-mac-cyrillic", "Привет", "mac-cyrillic"),
        ("ks_c_5601-1987", "뷁이다", "cp949"),
    ],
)
def test_the_charsets_of_parts_and_subjects_are_names_of_the_web(label, text, codec):
    word = f"=?{label}?b?{base64.b64encode(text.encode(codec)).decode()}?="
    assert only_mail(f"Subject: {word}\n".encode() + PLAIN % (label.encode(), text.encode(codec))) == f"{text} {text}"


def test_the_first_alternative_that_has_text_is_read():
    made = mail("News", " \n", 1)
    made.add_alternative("<p>The text in <u>H</u>TML.</p>", subtype="html")
    assert only_mail(made) == "News The text in HTML."
    page = b"Content-Type: text/html\n\n<meta charset=euc-kr><p>" + "회의".encode("euc-kr")
    assert only_mail(b"Subject: a\n" + page) == "a 회의"


def forward(*inner: EmailMessage, kind: str = "mixed", own: str = "") -> bytes:
    parts = [f"Content-Type: text/plain\n\n{own}\n".encode()] if own else []
    parts += [b"Content-Type: message/rfc822\n\n" + bytes(one) for one in inner]
    body = b"".join(b"--xx\n" + part + b"\n" for part in parts)
    return f"Subject: Fwd: Look\nContent-Type: multipart/{kind}; boundary=xx\n\n".encode() + body + b"--xx--\n"


def test_forwarded_mails_and_digests_are_read_as_mails():
    first, second = mail("Pump", "It leaks.\n\n> old\n--\nAnn\n", 7), mail("Re: Tank", "It is full.\n", 8)
    assert only_mail(forward(first, second, own="See below.")) == "Look See below. Pump It leaks. Tank It is full."
    assert only_mail(forward(first)) == "Pump It leaks."
    digest = forward(first, second, kind="digest")
    assert only_mail(digest.replace(b"Content-Type: message/rfc822\n", b"")) == "Pump It leaks. Tank It is full."
    assert only_mail(forward(first, kind="report", own="It was not delivered.")) == "Look It was not delivered."
    deep = mail("Deepest", "Words.", 9)
    for _ in range(30):
        outer = EmailMessage()
        outer.add_attachment(deep)
        deep = outer
    assert only_mail(deep) == ""  # deeper than any real mail


HEADERS = {
    "marked": (
        "---------- Forwarded message ---------\nFrom: C <c@x.org>\nDate: Mon, Mar 3, 2025\nSubject: Pump\n"
        "To: <a@x.org>\n"
    ),
    "outlook": (
        "________________________________\nVon: Ann Lee\nGesendet: Montag, 3. März 2025 10:00\n"
        "An: Bob; Carl;\n d@x.org\nBetreff: Pumpe\n"
    ),
    "unmarked": "De : Ann <a@x.org>\nEnvoyé : lundi 3 mars 2025\nÀ : Bob\nObjet : Pompe\n",
    "russian": "От: Ann <a@x.org>\nДата: 3.3.2025\nКому: Bob\nТема: x\n",
    "bold": "Begin forwarded message:\n\n*From:* C <c@x.org>\n\n*Sent:* Monday\n\n*To:* Bob\n",
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_headers_of_an_inline_forward_are_left_out(name):
    above = "Begin forwarded message: " if name == "bold" else ""
    assert only_mail(mail("Fwd: Pump", f"{HEADERS[name]}\nIt leaks.\n", 1, charset="utf-8")) in (
        f"Pump {above}It leaks.",
        "Pump Begin forwarded message:",
    )
    own = only_mail(mail("Fwd: Pump", f"Look here.\n\n{HEADERS[name]}\nIt leaks.\n", 1, charset="utf-8"))
    assert own.removesuffix(" Begin forwarded message:") == "Pump Look here."
    rows = "".join(
        f"<div><b>{line.partition(':')[0]}:</b>{line.partition(':')[2]}</div>"
        for line in HEADERS[name].splitlines()[-3:]
    )
    assert "a@x.org" not in only_mail(mail("Fwd: Pump", rows + "<p>It leaks.", 1, subtype="html"))


def test_lines_that_only_look_like_headers_stay():
    for text in (
        "From: the hall\nWe saw a leak.\nTo: the office\nDate: Monday\nName: Ann\nPhone: 12",
        "Subject: a pump\nDate: Monday\nTo: the office\nIt leaks.",  # nobody sent it
        "From: the hall\nTo: the office\nIt leaks.",
    ):
        assert only_mail(mail("Pump", text, 1)) == "Pump " + " ".join(text.split())


def test_a_line_of_prose_that_begins_with_from_starts_no_mail(tmp_path):
    text = "One.\n\nFrom the beginning in 2024 we met at 10:30 each Monday 2024.\n\nFrom May 2 10:00 on, 2024."
    box = "".join(
        f"From {line}\nSubject: S\n\n{text}\n\n"
        for line in (
            "ann@x.org Mon Jan  5 10:00:00 2026",
            "- Mon, 05 Jan 10:00:00 2026",
            "MAILER-DAEMON Thu Feb 26 10:00:00 +0100 2026",
            "123@xxx Mon Jan 05 10:00:00 +0000 2026",
        )
    )
    rows = list(read_mails([box.encode()], "mbox", "auto", "en", Counter()))
    assert [row.values["text"] for row in rows] == [f"S\n{text}"] * 4


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        (
            "Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable",
            "bro=  \nken and wh=\nole =3D.",
            "broken and whole =.",
        ),
        ("Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable", "bro= \t\r\nken", "broken"),
        (
            "Content-Type: text/plain; format=flowed; delsp=yes",
            "spl \nit in  \ntwo \n words\nend\n-- \nAnn",
            "split in twowords end",
        ),
        ("Content-Type: text/plain; format=flowed", "not \nsplit", "not split"),
        (
            "Content-Type: application/ms-tnef; name=winmail.dat\nContent-Transfer-Encoding: base64",
            "eJ8+",
            "holds its text in winmail.dat",
        ),
        ("Content-Type: application/pkcs7-mime; name=smime.p7m", "MIAG", "is encrypted or signed in one piece"),
    ],
)
def test_words_that_the_format_of_a_mail_cuts_are_whole(head, body, text):
    assert only_mail(f"{head}\n\n{body}\n".encode()).startswith(text)


@pytest.mark.parametrize("saved", ["utf-8-sig", "utf-16", "blank lines"])
def test_a_mail_that_was_saved_as_text_keeps_its_headers_out(saved):
    text = "Subject: Gr\u00fc\u00dfe\nFrom: a@x.org\nContent-Type: text/plain; charset=utf-8\n\nJa, 5 \u20ac.\n"
    content = f"\n\n{text}".encode() if saved == "blank lines" else text.encode(saved)
    assert only_mail(content) == "Gr\u00fc\u00dfe Ja, 5 \u20ac."
    assert only_mail(b"\n\nNote: this is text.\n") == "Note: this is text."


def test_the_index_files_of_a_maildir_are_no_texts(tmp_path):
    mailbox.Maildir(tmp_path / "Mail").add(mails()[0])
    names = ("dovecot-uidlist", "dovecot.index.log", "subscriptions", "maildirsize", "courierimapuiddb")
    for name in names:
        (tmp_path / "Mail" / name).write_text("3 V1 N2 words of an index\n")
    (tmp_path / "Mail/notes.txt").write_text("Some notes.")
    report, found = imported(tmp_path, tmp_path / "out")
    assert sorted(found.values()) == sorted([TEXTS[0], "Some notes."])
    assert sum("is an index of a mail program" in line for line in report["left out"]) == len(names)


@pytest.mark.parametrize("charset", ["koi8-r", "iso-8859-2", "iso-2022-jp"])
def test_a_mail_that_an_editor_saved_as_utf_16_is_read_whatever_its_parts_say(charset):
    """The editor has decoded the 8-bit parts; 7-bit parts are still in the charset that they name."""
    body = {"koi8-r": "Привет", "iso-2022-jp": "会議".encode("iso-2022-jp").decode("ascii")}.get(charset, "Žluťoučký")
    headers = f"From: a@b.org\nSubject: Řeč\nContent-Type: text/plain; charset={charset}\n"
    coded = base64.b64encode("会議 Žß"[: 2 if "2022" in charset else None].encode(charset, "ignore")).decode()
    for rest, expected in (
        (f"\n{body}\n", "会議" if "2022" in charset else body),
        (f"Content-Transfer-Encoding: base64\n\n{coded}\n", base64.b64decode(coded).decode(charset).strip()),
    ):
        rows = [*read_mails([(headers + rest).encode("utf-16")], "eml", "auto", "en", counts := Counter())]
        assert [row.values["text"].partition("\n")[2] for row in rows if expected] == [expected] * bool(expected)
        assert not counts["undecodable bytes"]


def test_a_mail_without_a_suffix_is_read_as_one_and_an_unfinished_one_not(tmp_path, capsys):
    """An earlier version took the headers of mails named `1` or `a.txt` into the text, and the files of a Maildir's
    `tmp`."""
    content = mails()[0].as_bytes()
    for name in ("1", "2.txt"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "letter.txt").write_text("From: the beginning\nSubject: a letter\n\nNo mail.\n")
    box = mailbox.Maildir(tmp_path / "Mail")
    box.add(mails()[0])
    (tmp_path / "Mail" / "tmp" / "3").write_bytes(content)
    import_text.main(["--input", str(tmp_path), "--output-dir", str(tmp_path / "out")])
    assert "Mail/tmp/3: is in the folder of a Maildir for mails that are not complete" in capsys.readouterr().out
    texts = [line.partition(" ")[2] for line in (tmp_path / "out/source/en/0.txt").read_text().splitlines()]
    assert sorted(texts) == [
        *["Drucker – Büro Er druckt nicht. From here on."] * 3,
        "From: the beginning Subject: a letter No mail.",
    ]


def test_a_charset_with_a_language_is_read():
    """RFC 2231 allows it; an earlier version could not read such a mail."""
    head = "Subject: s\nContent-Type: text/plain; charset*=us-ascii'en'windows-1251\n\n"
    content = head.encode() + "Привет, мир".encode("cp1251")
    (row,) = read_mails([content], "eml", "auto", "en", Counter())
    assert row.values is not None and row.values["text"] == "s\nПривет, мир"
