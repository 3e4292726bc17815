"""Pictures of what was skipped: ``geoskip.report(df).scans[0].plot_map()``.

Needs matplotlib and geopandas (``pip install 'geoskip[plot]'``), which are imported when a picture is asked for.
Borders come with the package: no tiles, no network.
"""

from geoskip.plotting.maps import plot_map

__all__ = ["plot_map"]
