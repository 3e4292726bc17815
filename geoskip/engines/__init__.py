"""Engines beside Spark: the files that a condition needs, and readers of SQL, Arrow, polars and GeoPandas."""
