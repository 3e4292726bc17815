"""Rewrite predicates as equivalent or implied conditions that indexes can answer."""
