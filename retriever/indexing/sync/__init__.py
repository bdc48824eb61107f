"""Bring an index in line with its folder: new, changed, moved and deleted files.

Enter by `sync`. `changes` compares the folder with the store, and `nested_files` reads the files that differ. `missing`
keeps documents if their disk may be away; `last_scan` and `reader_versions` tell which unchanged files to read again.
"""
