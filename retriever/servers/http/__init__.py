"""An HTTP server over one or several indexes: search, documents, and the shapes that others' clients speak.

Enter by `server`. `application` answers requests with the operations of `api/`; `access` decides who may ask,
`work_queue` how many at once. `page` is for people.
"""
