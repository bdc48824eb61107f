"""Files of many formats as bytes, how a test reads them, and what every reader promises."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

from binocle.core.errors import UnreadableError
from binocle.retriever.readers import read

if TYPE_CHECKING:
    from binocle.retriever.documents.document import Document


def check(document: Document) -> Document:
    """What every reader promises about parts."""
    position = 0
    for part in document.parts:
        assert position <= part.start < part.end <= len(document.text)
        assert not document.text[position : part.start].strip()
        assert part.line >= 1
        assert part.page is None or part.page >= 1
        assert part.kind in {"prose", "code", "table"}
        assert all(isinstance(title, str) and title for title in part.heading)
        position = part.end
    assert not document.text[position:].strip()
    document.text.encode()
    json.dumps(document.metadata)
    return document


def reading(data: bytes | str, name: str) -> Document:
    return check(read(data.encode() if isinstance(data, str) else data, name))


def outcome(data: bytes, name: str) -> str:
    """ "" when a file is read, else the line that says why it is not."""
    try:
        reading(data, name)
    except UnreadableError as error:
        return str(error)
    return ""


def outline(document: Document) -> list[tuple[tuple[str, ...], int, str, str]]:
    return [(part.heading, part.line, part.kind, document.text[part.start : part.end]) for part in document.parts]


def package(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


MARKDOWN = """---
title: "The Guide"
---
intro

# One `code` [link](http://x)
text
```python
# not a heading
```
Two
words
-----
| a | b |
|---|---|
| 1 | 2 |

## Three ##
end
"""


HTML = """<!doctype html>
<html><head><title>The &amp; Title</title>
<style>p {}</style><script>if (a < b) "<p>no</p>"</script></head>
<body>
<h1>Head
  <em>line</em></h1>
<p>One   <b>bold</b>
word &eacute;<br>next</p>
<div hidden>no</div><p style="display: none">no</p>
<ul><li>first<li>second <!-- no --></ul>
<table><tr><th>a<th>b</tr>
<tr><td>1<td>2<img alt="duck"></table>
<pre>
  kept
    as is</pre>
<h2>Sub</h2>
after
</body></html>
"""


RSS = """<?xml version="1.0"?>
<rss><channel><title>Blog</title>
<item><title>Post</title>
<description>&lt;p&gt;Hello &lt;b&gt;world&lt;/b&gt;&lt;/p&gt;</description>
<pubDate>today</pubDate></item>
</channel></rss>"""


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"

TYPES = {"[Content_Types].xml": "<Types/>"}


def relations(**targets: str) -> str:
    rows = "".join(
        f'<Relationship Id="{kind}" Type="x/{kind.rstrip("0123456789")}" Target="{target}"/>'
        for kind, target in targets.items()
    )
    return f"<Relationships>{rows}</Relationships>"


def docx(body: str, *, namespace: str = W, **parts: str) -> bytes:
    files = {
        **TYPES,
        "_rels/.rels": relations(officeDocument="word/document.xml"),
        "word/document.xml": f'<w:document xmlns:w="{namespace}" xmlns:m="m" xmlns:mc="mc" xmlns:wps="wps" xmlns:r="r"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": relations(**{kind: f"{kind}.xml" for kind in parts}),
        **{
            f"word/{kind}.xml": f'<w:{kind} xmlns:w="{namespace}">{content}</w:{kind}>'
            for kind, content in parts.items()
        },
    }
    return package(files)


def p(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


STYLES = (
    '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="Own"><w:name w:val="mine"/><w:basedOn w:val="berschrift1"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
    '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'
)


def xlsx(rows: str, **files: str) -> bytes:
    ns = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    return package(
        {
            **TYPES,
            "_rels/.rels": relations(officeDocument="xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook {ns} xmlns:r="r"><sheets><sheet name="Ducks" r:id="worksheet"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(
                worksheet="sheet1.xml", sharedStrings="strings.xml", styles="styles.xml"
            ),
            "xl/sheet1.xml": f"<worksheet {ns}><sheetData>{rows}</sheetData></worksheet>",
            "xl/strings.xml": f"<sst {ns}><si><t>shared</t></si><si><r><t>in </t></r><r><t>runs</t></r></si></sst>",
            "xl/styles.xml": f'<styleSheet {ns}><numFmts><numFmt numFmtId="170" formatCode="yyyy\\-mm"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/></cellXfs></styleSheet>',
            **files,
        }
    )


ODF = 'xmlns:office="o" xmlns:text="t" xmlns:table="tb" xmlns:draw="d" xmlns:presentation="pr"'


def odf(kind: str, body: str) -> bytes:
    return package(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {ODF}><office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>",
        }
    )


MAIL = """Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
From: Ada <ada@example.com>
To: bob@example.com
Date: Mon, 1 Jan 2024 10:00:00 +0000
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: multipart/alternative; boundary=c

--c
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Sch=F6ne Gr=FC=DFe
--c
Content-Type: text/html

<p>no</p>
--c--
--b
Content-Type: application/pdf
Content-Disposition: attachment; filename="plan.pdf"

x
--b--
"""
