"""geoskip for clients without Python: Thrift servers and the ``spark-sql`` shell.

There are two ways. ``geoskip thrift-server`` is a Python driver with a session of geoskip that
serves JDBC clients. ``python -m geoskip.spark.jdbc.extension_jar FILE`` makes a small jar for a server or shell that
is started by Spark's own scripts: ``spark.sql.extensions`` names the class in it, which starts a Python process
(``attach``) beside the JVM.
"""
