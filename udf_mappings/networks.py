"""Addresses in networks, mapped to indexes over the packed address: ``MinMax("packed_address(ip)")`` and others.

Bound to the functions of :mod:`udf_mappings.network_functions`. A condition on the text of an address is decided
value by value by ``ValueList("ip")``, without a mapping.
"""

from __future__ import annotations

from geoskip.clauses import Clause
from geoskip.indexes.base import Index
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.labelling import clause_for
from geoskip.predicates import And, Call, Comparison, Literal, Not, Or, Predicate
from geoskip.registry import constant, maps
from geoskip.registry.fingerprint import identity
from udf_mappings.network_functions import ends_of, in_network, packed_address


@maps(in_network, index=(MinMax, GapList, ValueList))
def between_its_ends(node: Predicate, index: Index) -> Clause | None:
    """``in_network(ip, '10.0.0.0/8')``: the packed address is between the network's first and last."""
    match node:
        case Call(_, (address, Literal(str() as network))) | Not(Call(_, (address, Literal(str() as network)))):
            ends, packed = ends_of(network), _packed(index, address)
            if ends is None or packed is None:
                return None
            first, last = (Literal(end, "binary") for end in ends)
            if isinstance(node, Not):
                return clause_for(Or((Comparison("<", packed, first), Comparison(">", packed, last))), [index])
            return clause_for(And((Comparison(">=", packed, first), Comparison("<=", packed, last))), [index])
    return None


def _packed(index: Index, address: Predicate) -> Call | None:
    """Return the indexed expression if it is this address, packed."""
    match index.bound:
        case (Call(_, (indexed,)) as packed,) if indexed == address:
            return packed if packed.implementation == f"python:{identity(packed_address)}" else None
    return None


constant(packed_address)(packed_address)
constant(in_network)(in_network)
