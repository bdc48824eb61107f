"""Office files from before 2007 and messages of Outlook: compound files, made here or by LibreOffice."""

from __future__ import annotations

import base64
import lzma
import random
import struct

import pytest

from binocle.core.errors import BinocleError, UnreadableError, UnsupportedError
from binocle.retriever.readers import read
from binocle.retriever.readers.containers.members import list_members
from binocle.retriever.readers.office.binary.compound import CompoundFile
from binocle.retriever.readers.office.binary.msg import unpack_rtf

# A document that LibreOffice 7.4 wrote as DOC, packed.
DOC = lzma.decompress(base64.b85decode(
    "T>t<81poj4|NsC0{{Uz+z8r=ycVP6Sgek(_9Cjyy@{xwzh{`9r^mC8AS~UZg_o+}u*DSFS^|eM^(@b02n&*i=w^BRJm(OHp&^U*d"
    "Ub<dooC*p(-9e;&XFPtWv$w|vUorily_R}7zO!8!{McknsqW?^CL#ngK%k?-3lRvT+oe9Ao(lq|Y>MziK!OJI1$L=>hRT<WR<Fkq"
    "f}wQFLM;;h9m6R)u%&PAW6Zi$2hH$F2CTb1TVJ%ubCn=TU9&5N>K|3L-Hd{E0*R-8GExpuC!2dV8FybJG<G0`<GJ*fK_ImLKD9Db"
    "kup%l2fH*1QR(dS>QGkR*Hsx6ZXSy?LpS4Gcc|u!K&C8{G_J9?grvIJ5wTP^jWclAet^!k3SyGlqR@4bDT4}SvA_;Sh%hNh$%AvX"
    "fn;T1E2Ct#?rZUP-7ymy5N&N~t0n{!A7-_-WEq+=Xhkk-bdgBy#ypgWhRS@0Y>;+-I<qpwy^T7^Hj1utvpW3qa<Kc)6Zy?AYed#P"
    "+b^_!trBj*(IUA+F^RWq+DNG;_gsLN8cUS1%pybGKJ(~=mKlYdNDJos0sm3ZxEUp<J%lkAl|%-3wQP_q<eq_9=bK;_>Tw_v()4&9"
    "@VGG*e>CKH1vQLkFfxP%0cSCXt`|ZZiySxQMJA_Yg&uA{cFV}B#={GU|KsEzCclFmD`i>NKK>-KwRC&#ud-Nbm-!T-On5Q0{WyZh"
    "0{(O4=BS4)*oonjnw0q)vA`>LM<^6|yQMpYcjI#tNx|wAA_=AHuP^)eK)P`IrIegY@q(X!QtYJ<L&1x($RP`QVgNTa#v5Zp-^U8!"
    "JHH65lDB4Q_??8m^4H`VU`FLX$`RtzR=Ew;wFlcI=O#s?V1zvFttuXfJNvQ~^_6zPd!cY+Y#9oC0ZyGG0zA!0O<N9f9U|oFvjqHf"
    "K2g%7|0>Qx`hY->s37VI%iqU+vR0XYyLC;AiS);$$-?u4_BFZm)9szUu8BqK_r*;LGxl@_S4mn}cc-+{lX-Xvw_f*gO<vnrJ)q?O"
    "^!=&Q9L;%r=+rq$jt0MRLdzWQ=ad_SV_<xwm8$|v;r9t?E(xUaeRb<MRgubQwS~fKf7ih7b=Jp+peya8a1xi1>!=|6<3hD!VJnXQ"
    "W=;-jNc(e6+jTCV8>RE>iM5<xe>coqJ3<*3oImG2qvF6s<wTJoqwmBM`w#*{)J|^>hRCV7@zz}7ov<hVT$AJ+5JgO8`|Rn^bQq+9"
    "Mu~Lzx0}E8-z;&^ec^&Hx_6GBBJr*Ni75(4)4A_f5+%R3N9Q^nk)imFCiE~ef({ch7_Y+A?}pL_J`K$$@%frgA`)mpZ`sfg<}s|a"
    "R?~Jjv(}rg<icF#qnhh4@qg5FcTOGzeKay>Pu9ZE+sz#p>s_ZwR<aRXC`hBAH_VSV*^>B72iuyg-mZbxdPs1jy+O8mQP{RC^de>="
    "Hg4~pMObhbF3fr*_|bwy2TLN7CT1rHHFU2Qi-BKSS1f~CjASz;?CwDZfFFTTNdHXk5&m3OM4(O;+;sTdmBy$kgr)d7=9Zeno($%l"
    "O+0FpPsZ<fcvVpuTs&XTaomN8y1;$Upjz8`aoo}3Zo~<`8VJljH~BUr*%^yoYGH$Og7bg(%F7^)K5yI3!=$Df1{JG?a*b#f*fY0#"
    "#>a?nl8*?6+8}c5F8U}rv10QFfA*HzDk17ZcGzF<ZMq}e*ZUhzp*yAvSG;9lsVh!CgUu>AVF?KxKO<#eIS`-p@x(&yGF6n_L#wpJ"
    "we?9+KetCST&FOZc*DJcw$>W#aMHKaRNi#bdACg$PfWpj7v#^Tuz~l7|EdO{Zv"
))  # fmt: skip
_FREE, _END, _NONE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF


def compound(streams: dict[str, bytes]) -> bytes:
    """A compound file with these streams, and storages for the parts of their paths."""
    paths = sorted({"/".join(path.split("/")[:depth]) for path in streams for depth in range(1, path.count("/") + 2)})
    siblings = {
        path: [other for other in paths if other.rpartition("/")[0] == path.rpartition("/")[0]] for path in paths
    }
    number = {path: position for position, path in enumerate(paths, 1)}
    body, fat = b"", []

    def sectors(data: bytes) -> int:
        nonlocal body
        start, count = len(fat), -(-len(data) // 512)
        fat.extend([*range(start + 1, start + count), _END][:count])
        body += data.ljust(512 * count, b"\0")
        return start if count else _END

    def entry(name: str, kind: int, right: int, child: int, start: int, size: int) -> bytes:
        raw = name.encode("utf-16-le")
        head = raw.ljust(64, b"\0") + struct.pack("<HBBIII", len(raw) + 2, kind, 1, _NONE, right, child)
        return head.ljust(116, b"\0") + struct.pack("<III", start, size, 0)

    def first(folder: str) -> int:
        return next((number[path] for path in paths if path.rpartition("/")[0] == folder), _NONE)

    entries = [entry("Root Entry", 5, _NONE, first(""), _END, 0)]
    for path in paths:
        after = siblings[path][siblings[path].index(path) + 1 :]
        data = streams.get(path)
        place = (sectors(data), len(data)) if data is not None else (0, 0)
        kind, child = (2, _NONE) if data is not None else (1, first(path))
        entries.append(entry(path.rpartition("/")[2], kind, number[after[0]] if after else _NONE, child, *place))
    directory = sectors(b"".join(entries))
    count = -(-(len(fat) + 2) // 128)
    table = len(fat)
    fat.extend([0xFFFFFFFD] * count)
    allocation = struct.pack(f"<{len(fat)}I", *fat).ljust(512 * count, b"\xff")
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 62, 3, 0xFFFE, 9, 6) + bytes(10)
    head += struct.pack("<6I", count, directory, 0, 0, _END, 0) + struct.pack("<II", _END, 0)
    return head + struct.pack("<109I", *range(table, table + count), *[_FREE] * (109 - count)) + body + allocation


def outline(data: bytes, name: str) -> list[tuple[tuple[str, ...], int | None, str]]:
    document = read(data, name)
    return [(part.heading, part.page, document.text[part.start : part.end]) for part in document.parts]


def test_a_compound_file_has_its_streams_at_their_paths() -> None:
    streams = {"a": b"x" * 1000, "b/c": b"y", "b/d/e": b"z" * 5000, "f": b""}
    file = CompoundFile(compound(streams))
    assert {name: file.read(name) for name in file.names} == streams
    assert file.read("none") == b""


def test_a_doc_has_its_text_headings_and_tables() -> None:
    assert read(DOC, "a.doc").title == "Birds of Köln – 鴨"
    assert outline(DOC, "a.doc") == [
        ((), None, "Birds of Köln – 鴨"),
        (("Chapter 1",), None, "Chapter 1\n\nDucks swim."),
        (("Chapter 1", "Section"), None, "Section"),
        (("Chapter 1", "Section"), None, "Bird | Weight\nDuck / of the lake | 1 kg\n | none"),
        (("Chapter 1", "Section"), None, "After."),
        (("Chapter 2",), None, "Chapter 2\n\nGeese honk."),
    ]
    assert read(DOC, "unnamed").format == "doc"


def record(kind: int, content: bytes = b"", *, version: int = 0, instance: int = 0) -> bytes:
    return struct.pack("<HHI", version | instance << 4, kind, len(content)) + content


def container(kind: int, *records: bytes, instance: int = 0) -> bytes:
    return record(kind, b"".join(records), version=0xF, instance=instance)


def text(kind: int, words: str) -> bytes:
    head = record(3999, struct.pack("<I", kind))
    return head + (record(4008, words.encode()) if words.isascii() else record(4000, words.encode("utf-16-le")))


def box(words: str) -> bytes:
    return container(1036, container(0xF004, record(0xF00D, text(4, words), version=0xF)))


def presentation() -> bytes:
    """Two edits: the second has another copy of the first slide."""

    def place(number: int, identity: int) -> bytes:
        return record(1011, struct.pack("<IIiII", number, 0, 0, identity, 0))

    slides = container(4080, place(2, 256), text(0, "Ducks"), text(1, "swim\rfast"), place(3, 257), text(0, "Gänse"))
    notes = container(4080, place(4, 256), instance=2)
    note = container(1008, record(1009, struct.pack("<II", 256, 0)), box("Speak slowly."))
    first = [container(1000, slides, notes), container(1006, box("an old text")), container(1006, box("honk")), note]
    stream, edit = b"", 0
    for number, objects in ((1, first), (2, [container(1006, box("a new text"))])):
        offsets = []
        for content in objects:
            offsets.append(len(stream))
            stream += content
        directory = len(stream)
        stream += record(6002, struct.pack(f"<{len(offsets) + 1}I", number | len(offsets) << 20, *offsets))
        edit, before = len(stream), edit
        stream += record(4085, struct.pack("<IIIIIIHH", 256, 0, before, directory, 1, 5, 0, 0))
    user = record(4086, struct.pack("<III", 20, 0xE391C05F, edit))
    return compound({"PowerPoint Document": stream, "Current User": user})


def test_a_ppt_has_its_slides_as_the_last_edit_left_them() -> None:
    assert outline(presentation(), "a.ppt") == [
        (("Ducks",), 1, "Ducks\n\nswim\nfast\n\na new text\n\nSpeak slowly."),
        (("Gänse",), 2, "Gänse\n\nhonk"),
    ]


def message(**streams: str | bytes) -> dict[str, bytes]:
    """The streams of a message, by number and type of their property."""
    sent = struct.pack("<HHIQ", 0x40, 0x39, 6, 133_500_000_000_000_000)
    values = {name: value.encode("utf-16-le") if isinstance(value, str) else value for name, value in streams.items()}
    named = {f"__substg1.0_{name.removeprefix('p')}": value for name, value in values.items()}
    return {"__properties_version1.0": bytes(32) + sent, **named}


def test_a_message_of_outlook_has_headers_body_and_attachments() -> None:
    inner = message(p0037001F="Inner", p1000001F="Geese honk.")
    inner["__properties_version1.0"] = inner["__properties_version1.0"][8:32]
    files = {
        "__attach_version1.0_#00000000/__properties_version1.0": bytes(8),
        "__attach_version1.0_#00000000/__substg1.0_3707001F": "../plan.md".encode("utf-16-le"),
        "__attach_version1.0_#00000000/__substg1.0_37010102": b"# Plan",
        **{f"__attach_version1.0_#00000001/__substg1.0_3701000D/{name}": value for name, value in inner.items()},
    }
    own = message(
        p0037001F="Grüße", p0C1A001F="Ada", p5D01001F="ada@example.com", p0E04001F="Bob", p1000001F="Ducks swim."
    )
    data = compound(own | files)
    document = read(data, "a.msg")
    assert (document.title, document.metadata["from"]) == ("Grüße", "Ada <ada@example.com>")
    assert document.text == (
        "Subject: Grüße\nFrom: Ada <ada@example.com>\nTo: Bob\nDate: Wed, 17 Jan 2024 21:20:00 +0000\n\nDucks swim.\n\n"
        "Subject: Inner\n\nGeese honk.\n\nAttachments: ../plan.md"
    )
    assert [(member.name, member.read()) for member in list_members(data, "msg")] == [("plan.md", b"# Plan")]


@pytest.mark.parametrize(
    "body",
    [
        {"p10130102": b"<p>only <b>html</b>"},
        {"p1000001E": b"only html"},
        {"p10090102": bytes(8) + b"MELA" + bytes(4) + rb"{\rtf1 only html}"},
    ],
)
def test_the_body_of_a_message_is_text_html_or_rtf(body: dict) -> None:
    assert read(compound(message(**body)), "a.msg").text.endswith("only html")


def test_a_compressed_rtf_body_is_unpacked() -> None:
    packed = bytes.fromhex(  # the example of [MS-OXRTFCP] 3.1
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    assert unpack_rtf(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"


def test_protected_and_unknown_files_say_so() -> None:
    with pytest.raises(UnreadableError, match="password-protected"):
        read(compound({"EncryptedPackage": b"x"}), "a.doc")
    user = record(4086, struct.pack("<III", 20, 0xF3D1C4DF, 0))
    with pytest.raises(UnreadableError, match="password-protected"):
        read(compound({"PowerPoint Document": b"x", "Current User": user}), "a.ppt")
    locked = struct.pack("<HHHHHH", 0xA5EC, 0xC1, 0, 0, 0, 0x100) + bytes(600)
    with pytest.raises(UnreadableError, match="password-protected"):
        read(compound({"WordDocument": locked}), "a.doc")
    with pytest.raises(UnreadableError, match="holds no text of a DOC file"):
        read(compound({"x": b"y"}), "a.doc")
    with pytest.raises(UnsupportedError, match=r"no reader for \.vsd files"):
        read(compound({"x": b"y"}), "a.vsd")
    with pytest.raises(UnreadableError, match="not a DOC file"):
        read(b"words", "a.doc")


def read_or_refuse(data: bytes, name: str) -> tuple[str, str]:
    """The text of a file and no message, or no text and the message of the refusal."""
    try:
        return read(data, name).text, ""
    except BinocleError as error:
        return "", str(error)


@pytest.mark.parametrize("name", ["a.doc", "a.ppt", "a.msg"])
def test_damaged_old_files_give_text_or_one_line(name: str) -> None:
    whole = {"a.doc": DOC, "a.ppt": presentation(), "a.msg": compound(message(p0037001F="x", p10130102=b"<p>y"))}[name]
    generator = random.Random(0)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 12)):
            data[generator.randrange(len(data))] = generator.choice((0, 1, 0xFF, generator.randrange(256)))
        cut = bytes(data[: generator.choice((len(data), generator.randrange(len(data))))])
        text, error = read_or_refuse(cut, name)
        assert isinstance(text, str)
        assert "\n" not in error
