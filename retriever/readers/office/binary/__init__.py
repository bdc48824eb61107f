"""Readers of binary Office files: Word and PowerPoint of 1997 to 2003, and messages of Outlook.

`compound` opens their container: it has named streams, as a folder has files; `doc`, `ppt` and `msg` read the
streams. `formats.py` names these readers, and `detect.py` looks into a container to tell the formats apart.
"""
