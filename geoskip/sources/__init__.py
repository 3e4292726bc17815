"""Files read without Spark: listings, Parquet readers, and the conditions under which summaries hold."""
