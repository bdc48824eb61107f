"""Read workbooks sheet by sheet: a line for each row, with tabs between the cells."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from io import BytesIO
from typing import TYPE_CHECKING, Any

from lxml import etree

from ....core.errors import UnreadableError
from ..document_builder import DocumentBuilder, hide, table_row
from ..table_rows import add_rows
from .drawingml import chart_text, paragraphs
from .package import DamagedPartError, Package, attribute, local_name, parse_digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents.document import Document
    from ..pictures import Pictures

# Excel's built-in number formats of times and percentages, by id. For dates "d" stands for any format of a date.
_BUILT_IN = {str(number): "d" for number in (*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59))}
_BUILT_IN |= {"46": "[h]:mm:ss", "9": "0%", "10": "0.00%"}
_DURATION = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_DATE_FORMAT = re.compile(r"[dmyhs]", re.IGNORECASE)
_NOT_FORMAT = re.compile(r'"[^"]*"|\\.|\[(?!h+\]|m+\]|s+\])[^\[\]]*\]|_.|\*.|General', re.IGNORECASE)
_MAX_DECIMALS = 12
_NUMBER = re.compile(r"-?\d+\.\d{12,}(?:E-?\d+)?$|-?\d+(?:\.\d+)?E[-+]?\d+$")
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")  # a character that XML cannot hold, or a "_" before an "x"
_COLUMN_LETTERS = re.compile("[A-Z]{1,3}(?=[0-9])")


def read_xlsx(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read a workbook; sheets count as pages, and their names are headings."""
    package = Package(data)
    if package.main_part("").endswith(".bin"):
        return read_xls(data, "xls")
    main, root = package.main("xl/workbook.xml", "workbook")
    book = _Workbook(package, main, root)
    builder = DocumentBuilder(title=package.title())
    for number, (name, part, is_hidden) in enumerate(book.sheets(), 1):
        rows = book.rows(part)
        add_rows(builder, map(hide, rows) if is_hidden else rows, number, name)
        for line in book.extras(part, pictures):
            builder.add(line, page=number, heading=(name,))
    package.describe(builder)
    pictures.describe(builder)
    return builder.document(format_name)


class _Workbook:
    """The sheets of a workbook, with its shared strings and number formats."""

    def __init__(self, package: Package, main: str, root: Any) -> None:
        self._package = package
        self._main = main
        self._root = root
        self._strings = list(self._shared_strings())
        codes = self._format_codes()
        self._time_styles = {style: bool(_DURATION.search(code)) for style, code in codes.items() if _shows_date(code)}
        self._percent_styles = {style: _decimals(code) for style, code in codes.items() if _shows_percentage(code)}
        properties = next(root.iter("{*}workbookPr"), None)
        since_1904 = properties is not None and attribute(properties, "date1904") in {"1", "true"}
        self._epoch = dt.datetime(1904, 1, 1) if since_1904 else dt.datetime(1899, 12, 30)  # noqa: DTZ001 - Excel has no zones

    def sheets(self) -> Iterator[tuple[str, str, bool]]:
        """The name and the part of every sheet, in order, and whether it is hidden."""
        for sheet in self._root.iter("{*}sheet"):
            if part := self._package.part_of(self._main, sheet):
                yield sheet.get("name", ""), part, sheet.get("state") in {"hidden", "veryHidden"}

    def rows(self, part: str) -> Iterator[str]:
        """The rows of a sheet, "" for empty ones between; read as a stream, since sheets can be large."""
        with self._package.spared(part):
            yield from self._rows(part)

    def _rows(self, part: str) -> Iterator[str]:
        expected = 1
        for row in _stream_elements(self._package.read(part), "row"):
            number = parse_digits(row.get("r")) or expected
            line = table_row(self._cells(row), "\t")
            line = " ".join(line.splitlines()) if line.strip() else ""
            if number > expected and line:
                yield ""
            expected = number + 1
            yield hide(line) if row.get("hidden") in {"1", "true"} else line

    def _cells(self, row: Any) -> Iterator[tuple[int, str]]:
        column = -1
        for cell in row:
            column = max(_column(cell), column + 1)
            yield column, self._cell(cell)

    def _cell(self, cell: Any) -> str:
        kind = cell.get("t")
        value = ""
        for child in cell:
            if child.tag.endswith("}v"):
                value = child.text or ""
            elif child.tag.endswith("}is"):
                value = _string_text(child)
        if kind is None or kind == "n":
            return self._number(value, cell.get("s"))
        if kind == "s":
            index = parse_digits(value)
            return self._strings[index] if index is not None and index < len(self._strings) else ""
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, value)
        return value.replace("\t", " ")

    def _number(self, value: str, style: str | None) -> str:
        is_duration, decimals = self._time_styles.get(style), self._percent_styles.get(style)
        if is_duration is not None:
            return self._time(value, is_duration=is_duration)
        return _displayed(value) if decimals is None else _percentage(value, decimals)

    def _time(self, value: str, *, is_duration: bool) -> str:
        try:
            if is_duration:
                return _duration(float(value))
            moment = self._epoch + dt.timedelta(days=float(value), milliseconds=500)
        except (ValueError, OverflowError):
            return value
        moment = moment.replace(microsecond=0)
        if float(value) < 1:
            return moment.strftime("%H:%M:%S")
        return moment.isoformat(" ").removesuffix(" 00:00:00")

    def _shared_strings(self) -> Iterator[str]:
        for part in self._package.related(self._main, "sharedStrings"):
            for string in _stream_elements(self._package.read(part), "si"):
                yield _ESCAPE.sub(lambda match: chr(int(match[1], 16)), _string_text(string)).replace("\t", " ")

    def _format_codes(self) -> dict[str | None, str]:
        """The format of the numbers in each style of cells, by index."""
        root = self._package.xml(next(self._package.related(self._main, "styles"), ""))
        if root is None:
            return {}
        own = {
            attribute(number_format, "numFmtId"): attribute(number_format, "formatCode") or ""
            for number_format in root.iter("{*}numFmt")
        }
        styles = next(root.iter("{*}cellXfs"), ())
        numbers = (style.get("numFmtId", "0") for style in styles)
        return {str(index): own.get(number, _BUILT_IN.get(number, "")) for index, number in enumerate(numbers)}

    def extras(self, part: str, pictures: Pictures) -> Iterator[str]:
        """The text on a sheet outside its cells: comments, text boxes, charts and pictures."""
        for kind, target in self._package.relations(part).values():
            if target not in self._package:
                continue
            if kind in {"comments", "threadedComment"}:
                yield from self._comments(target)
            elif kind == "drawing":
                yield from self._drawing(target, pictures)

    def _drawing(self, part: str, pictures: Pictures) -> Iterator[str]:
        root = self._package.xml(part)
        yield "" if root is None else "\n".join(paragraphs(root))
        for kind, graphic in self._package.relations(part).values():
            if kind == "image":
                yield pictures.text_in(self._package, graphic)
            elif (
                kind.lower().startswith("chart") and graphic in self._package and not kind.endswith(("Style", "Colors"))
            ):
                yield "\n".join(chart_text(self._package, graphic))

    def _comments(self, part: str) -> Iterator[str]:
        root = self._package.xml(part)
        for comment in root.iter("{*}comment", "{*}threadedComment") if root is not None else ():
            text = _string_text(comment).strip()
            if text and not text.startswith("[Threaded comment]"):
                yield text


def _column(cell: Any) -> int:
    """The column of a cell, from 0; -1 for a cell without a reference, which follows the cell before it."""
    match = _COLUMN_LETTERS.match(cell.get("r", ""))
    number = 0
    for letter in match[0] if match else "":
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _duration(days: float) -> str:
    seconds = round(abs(days) * 86_400)
    return f"{'-' * (days < 0)}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _shows_date(code: str) -> bool:
    return bool(_DATE_FORMAT.search(_NOT_FORMAT.sub("", code)))


def _shows_percentage(code: str) -> bool:
    return "%" in _NOT_FORMAT.sub("", code.partition(";")[0])


def _decimals(code: str) -> int:
    """The number of decimals of a percentage."""
    return len(re.findall("[0#?]", _NOT_FORMAT.sub("", code.partition(";")[0]).partition(".")[2]))


def _percentage(value: str, decimals: int) -> str:
    unit = Decimal(1).scaleb(-min(decimals, _MAX_DECIMALS))
    try:
        number = (100 * Decimal(_displayed(value))).quantize(unit, ROUND_HALF_UP)
    except InvalidOperation:  # no number, or too large
        return value
    return f"{number:f}%" if number.is_finite() else value


def _string_text(element: Any) -> str:
    """The text of a string of one or more runs, without phonetic guides."""
    return "".join(
        node.text or ""
        for node in element.iter("{*}t", "{*}text")
        if (local_name(node) == "t" or not len(node)) and local_name(node.getparent()) != "rPh"
    )


def _stream_elements(data: bytes, name: str) -> Iterator[Any]:
    """The elements of a name, one by one; each is dropped before the next is read."""
    try:
        events = etree.iterparse(
            BytesIO(data),
            tag="{*}" + name,
            resolve_entities="internal",
            no_network=True,
            load_dtd=False,
            huge_tree=False,
        )
        for _, element in events:
            yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]
    except etree.XMLSyntaxError as error:
        raise DamagedPartError(f"damaged XML: {str(error)[:200]}") from None


def _displayed(value: str) -> str:
    """A number as a sheet shows it, without the last digits that binary floating point adds."""
    if len(value) < 14 and "E" not in value:
        return value
    if not _NUMBER.match(value):
        return value
    try:
        return f"{float(value):.12g}"
    except ValueError:
        return value


def read_xls(data: bytes, format_name: str) -> Document:
    """Read the old binary formats with calamine."""
    with _panics_reported():
        return _read_xls(data, format_name)


@contextmanager
def _panics_reported() -> Iterator[None]:
    """Report a panic of Rust, which is no `Exception`, as damage: it would end the process."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UnreadableError(f"damaged workbook: {str(error)[:200]}") from None


def _read_xls(data: bytes, format_name: str) -> Document:
    import python_calamine

    try:
        book = python_calamine.CalamineWorkbook.from_filelike(BytesIO(data))
    except (python_calamine.CalamineError, OSError, ValueError) as error:
        message = str(error)
        raise UnreadableError(
            "password-protected" if "assword" in message else f"damaged workbook: {message[:200]}"
        ) from None
    builder = DocumentBuilder()
    for number, name in enumerate(book.sheet_names, 1):
        try:
            sheet = book.get_sheet_by_name(name)
        except (python_calamine.CalamineError, ValueError):  # a sheet with only a chart
            continue
        add_rows(builder, _calamine_rows(sheet), number, name)
    return builder.document(format_name)


def _calamine_rows(sheet: Any) -> Iterator[str]:
    for row in sheet.iter_rows():
        line = table_row(enumerate(_cell_text(cell) for cell in row), "\t")
        yield line if line.strip() else ""


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dt.datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return " ".join(str(value).split())
