"""A leak audit: how much text an attacker recovers from an index's vectors, and what each defence costs.

`audit` is the way in; `attacker` attacks, `defences` defend, `html_report` prints, `apply` embeds anew.
"""
