"""Readers of binary Office files: Word and PowerPoint of 1997 to 2003, and messages of Outlook.

`compound` opens their container, in which named streams lie as files lie in folders; `doc`, `ppt` and `msg` read the
streams. `formats.py` names these readers, and `detect.py` looks into a container to tell the formats apart.
"""
