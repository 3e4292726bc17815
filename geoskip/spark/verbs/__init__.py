"""What the methods of a dataset's handle do, apart from what :mod:`geoskip.lifecycle` does without Spark."""
