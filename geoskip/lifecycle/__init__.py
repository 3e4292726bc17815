"""Operations on a dataset's indexes: the operation log, the verbs and concurrent writers.

Independent of Spark: an engine implements :class:`geoskip.lifecycle.refresh.DatasetAccess`, and tests run the whole
protocol, with races and crashes, without an engine.
"""
