"""The handle of a dataset and the verbs behind its methods."""
