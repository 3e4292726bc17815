"""Bounds of expressions in every unit: intervals, transfer functions, and the interpreter of both.

A unit is what bounds are stored of: a file for MinMax, a segment of a file for GapList, a box for GeoBox.
``year(day) = 2024`` becomes a verdict for each unit by these modules, each with the tests that cover it most closely:

============== ============================================================ ==============================
module         content                                                      tests
============== ============================================================ ==============================
``interval``   intervals of all units, read from stored bounds              ``test_minmax``
``transfer``   transfer functions by Catalyst class: ``Year`` is monotone   ``test_monotone``
``interpret``  intervals of an expression from those of the columns         ``test_minmax_pairs``
``arithmetic`` sums, products and curves of intervals                       ``test_geobox_arithmetic``
``monotone``   monotone functions, evaluated at both ends by Spark          ``test_monotone``
``time_zones`` functions of local time, parts of dates, remainders          ``test_clocks``
``sort_keys``  comparisons and IN of intervals with literals, as integers   ``test_minmax``
``patterns``   the texts that matches of LIKE begin and end with            ``test_affixes``
============== ============================================================ ==============================

Most of these tests compare lists with an entry for each file: True where the file is kept. A True instead of a False
is a file that is read for nothing; a False instead of a True is a row that is lost.
"""
