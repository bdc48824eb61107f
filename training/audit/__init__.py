"""A leak audit: how much text an attacker recovers from an index's vectors, and the cost of each defence.

Enter by `audit`. `attacker` attacks, `search_cost` measures the cost, `gate` judges, `report` shows the
result, `apply` embeds the index anew.
"""
