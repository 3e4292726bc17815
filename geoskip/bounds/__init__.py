"""Bounds of expressions in every unit: intervals, transfer functions, and the interpreter of both."""
