"""A leak audit: how much text an attacker recovers from an index's vectors, and the cost of each defence.

Enter by `audit`. `experiment` runs the attackers of `attacks/`. `known_text` counts the text
that an attacker has anyway. `search_cost` measures the cost, `gate` judges, `report/` lays out the page and the lines,
`apply` embeds the index anew.
"""
