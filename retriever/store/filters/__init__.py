"""Filters on documents: what may be asked, how people write it, and how it is answered for all documents at once.

`filter` is the algebra that programs use (`F.tenant == "t1"`). `language` reads what people write, `json_form` what
other programs send, `where` any of them. `columns` holds the values by key, and `evaluation` compares them.
"""
