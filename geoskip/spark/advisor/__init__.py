"""Indicators of queries that are run, and advice on indexes and layouts before they are built."""
