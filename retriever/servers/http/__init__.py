"""An HTTP server over one or several indexes: search, documents, and the shapes that others' clients speak.

Enter by `server`. `application` answers requests, `operations` lists them; `access` decides who may ask, `work_queue`
how many at once. `openai` and `cohere` have the operations of their clients, `openapi` describes all of them. `page`
is for people.
"""
