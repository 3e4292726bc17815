"""The Spark side: sessions, the rule, the build. The only package of geoskip that imports pyspark."""
