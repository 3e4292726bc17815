"""Mappings of function libraries, one module for each library, found by entry point.

A module declares what geoskip needs to know about the functions of one library (:mod:`geoskip.registry`). The guide
``examples/guides/mappings.md`` shows how to write one, here or in a package of your own. For a new module here:

1. Write the functions with :func:`udf_mappings.library.offered` if they are geoskip's own; otherwise name those of the
   library with :class:`geoskip.Function`. Facts that are regular belong in a table, one line for each function.
2. Declare the mappings with :func:`geoskip.maps`; ``networks.py`` is a short example.
3. Name the module under ``[project.entry-points."geoskip.udf_mappings"]`` in ``pyproject.toml``, its table of functions
   under ``"geoskip.functions"``, and run ``pip install --no-deps -e .``: entry points are read from the installation.
4. Test each mapping with :func:`geoskip.check_mapping` in ``tests/unit/udf_mappings/``.
5. Write the table of mapped functions again: ``python -m geoskip mappings > udf_mappings/README.md``.
"""
