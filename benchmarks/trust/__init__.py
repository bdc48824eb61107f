"""Kills, power cuts, hostile files and random writes: what an index survives."""
