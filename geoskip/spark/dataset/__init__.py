"""The handle of a dataset, and the operations that its methods run."""
