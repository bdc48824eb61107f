"""Files with other files in them: archives, mail and its attachments.

`members` lists the files in a file under limits of number, size and depth, so that an archive bomb costs little.
Each member becomes a document of its own; `archive` and `mail` read the formats.
"""
