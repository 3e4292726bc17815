"""Addresses of both kinds in networks: the mapping, and the functions beside Python's own."""

from __future__ import annotations

import ipaddress
import itertools
import random
from typing import Any

import pyarrow as pa
import pytest

from geoskip import MinMax, ValueList
from geoskip.predicates import Column, Not
from tests.support.mapped import kept, metadata, python
from udf_mappings import networks

IP = Column("ip", "string")
ADDRESSES = [
    *["0.0.0.0", "9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", "192.168.1.77", "255.255.255.255"],
    *["::", "::1", "::ffff:10.1.2.3", "::FFFF:0a01:0203", "2001:db8::1", "2001:db8:ffff::", "ffff::", "fe80::1%eth0"],
    *[None, "", "010.0.0.1", "10.0.0.1 ", "10.0.0", "text"],
]
NETWORKS = [
    *["10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "192.168.1.77", "192.168.1.77/31", "::/0", "::ffff:0:0/96"],
    *["2001:db8::/32", "ffff::/16", "10.0.0.0/33", "text", "10.0.0.0/255.0.0.0"],
]


@pytest.mark.parametrize("index", [MinMax("packed_address(ip)"), ValueList("packed_address(ip)")], ids=str)
def test_an_address_lies_between_the_ends_of_its_network(index: Any) -> None:
    bound = index.bind((python(networks.packed_address, IP, type="binary"),))
    pairs = list(itertools.combinations_with_replacement(ADDRESSES, 2))
    summaries = metadata(
        bound, [(pa.array(map(networks.packed_address, pair), pa.binary()),) for pair in pairs], ("binary",)
    )
    for network in NETWORKS:
        inside = python(networks.in_network, IP, network, type="boolean")
        for node, wanted in ((inside, True), (Not(inside), False)):
            answer = kept(node, bound, summaries)
            for pair, keeps in zip(pairs, answer, strict=True):
                assert keeps or wanted not in [networks.in_network(one, network) for one in pair], (network, pair)
            exact = [wanted in [networks.in_network(one, network) for one in pair] for pair in pairs]
            if isinstance(index, ValueList) and networks.network_ends(network):
                assert answer == exact
            assert answer.count(False) > 0 or networks.network_ends(network) is None


def test_networks_are_those_of_pythons_own() -> None:
    draw = random.Random(2)
    for _ in range(2000):
        four = draw.random() < 0.5
        address = ipaddress.ip_address(draw.getrandbits(32 if four else 128))
        length = draw.randint(0, address.max_prefixlen)
        network = ipaddress.ip_network((address, length), strict=False)
        other = draw.choice([address, network[-1], network[0], network[0] - 1 if int(network[0]) else address])
        assert networks.in_network(str(other), str(network)) is (other in network)
