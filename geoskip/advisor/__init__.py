"""Advice before a build: indicators of queries, estimates from samples, the choice of indexes."""
