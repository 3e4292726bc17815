"""Layouts: the order of rows in files, and how well files are clustered.

:mod:`~geoskip.layout.specification` defines the layouts. :mod:`~geoskip.layout.arrangement` fits a layout to a sample
of the rows and assigns rows to files, by ranks, curves, k-d trees and cuts. :mod:`~geoskip.layout.clustering` computes
from the bounds of files how well they are clustered. This package does not depend on Spark.
"""
