"""The operations of the HTTP server: Binocle's own, and those that clients of OpenAI and Cohere call.

`operations` lists Binocle's own; `shapes` checks the input of all. `openapi` describes them for other programs.
"""
