"""A client of `binocle serve`, for programs that search an index of another process or machine.

Enter by `RemoteRetriever` in `remote`. `connections` sends a request and reads its answer. `requests` writes the JSON
of requests, and `responses` makes the results of `Retriever` from the JSON of answers.
"""
