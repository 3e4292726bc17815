"""Engines other than Spark: the files that a condition needs, for SQL, Arrow, polars and GeoPandas."""
