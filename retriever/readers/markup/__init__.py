"""Readers of markup: HTML, XML, Markdown, reStructuredText, Org, LaTeX, AsciiDoc and manual pages.

`markdown`, `rst`, `org`, `latex` and `asciidoc` keep the text as a person wrote it, and find its headings by the
`line_scanner`. `html_text` and `xml_text` extract the text. `html_styles` says which text of a page a person does not
see.
"""
