"""The command line's commands, one module for each subject: options in, one library call, lines out.

`cli.py` imports a module when its command is called. No room imports this one.
"""
