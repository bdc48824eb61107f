"""Readers of markup: HTML, XML, Markdown, reStructuredText, Org, LaTeX and AsciiDoc.

`lightweight` keeps the text as a person wrote it, and finds its headings. `html_text` and `xml_text` extract the text.
`html_styles` says which text of a page a person does not see.
"""
