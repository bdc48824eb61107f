"""The words of a query: quotes and identifiers in `exact`, misspelt words in `corrections`, and its `language`.

`documents_language` tells the language of an index.
"""
