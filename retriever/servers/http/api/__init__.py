"""The operations of the HTTP server: Binocle's own, and the endpoints for clients of OpenAI and Cohere.

`operations` lists Binocle's own; `shapes` checks the input of all. `openapi` describes them for other programs.
"""
