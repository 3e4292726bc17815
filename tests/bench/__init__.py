"""The benchmark: ``make bench``, or ``python -m tests.bench kernels queries build demo`` for some of its sections.

Every number stands beside what it has to be compared with, measured in the same run and in turn: a bare numpy
comparison of the same arrays, Spark with geoskip off, a scan of the same columns. Ratios hold across machines.
"""
