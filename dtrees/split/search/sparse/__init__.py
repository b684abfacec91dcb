"""Nodes of sparse tables, by their stored cells."""
