"""MetricDist: distances of each file's rows from a few pivots, for any metric."""
