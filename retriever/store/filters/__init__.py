"""Filters on documents: their algebra, the language that people write, and their evaluation on all documents at once.

`filter` is the algebra that programs use (`F.tenant == "t1"`). `language` parses the filters of people, `json_form`
those of other programs, and `where` takes any form. `sorted_values` has the values by key, and `condition_masks`
compares them.
"""
