"""The report of an audit, for people: lines in the terminal, a page with charts, and the same figures as JSON.

`text_report` gives the lines. `html_report` lays out the page, with the charts of `leak_curves`; `shared_words` marks
the recovered words of its examples. All have the sentences of `verdict`, `assumptions` and `statements`.
`report_files` has the figures and sentences for JSON, and saves both files.
"""
