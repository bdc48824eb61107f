"""The words of a query: quotes and identifiers in `exact`, misspelt words in `corrections`, and its language.

`text_language` tells the language of a text, `documents_language` the language of an index.
"""
