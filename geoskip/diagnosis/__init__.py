"""The effect of a dataset's indexes on a condition, part by part, for reports and :func:`geoskip.why_not`."""
