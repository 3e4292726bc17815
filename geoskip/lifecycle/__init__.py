"""The life of a dataset's indexes: an operation log, the verbs, and what several writers do to each other.

Engine-free: :class:`geoskip.lifecycle.refresh.Data` is what an engine has to tell of a dataset, and the whole protocol
runs, races and crashes in tests without one.
"""
