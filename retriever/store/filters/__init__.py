"""Filters on documents: their algebra, the language that people write, and their evaluation on all documents at once.

`filter` is the algebra that programs use (`F.tenant == "t1"`). `language` reads what people write, `json_form` what
other programs send, `where` any of them. `columns` holds the values by key, and `evaluation` compares them.
"""
