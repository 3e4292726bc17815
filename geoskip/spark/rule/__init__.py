"""The optimizer rule in Python: from Catalyst expressions to predicates, and decisions for the JVM."""
