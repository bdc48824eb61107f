"""From the scores of two searches to one order, and to a relevance from 0 to 1.

`neighbours` joins the scores with the help of neighbouring passages, in indexes of 1,000 passages up; `fusion` joins
them without. `relevance` judges each hit, `relevance_calibration` measures how often it errs, with the questions of
`everyday`.
"""
