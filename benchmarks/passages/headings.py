"""Forty headings of sample documents, written down from the documents as a person sees them, against the readers'.

    python -m benchmarks.passages.headings --data parser_samples

The samples come from docling and markitdown. Each line below has a file, a phrase in it, and the titles that a
person sees above that phrase, outermost first: the name of the document if it shows one, then its headings, or the
name of the sheet.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from binocle.retriever.readers import read

from ..machine import save

_BLOG = "Does Model and Inference Parameter Matter in LLM Applications? - A Case Study for MATH"
_WORD = "The Evolution of the Word Processor"
EXPECTED = (
    ("docx_checkboxes.docx", "Breakfast options", "Table with options"),
    ("docx_checkboxes.docx", "Tasks before release:", "Paragraph with options"),
    ("docx_code_blocks.docx", "def fib(n):", "Code-detection fixture > Case E - multi-line monospaced block"),
    ("docx_grouped_images.docx", "There are 2 pictures ungrouped", "Ungrouped images"),
    ("docx_lists.docx", "List item b", "Test Document > Test 2:"),
    ("docx_page_header_footer_first_page.docx", "body text on", "Page header/footer regression fixture > Page 2"),
    ("docx_rich_cells.docx", "Before table", "Table with nested table"),
    ("list_after_num_headers.docx", "Term 2: Definition 2", "Glosario"),
    ("unit_test_headers.docx", "Paragraph 1.2.3.1", "Test Document > Section 1 > Section 1.2 > Section 1.2.3"),
    ("unit_test_headers.docx", "Paragraph 2.1.1.1", "Test Document > Section 2 > Section 2.1.1"),
    ("unit_test_headers_numbered.docx", "This is the first reference.", "Test Document > Section 2 > REFERENCES"),
    ("word_sample.docx", "After we had a good day of swimming", "Swimming in the lake > Let’s swim! > Let’s eat"),
    ("example_03.html", "Background", "Example Document > Background"),
    ("example_08.html", "Equivalent pivot table", "Equivalent pivot table"),
    ("html_description_list.html", "A high-level", "Description List Test > Beverages > Programming Languages"),
    ("html_nested_block_in_list_item.html", "Item with bold text", "Ordered list with paragraph blocks"),
    ("hyperlink_06.html", "Section 2", "Anchor Links Test > Section 2"),
    ("table_with_heading_02.html", "Section After", "Main Title > Section After"),
    ("unit_test_01.html", "section-2.0.1", "Title > section-2 > section-2.0.1"),
    ("wiki_duck.html", "numerous species of", "Duck - Wikipedia > Duck"),
    ("wiki_duck.html", "Humans have hunted", "Duck - Wikipedia > Duck > Relationship with humans > Hunting"),
    ("chandra_list_group.html", "The Rise of Personal Computers", f"{_WORD} > The Rise of Personal Computers (1980s)"),
    ("test_blog.html", "Experiment Setup", f"{_BLOG} | AutoGen > {_BLOG} > Experiment Setup"),
    ("test_wikipedia.html", "1972–1985: Founding", "Microsoft - Wikipedia > Microsoft > History > 1972–1985: Founding"),
    ("blocks.md", "Indented code block", "my setext heading level 1 > my setext heading level 2"),
    ("duck.md", "after we had a good day", "Swimming in the lake > Let’s eat"),
    ("escaped_characters.md", "00:16.000", "Headers: > & < > \" '"),
    ("escaped_characters.md", "https://en.wikipedia.org", "Raw HTML > Link"),
    ("inline_and_formatting.md", "Lorem ipsum", "Whole heading is italic"),
    ("inline_and_formatting.md", "mc", "Whole heading is italic > Partially formatted heading to_escape not_to_escape"),
    ("mixed.md", "Here is a table", "Title > Famous ducks"),
    ("mixed_without_h1.md", "A. first", "Some heading"),
    ("wiki.md", "SABRE reservation system", "IBM > 1960s–1980s"),
    ("xlsx_01.xlsx", "col-1", "Sheet2"),
    ("xlsx_05_table_with_title.xlsx", "Number of freshwater", "Wild Duck Observations > Duck Observations"),
    ("xlsx_06_edge_cases_.xlsx", "Product/Integration", "Attached_left"),
    ("xlsx_08_one_cell_anchor.xlsx", "data3", "Sheet1"),
    ("xlsx_09_section_label_header.xlsx", "Reading List", "Library Catalog"),
    ("xlsx_emf.xlsx", "Vector in emf", "Vector in emf"),
    ("test.xlsx", "ColA", "09060124-b5e7-4717-9d07-3c046eb"),
)  # fmt: skip


def main() -> None:
    """Compare the heading of each phrase with the expected one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the samples")
    options = parser.parse_args()
    files = {file.name: file for file in sorted(options.data.rglob("*"), reverse=True) if file.is_file()}
    wrong = []
    for name, phrase, expected in EXPECTED:
        paths = heading_paths(files[name], phrase)
        if expected not in paths:
            wrong.append({"file": name, "phrase": phrase, "expected": expected, "read": paths})
    save("headings", {"headings": len(EXPECTED), "right": len(EXPECTED) - len(wrong), "wrong": wrong})


def heading_paths(file: Path, phrase: str) -> list[str]:
    """Return the heading path above each place of a phrase, with the title of the document before it."""
    document = read(file.read_bytes(), file.name)
    headings = {
        part.heading for part in document.parts if phrase.lower() in document.text[part.start : part.end].lower()
    }
    title = document.title
    return sorted(" > ".join((title, *heading) if title and title not in heading else heading) for heading in headings)


if __name__ == "__main__":
    main()
