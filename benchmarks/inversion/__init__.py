"""Inversion and audits: how much of its text a vector gives away."""
