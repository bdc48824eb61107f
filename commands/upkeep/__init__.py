"""Commands that look after an index: its status, its check and repair, its collections, its vector index, the doctor.

`trust` allows an index that came from elsewhere. `switch` changes its encoder or goes back.
"""
