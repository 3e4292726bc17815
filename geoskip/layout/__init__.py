"""Layouts: in what order rows are written to files, and how well files cluster."""
