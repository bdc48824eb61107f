"""Readers of Word, PowerPoint, Excel and OpenDocument files, on lxml.

`package` opens the zip with its limits. Libraries that read these formats lose notes, text boxes and tracked changes.
"""
