"""Read PDF: the text of each page in reading order, without lines that repeat or are hidden, under its headings.

PDFium parses the file and finds the letters, and the files here judge them. Only `formats.py` enters, for `read_pdf`.
"""
