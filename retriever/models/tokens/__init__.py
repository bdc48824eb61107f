"""Tokens of a text without encoding it: their ids, their number, and the places where they begin and end."""
