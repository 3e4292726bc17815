"""The metadata without Spark: which files a condition needs, for SQL texts, pyarrow, polars, DuckDB and GeoPandas."""
