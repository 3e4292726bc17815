"""Layouts: the order of rows in files, and how well files are clustered.

:mod:`~geoskip.layout.specification` names the orders, :mod:`~geoskip.layout.arrangement` fits one to a sample of the
rows and assigns rows to files; ranks, curves, k-d trees and cuts are its parts. :mod:`~geoskip.layout.clustering` tells
from the bounds of files how well they are clustered. Nothing here knows Spark.
"""
