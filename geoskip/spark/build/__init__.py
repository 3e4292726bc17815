"""The build job: read files with Spark or Arrow and collect the summaries of all indexes."""
