"""Read the rows that a head learns from.

`examples` reads classes and numbers, `tagged` words with tags, `squad` questions with answers.
"""
