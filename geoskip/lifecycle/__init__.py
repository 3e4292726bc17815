"""Operations on a dataset's indexes: the operation log, the verbs and concurrent writers.

Engine-free: an engine implements :class:`geoskip.lifecycle.refresh.DatasetAccess`, and tests run the whole protocol,
with races and crashes, without one.
"""
