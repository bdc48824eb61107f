"""Kills, power cuts, hostile files and random writes, which an index must survive."""
