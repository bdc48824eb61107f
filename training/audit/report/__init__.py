"""The report of an audit, for people: lines in the terminal, and a page with charts.

`text_report` gives the lines. `html_report` lays out the page, with the charts of `leak_curves`. `shared_words` marks
the recovered words of its examples. `report_files` saves the page and the figures as JSON.
"""
