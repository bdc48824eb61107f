"""Readers of Word, PowerPoint, Excel and OpenDocument files.

They are written by hand, on zipfile and lxml, because libraries for these formats are made to edit files, not to search
them. Such libraries lose text that a person sees: notes, comments, text boxes, tracked insertions, words in graphics.
They also set no limit on the size of an unpacked file. Here `package` opens the ZIP under limits, and each format
needs only the few elements that hold text. The room `binary` reads the formats from before 2007.
"""
