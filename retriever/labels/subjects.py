"""One hundred subjects: the null hypotheses for a label.

Some document of a folder is the nearest to every name. So a name must fit a document far better than these subjects do.
They are of all fields of life, and were chosen without regard to any collection.
"""

_WORDS = """
accounting agriculture animals archaeology architecture art astronomy banking biology birds books buildings business
cars chemistry children cinema cities climate clothing communication computers construction cooking crime culture
dance death design disease economics education elections electricity emotions employment energy engineering
environment family fashion fiction fish food forests furniture games gardening geography geology government health
history holidays hospitals industry insects insurance internet journalism language law libraries love machines
marketing mathematics measurement medicine metals military money mountains music mythology oceans philosophy
photography physics plants politics psychology railways religion restaurants rivers safety science shopping
software sports statistics technology theatre tools trade travel war water weather
"""
SUBJECTS = tuple(_WORDS.split())
