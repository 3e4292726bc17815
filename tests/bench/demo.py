"""The demo's queries over the clustered layouts, as ``make demo`` runs them."""

from __future__ import annotations

import geoskip
from datasets.layout import lay_out
from examples import demo
from examples.demo_queries import INDEXES, register_own
from tests.bench.measure import PLACE, console, judged
from tests.bench.sessions import session


def run() -> None:
    """Print the demo's table."""
    folders = lay_out(PLACE, which=("zipcodes_clustered", "flights_clustered"))
    for name, folder in folders.items():
        geoskip.dataset(session(), str(folder)).create_index(*INDEXES[name.partition("_")[0]])
    register_own(session())
    outcomes = demo.outcomes(console, session(), folders)
    console.print(demo.table(outcomes))
    fewer = sum(one.report.files_kept < one.report.files_total for one in outcomes)
    quicker = sum(one.on < one.off for one in outcomes)
    console.print(
        "The same rows off and on: every query, or this would have ended in RowsDiffer. Fewer files: "
        f"{judged(f'{fewer} of {len(outcomes)}', fewer == len(outcomes))}; quicker: "
        f"{judged(f'{quicker} of {len(outcomes)}', quicker == len(outcomes))}"
    )
