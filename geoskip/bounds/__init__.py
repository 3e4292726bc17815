"""Bounds of expressions in every file: intervals, and what functions do to them."""
