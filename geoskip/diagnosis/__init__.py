"""The effect of indexes on each part of a condition, for reports and :func:`geoskip.why_not`."""
