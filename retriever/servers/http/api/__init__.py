"""The operations of the HTTP server: Binocle's own, and the endpoints for clients of OpenAI and Cohere.

`operations` lists Binocle's own; `request_shapes` checks the input of all, `answer_shapes` describes the answers.
`openapi` describes them for other programs.
"""
