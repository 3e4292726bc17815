"""The demo's queries over the clustered layouts, as ``make demo`` runs them."""

from __future__ import annotations

import geoskip
from datasets.layout import lay_out
from examples import demo
from examples.demo_queries import INDEXES
from tests.bench.measure import PLACE, console
from tests.bench.sessions import session


def run() -> None:
    """Print the demo's table."""
    folders = lay_out(PLACE, which=("zipcodes_clustered", "flights_clustered"))
    for name, folder in folders.items():
        geoskip.dataset(session(), str(folder)).create_index(*INDEXES[name.partition("_")[0]])
    console.print(demo.table(demo.outcomes(console, session(), folders)))
