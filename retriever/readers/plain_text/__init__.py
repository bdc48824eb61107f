"""Files of plain text: prose, source code, JSON and delimited tables, in any encoding.

`encoding` decodes the bytes. `definitions` finds the functions and classes of source code, so that each passage says
its place. `encoded` leaves out keys and base64.
"""
