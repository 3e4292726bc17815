"""Indicators of executed queries, and advice on indexes and layouts before they are built."""
