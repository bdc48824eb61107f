"""Make queries from documents without labels: titles, sections, links, sentences, definitions and characteristic words.

`query_generation` makes them, of the kinds in `query_kinds`; `query_log` reads real ones. Tuning, rerankers and audits
take queries from here.
"""
