"""Internet addresses as SQL functions over ``ipaddress``, mapped to indexes on packed addresses.

``MinMax("packed_address(ip)")``, GapList or ValueList serve ``in_network(ip, '10.0.0.0/8')``. A condition on the text
of an address is decided value by value by ``ValueList("ip")``, without a mapping.

An IPv4 address is the IPv6 address ``::ffff:a.b.c.d`` (RFC 4291, section 2.5.5.2), so that all have one order and
``10.0.0.0/8`` is ``::ffff:10.0.0.0/104``. Every function is NULL for NULL and for text that is not an address or
network: numbers with leading zeros, blanks, ports.

>>> packed_address("10.1.2.3").hex(), packed_address("::ffff:10.1.2.3") == packed_address("10.1.2.3")
('00000000000000000000ffff0a010203', True)
>>> in_network("10.1.2.3", "10.0.0.0/8"), in_network("2001:db8::1", "2001:db8::/32"), in_network("10.01.2.3", "::/0")
(True, True, None)
"""

from __future__ import annotations

import functools
import ipaddress

from geoskip.clauses import Clause
from geoskip.indexes.base import Index
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Comparison, Literal, Not, Or, Predicate
from geoskip.registry import constant, declare, maps
from udf_mappings import PlainFunction, indexed_call, offered

FUNCTIONS: dict[str, PlainFunction] = {}
_MAPPED = 0xFFFF << 32


@offered(FUNCTIONS, "binary")
def packed_address(address: str | None) -> bytes | None:
    """The 16 bytes of an address, in the order of addresses."""
    if address is None:
        return None
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    return (int(found) | (_MAPPED if found.version == 4 else 0)).to_bytes(16, "big")


@offered(FUNCTIONS, "boolean")
def in_network(address: str | None, network: str | None) -> bool | None:
    """True if the address lies in the network; bits beyond the prefix are ignored."""
    packed, ends = packed_address(address), network_ends(network)
    return None if packed is None or ends is None else ends[0] <= packed <= ends[1]


@functools.lru_cache(maxsize=4096)
def network_ends(network: str | None) -> tuple[bytes, bytes] | None:
    """Return the first and the last address of a network, packed; None if it is no network.

    >>> [end.hex()[20:] for end in network_ends("192.168.1.77/24")]
    ['ffffc0a80100', 'ffffc0a801ff']
    """
    if network is None:
        return None
    try:
        found = ipaddress.ip_network(network, strict=False)
    except ValueError:
        return None
    mapped = _MAPPED if found.version == 4 else 0
    first, last = (int(end) | mapped for end in (found.network_address, found.broadcast_address))
    return first.to_bytes(16, "big"), last.to_bytes(16, "big")


for _entry in FUNCTIONS.values():
    declare(_entry.function, null_in_null_out=True)


@maps(in_network, index=(MinMax, GapList, ValueList))
def network_range(node: Predicate, index: Index) -> Clause | None:
    """``in_network(ip, '10.0.0.0/8')``: the packed address is between the network's first and last."""
    match node:
        case Call(_, (address, Literal(str() as network))) | Not(Call(_, (address, Literal(str() as network)))):
            ends, packed = network_ends(network), indexed_call(index, packed_address, address)
            if ends is None or packed is None:
                return None
            first, last = (Literal(end, "binary") for end in ends)
            if isinstance(node, Not):
                return clause_for(Or((Comparison("<", packed, first), Comparison(">", packed, last))), [index])
            return clause_for(And((Comparison(">=", packed, first), Comparison("<=", packed, last))), [index])
    return None


constant(packed_address)(packed_address)
constant(in_network)(in_network)
