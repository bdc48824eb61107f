"""Mail: its headers, its text, and the names of its attachments."""

from __future__ import annotations

import pytest

from binocle.core.errors import UnreadableError
from binocle.retriever.readers import UnsupportedError, read
from binocle.retriever.readers.containers.mail import attachments

from ..sample_files import MAIL, outline, reading


def test_mail_is_its_headers_its_plain_text_and_the_names_of_its_attachments() -> None:
    document = reading(MAIL, "a.eml")
    assert document.title == "Grüße"
    assert document.metadata["attachments"] == ["plan.pdf"]
    assert document.text == (
        "Subject: Grüße\nFrom: Ada <ada@example.com>\nTo: bob@example.com\nDate: Mon, 1 Jan 2024 10:00:00 +0000\n\n"
        "Schöne Grüße\n\nAttachments: plan.pdf"
    )
    assert (
        reading("Subject: x\nContent-Type: text/html\n\n<p>only <b>html</b>", "a.eml").text == "Subject: x\n\nonly html"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_unencoded_letters_in_the_headers_of_a_mail_are_read(encoding: str) -> None:
    document = reading("Subject: Grüße aus Köln\nFrom: Jürgen <j@example.com>\n\nx\n".encode(encoding), "a.eml")
    assert document.text == "Subject: Grüße aus Köln\nFrom: Jürgen <j@example.com>\n\nx"


def test_mail_in_latin_1_is_read_as_windows_1252() -> None:
    head = b"Subject: =?iso-8859-1?q?=93a=94?=\nContent-Type: text/plain; charset=iso-8859-1\n\n"
    assert reading(head + b"don\x92t wait\x85 5 \x80\n", "a.eml").text == "Subject: “a”\n\ndon’t wait… 5 €"


@pytest.mark.parametrize("charset", ["a\0b", "undefined", "rot13", "unicode_escape", "us-ascii", "nonsense"])
def test_mail_in_an_unknown_charset_is_read_by_its_bytes(charset: str) -> None:
    mail = f'Subject: x\nContent-Type: text/plain; charset="{charset}"\n\nGrüße C:\\new\n'
    assert reading(mail, "a.eml").text == "Subject: x\n\nGrüße C:\\new"


def test_a_mailbox_is_its_mails_each_under_its_subject() -> None:
    coded = "Subject: Ducks\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\nRHVja3Mgc3dpbS4=\n"
    page = "Subject: Geese\nContent-Type: text/html\n\n<title>x</title><h1>Loud</h1><p>Geese honk.</p>\n\nFrom here on\nno mail.\n"
    plain = "Subject: Swans\n\nSwans are white.\n"
    mailbox = "".join(f"From ada@example.com Mon Jan  1 10:00:00 2024\n{mail}\n" for mail in (coded, page, plain))
    assert reading(mailbox, "Archive.mbox").title == ""
    for data in (mailbox, mailbox.replace("\n", "\r\n")):
        assert [(heading, text) for heading, _, _, text in outline(reading(data, "Archive.mbox"))] == [
            (("Ducks",), "Subject: Ducks\n\nDucks swim."),
            (("Geese",), "Subject: Geese"),
            (("Geese", "Loud"), "Loud\n\nGeese honk.\n\nFrom here on no mail."),
            (("Swans",), "Subject: Swans\n\nSwans are white."),
        ]
    assert reading(plain, "a.mbox").text == "Subject: Swans\n\nSwans are white."


@pytest.mark.parametrize("name", ["Inbox", "Local Folders/Archives.sbd/v1.2 list", "mail.txt"])
def test_a_mailbox_without_an_ending_is_recognized_by_its_first_lines(name: str) -> None:
    mail = "From - Mon Jan 01 10:00:00 2024\r\nX-Mozilla-Status: 0001\r\nSubject: Swans\r\n\r\nWhite.\r\n\r\n"
    document = reading(mail + mail.replace("Swans", "Geese"), name)
    assert (document.format, [part.heading for part in document.parts]) == ("mailbox", [("Swans",), ("Geese",)])
    for date in "Fri Jul  8 12:08:34 2011", "Fri Jul 8 12:08 2011 remote from x", "Fri, 08 Jul 2011 12:08:34 +0000":
        assert reading(f"From MAILER-DAEMON {date}\nSubject: Swans\n\nWhite.\n", name).format == "mailbox"
    for agenda in (
        "From here in 2024\non: all is well",
        "From 09:00 to 10:30 on Monday: opening in the great hall\nSpeaker: Ada Lovelace\nRoom: 12\n\nFrom 11:00: lunch",
        "From now on we meet on Mon at 10:30 each week\nNote: bring a pen",
    ):
        document = reading(agenda, name)
        assert (document.format, document.text) == ("text", agenda)
    with pytest.raises(UnsupportedError):
        reading("// <!-- <mdb:mork:z v='1.4'/> -->", "Inbox.msf")


def test_an_escaped_from_line_in_a_mailbox_is_unescaped():
    box = b"From a Sat\nSubject: Swans\n\nGo home.\n>From here on it is dark.\n>>From me\n> From you\n"
    assert reading(box, "a.mbox").text.endswith("Go home.\nFrom here on it is dark.\n>From me\n> From you")


def test_the_page_of_a_saved_web_page_and_of_an_invitation_is_read() -> None:
    def multipart(kind: str, part: str) -> str:
        page = f"Content-Type: multipart/{kind}; boundary=X\n\n--X\nContent-Type: text/html\n\n<p>said</p>\n"
        return f"Subject: x\nMIME-Version: 1.0\n{page}--X\nContent-Type: {part}\n\nBEGIN {{}}\n--X--\n"

    for mail in multipart("related", "text/css"), multipart("alternative", "text/x-amp-html"):
        assert reading(mail, "a.mht").text == "Subject: x\n\nsaid"
    assert reading(multipart("alternative", "text/calendar"), "a.eml").text.endswith("\n\nAttachments: unnamed.ics")


def test_an_invitation_and_a_contact_without_a_name_are_documents_of_their_own() -> None:
    calendar = (
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Budget\nLOCATION:Room 4\\, se\n cond floor\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    parts = "".join(
        f"--X\nContent-Type: {kind}; charset=utf-8\n\n{text}\n"
        for kind, text in (
            ("text/plain", "You are invited."),
            ("text/html", "<p>You are invited."),
            ("text/calendar; method=REQUEST", calendar),
            ("text/x-vcard", "BEGIN:VCARD\nFN:Ann\nEND:VCARD"),
        )
    )
    mail = f"Subject: x\nContent-Type: multipart/alternative; boundary=X\n\n{parts}--X--\n"
    assert reading(mail, "a.eml").text == "Subject: x\n\nYou are invited.\n\nAttachments: unnamed.ics, unnamed.vcf"
    invitation, contact = attachments(mail.encode(), "a.eml")
    assert (invitation.name, contact.name) == ("unnamed.ics", "unnamed.vcf")
    document = reading(invitation.read(), invitation.name)
    assert "LOCATION:Room 4, second floor" in document.text
    assert "Budget" in str(document.parts)


def test_a_text_part_with_a_file_name_is_read_unless_it_is_an_attachment() -> None:
    parts = "".join(
        f"--X\nContent-Type: {kind}; name={name}\n{disposition}\n{name} said\n"
        for kind, name, disposition in (
            ("text/plain", "body.txt", ""),
            ("text/x-patch", "a.patch", "Content-Disposition: inline\n"),
            ("text/plain", "b.txt", "Content-Disposition: attachment\n"),
            ("text/calendar", "c.ics", ""),
        )
    )
    document = reading(f"Subject: x\nContent-Type: multipart/mixed; boundary=X\n\n{parts}--X--\n", "a.eml")
    assert document.text == "Subject: x\n\nbody.txt said\n\na.patch said\n\nAttachments: b.txt, c.ics"


def test_mail_nested_without_end_is_refused() -> None:
    nested = "".join(f"Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n" for i in range(10_000))
    with pytest.raises(UnreadableError, match="nested"):
        read(nested.encode(), "a.eml")
