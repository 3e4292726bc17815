"""geoskip for clients without Python: Thrift servers and the ``spark-sql`` shell.

There are two ways. ``geoskip thrift-server`` starts a Python driver with a session that has geoskip enabled and serves
JDBC clients. ``python -m geoskip.spark.jdbc.extension_jar FILE`` creates a small jar for a server or shell that is
started by Spark's own scripts: ``spark.sql.extensions`` names its class, which starts a Python process (``attach``) for
the JVM.
"""
