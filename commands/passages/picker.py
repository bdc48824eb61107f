"""The picker: results in the terminal as the user types.

The search runs in a thread of its own. It always searches for the present text of the field, and drops the answer to
an earlier text.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import (
    BufferControl,
    Dimension,
    DynamicContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.layout.processors import BeforeInput

from ...core.errors import BinocleError
from ...core.printable import printable, printable_path
from ...core.units import count_of
from ...retriever.documents.file_parts import file_of
from ...retriever.search.results.snippet import blocks
from .places import open_in_editor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent
    from prompt_toolkit.output import Output

    from ...retriever.search.results.hit import Hit
    from ...retriever.search.results.hits import Hits

_PAUSE = 0.08  # seconds: a search waits for the next key so long
_LINES = 3  # of a hit in the list
_WIDE = 110  # columns: a wider terminal shows the passage beside the list
_KEYS = "Enter: open in $EDITOR   Tab: print the place and leave   ↑ ↓ PgUp PgDn: choose   Esc: leave"


class Search:
    """The text to search for, and the answer to it."""

    def __init__(self, search: Callable[[str], Hits], on_answer: Callable[[], None] = lambda: None) -> None:
        self.search = search
        self.on_answer = on_answer
        self.query = ""  # of the answer
        self.hits: Sequence[Hit] = ()
        self.status = ""
        self._query = ""
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def want(self, query: str) -> None:
        """Search for this from now on."""
        with self._changed:
            self._query = query.strip()
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        answered = ""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._query != answered)  # noqa: B023 - read at once
                while self._changed.wait(_PAUSE) and not self._closed:
                    pass
                if self._closed:
                    return
                query = self._query
            hits, status = self._answer(query)
            answered = query
            with self._changed:
                if query == self._query:
                    self.query, self.hits, self.status = query, hits, status
            self.on_answer()

    def _answer(self, query: str) -> tuple[Sequence[Hit], str]:
        if not query:
            return (), ""
        start = time.perf_counter()
        try:
            hits = self.search(query)
        except BinocleError as error:
            return (), printable(str(error))
        milliseconds = (time.perf_counter() - start) * 1000
        note = "" if hits.answerable is not False or not hits else "   nothing here answers this; the nearest:"
        return hits, f"{count_of(len(hits), 'passage')}, {milliseconds:.0f} ms{note}"


class Picker:
    """The full-screen application over a `Search`."""

    def __init__(
        self, search: Callable[[str], Hits], root: Path | None, path_of: Callable[[str], str], query: str = ""
    ) -> None:
        self.root = root
        self.path_of = path_of
        self.chosen = 0
        self.problem = ""
        self.answers = Search(search, self._show)
        self.field = Buffer(document=Document(query), multiline=False, on_text_changed=lambda _: self._edit())
        self.app: Application[str | None] | None = None
        self.editing: Awaitable[None] | None = None  # a task without a reference may vanish

    def run(self, source: Input | None = None, output: Output | None = None) -> str | None:
        """Show the picker until the user leaves; return the place to print, if the user chose one.

        :param source: the keys; by default the terminal's.
        """
        self.app = Application(self._layout(), key_bindings=self._keys(), full_screen=True, input=source, output=output)
        self.answers.want(self.field.text)
        try:
            return self.app.run()
        finally:
            self.answers.close()

    @property
    def hit(self) -> Hit | None:
        """The chosen hit."""
        hits = self.answers.hits
        return hits[min(self.chosen, len(hits) - 1)] if hits else None

    def path_and_line(self) -> str | None:
        """The path and line of the chosen hit."""
        if self.hit is None:
            return None
        path = self.path_of(self.hit.path) if self.hit.source == "file" else self.hit.path
        return f"{printable_path(file_of(path))}:{self.hit.line_start}"

    def _edit(self) -> None:
        self.chosen, self.problem = 0, ""
        self.answers.want(self.field.text)

    def _show(self) -> None:
        """Draw the answer, in the thread of the screen; the user may be leaving just now."""
        if self.app is not None and (loop := self.app.loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self.app.invalidate)

    def _layout(self) -> Layout:
        field = Window(BufferControl(self.field, [BeforeInput("> ", style="bold")]), height=1)
        status = Window(
            FormattedTextControl(lambda: self.problem or self.answers.status), height=1, style="fg:ansigray"
        )
        listed = Window(FormattedTextControl(self._list), width=Dimension(weight=1))
        passage = Window(FormattedTextControl(self._passage), wrap_lines=True, width=Dimension(weight=1))
        columns = VSplit([listed, Window(width=1, char="│"), passage])
        below = HSplit([listed, Window(height=1, char="─"), passage])
        body = DynamicContainer(lambda: columns if self._is_wide() else below)
        keys = Window(FormattedTextControl(_KEYS), height=1, style="reverse")
        return Layout(HSplit([field, status, body, keys]), focused_element=field)

    def _list(self) -> ANSI:
        """The hits from the chosen one's page on, a few lines each."""
        query, hits = self.answers.query, list(self.answers.hits)
        page = self._page()
        first = self.chosen // page * page
        shown = hits[first : first + page]
        rows = []
        printed = blocks(shown, query, colour=True, width=self._width())
        for number, block in enumerate(printed, first):
            lines = block.rstrip("\n").split("\n")[: _LINES + 1]
            rows.append("\n".join((("▌" if number == self.chosen else " ") + text) for text in lines))
        return ANSI("\n".join(rows))

    def _passage(self) -> ANSI:
        """All of the chosen passage."""
        if self.hit is None:
            return ANSI("")
        return ANSI(next(blocks([self.hit], self.answers.query, colour=True, width=self._width(), full=True)))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(step: Callable[[], int]) -> Callable[[KeyPressEvent], None]:
            def moved(_event: KeyPressEvent) -> None:
                self.chosen = max(0, min(self.chosen + step(), len(self.answers.hits) - 1))

            return moved

        keys.add("down")(move(lambda: 1))
        keys.add("up")(move(lambda: -1))
        keys.add("pagedown")(move(self._page))
        keys.add("pageup")(move(lambda: -self._page()))
        keys.add("enter")(self._open)
        keys.add("tab")(lambda event: _leave(event, self.path_and_line()) if self.hit else None)
        for key in ("escape", "c-c", "c-d"):
            keys.add(key, eager=key != "escape")(lambda event: _leave(event, None))
        return keys

    def _open(self, _event: KeyPressEvent) -> None:
        hit = self.hit
        if hit is not None:
            self.editing = run_in_terminal(lambda: self._edit_file(hit), in_executor=False)

    def _edit_file(self, hit: Hit) -> None:
        try:
            open_in_editor(hit, self.root)
        except BinocleError as error:
            self.problem = printable(str(error))

    def _size(self) -> Size:
        return self.app.output.get_size() if self.app else Size(rows=24, columns=80)

    def _is_wide(self) -> bool:
        return self._size().columns >= _WIDE

    def _width(self) -> int:
        """The columns of the list, and of the passage."""
        return max(40, self._size().columns // (1 + self._is_wide()) - 2)

    def _page(self) -> int:
        """How many hits the list has room for."""
        rows = self._size().rows - 3
        return max(1, (rows if self._is_wide() else rows // 2) // (_LINES + 1))


def _leave(event: KeyPressEvent, citation: str | None) -> None:
    """End the picker; a second key may come before it has ended."""
    if not event.app.is_done:
        event.app.exit(result=citation)
