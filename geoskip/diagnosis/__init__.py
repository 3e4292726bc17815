"""The effect of indexes on a condition, part by part: reasons of reports, and :func:`geoskip.why_not`."""
