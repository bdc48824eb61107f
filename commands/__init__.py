"""The commands of the command line: options in, one library call, lines out.

`passages` has the commands that print passages; `models` has training, heads, inversion and audits; `upkeep` looks
after an index. A module is named after its command. Some hold a second one: forget is in `index`, rollback in `switch`,
files in `status`, show in `similar`. Compare is in `evaluate`, distill in `train`, fill in `pretrain`, score in `mine`,
completion in `doctor`. Classify and tag are in `models/heads`. `cli.py` imports a module when its command is called. No
other room imports this one.
"""
