"""The optimizer rule: Catalyst expressions to predicates, and decisions back to the JVM."""
