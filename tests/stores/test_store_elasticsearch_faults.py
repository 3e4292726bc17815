"""The search store when its server is away, slow, busy, wrong or not to be trusted: bounded, told, and repeatable."""

from __future__ import annotations

import base64
import datetime as dt
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from geoskip import predicates as p
from geoskip.errors import ConflictError, MetadataError
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileRow, Header, IndexEntry, build_table
from geoskip.planner import decide
from geoskip.stores.search import ElasticsearchStore, server
from tests.stores.test_store_elasticsearch import QUICK
from tests.support.servers.proxy import Proxy, Request

pytestmark = pytest.mark.parametrize("search_server", ["opensearch"], indirect=True)  # what fails is before it

INDEX = MinMax("n").bind([p.Column("n", "bigint")])
ENTRY = IndexEntry(INDEX, (("n", "bigint"),), pa.struct([(f, pa.int64()) for f in ("min", "max", "nulls", "rows")]))
HEADER = Header("file:/data", {"format": "parquet"}, (ENTRY,))
BIG = p.Comparison(">=", p.Column("n", "bigint"), p.Literal(7, "bigint"))


def files(*numbers: int) -> pa.Table:
    summaries = [{"min": n, "max": n, "nulls": 0, "rows": 1} for n in numbers]
    return build_table(
        [ENTRY], [FileRow(f"f{n}", 5, 6, None, 1, {str(INDEX): s}) for n, s in zip(numbers, summaries, strict=True)]
    )


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build's first pause is short."""
    monkeypatch.setattr("geoskip.stores.search.server._FIRST_PAUSE", 0.01)


@pytest.fixture
def proxy(search_server: Any) -> Iterator[Proxy]:
    with Proxy(search_server.url) as found:
        yield found


@pytest.fixture
def reopen(proxy: Proxy) -> Callable[..., ElasticsearchStore]:
    def handle(**options: Any) -> ElasticsearchStore:
        options = {"settings": QUICK, "timeout": 20.0, "patience": 20.0, **options}
        return ElasticsearchStore(proxy.url, "faults", **options)

    handle().drop()
    return handle


def kept(store: ElasticsearchStore) -> tuple[list[int], str]:
    """What a query keeps of the latest snapshot, and why it keeps all if it does."""
    decision = decide(store.load(store.latest() or 0), BIG)
    return np.flatnonzero(decision.keep).tolist(), "; ".join(decision.reasons)


def first(*answers: Any, of: str = "") -> Callable[[Request], Any]:
    """These answers to the first requests whose path has the text, then none."""
    left = list(answers)
    return lambda request: left.pop(0) if left and of in request[1] else None


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask_above", [0, 2000], ids=["asking", "reading"])
def test_a_query_that_the_server_fails_reads_every_file(
    proxy: Proxy, reopen: Any, ask_above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoskip.stores.search.server._SLOW", 60.0)  # a slow machine is no slow server
    reopen().commit(HEADER, files(*range(10)), expected=None)
    for fault in (429, 500, 503, "cut", "<html>", "[]", "{}", '{"hits": {"hits": [{}]}}'):
        snapshot = reopen(ask_above=ask_above).load(1)
        proxy.fault = lambda request, fault=fault: fault
        decision = decide(snapshot, BIG)
        assert decision.keep.all(), fault
        (reason,) = decision.reasons
        assert "could not be evaluated" in reason
        proxy.fault = lambda request: None
        assert np.flatnonzero(decide(snapshot, BIG).keep).tolist() == [7, 8, 9], "and skips again when it is well"


def test_a_server_that_hangs_costs_one_wait_and_not_one_a_query(
    proxy: Proxy, reopen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoskip.stores.search.server._PAUSES", 100)  # so that it is not over on a slow machine
    store = reopen()
    store.commit(HEADER, files(*range(10)), expected=None)
    snapshot = store.load(1)
    store.server.timeout = 0.6
    proxy.fault = lambda request: "hang"
    del proxy.seen[:]
    started = time.monotonic()
    reasons = [decide(snapshot, BIG).reasons[0] for _ in range(5)]
    assert len(proxy.seen) <= 1, "none where the request was given up before it came in"
    assert time.monotonic() - started < 30
    assert "did not answer within 0.6 s" in reasons[0]
    assert "it is asked again in" in reasons[4]


def test_a_server_that_is_down_is_said_so(proxy: Proxy, reopen: Any) -> None:
    store = reopen()
    store.commit(HEADER, files(1), expected=None)
    proxy.close()
    for ask in (store.latest, store.identity, lambda: store.load(1), store.describe):
        with pytest.raises(MetadataError, match="cannot be reached"):
            ask()


def test_any_of_several_hosts_serves(search_server: Any, proxy: Proxy, reopen: Any) -> None:
    reopen().commit(HEADER, files(*range(10)), expected=None)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        store = ElasticsearchStore([down, search_server.url], "faults", timeout=20)
        assert [kept(store) for _ in range(3)] == [([7, 8, 9], "")] * 3


@pytest.mark.parametrize("ask_above", [0, 2000], ids=["asking", "reading"])
def test_lost_and_changed_documents_are_noticed(search_server: Any, reopen: Any, ask_above: int) -> None:
    store = reopen(ask_above=ask_above)
    part = store.commit(HEADER, files(*range(10)), expected=None).parts[0].name
    lost, why = f"{part}-8", "has 9 of the snapshot's 10 documents"
    if ask_above:
        slot = next(name for name in store.load(1).header.parts[0].columns if name.startswith("minmax"))
        lost, why = f"{part}-{slot}-0", "has 0 of 10 rows"
        change = {"doc": {"summaries": {"max": [99, *range(1, 10)]}}}
        store.server.tell("POST", f"/faults/_update/{lost}", change, refresh="true")
        assert "is damaged: its checksum differs" in kept(store)[1]
    store.server.tell("DELETE", f"/faults/_doc/{lost}", refresh="true")
    numbers, reason = kept(reopen(ask_above=ask_above))
    assert numbers == list(range(10)), "file 8 matches, and is not taken for skipped"
    assert why in reason


def test_a_lost_index_is_like_no_index_and_can_be_made_anew(reopen: Any) -> None:
    store = reopen()
    old = store.commit(HEADER, files(1), expected=None)
    snapshot = store.load(1)
    store.server.tell("DELETE", "/faults-000001")
    decision = decide(snapshot, BIG)
    assert decision.keep.all()
    assert "has no faults" in decision.reasons[0]
    assert (reopen().latest(), reopen().identity(), reopen().operations()) == (None, None, ())
    with pytest.raises(ConflictError):
        store.commit(old, files(2), expected=1)
    with pytest.raises(ConflictError):
        store.record(1, {}, identity=old.identity)
    assert store.latest() is None, "an old writer brings no index back"
    assert reopen().commit(HEADER, files(7), expected=None).identity != old.identity
    assert kept(store) == ([0], "")


# --- builds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [429, "cut", "lost"])
def test_a_build_goes_on_when_the_server_is_well_again(proxy: Proxy, reopen: Any, fault: Any) -> None:
    failed: list[str] = []

    def fail_once(request: Request) -> Any:
        step = next((step for step in STEPS if step in request[1] and step not in failed), None)
        return None if step is None else failed.append(step) or fault

    proxy.fault = fail_once
    header = reopen().commit(HEADER, files(*range(10)), expected=None)
    proxy.fault = lambda request: None
    assert len(failed) == len(STEPS)
    assert (kept(reopen()), reopen().snapshots()) == (([7, 8, 9], ""), (1,))
    assert header.parts == reopen().load(1).header.parts


STEPS = ("_search", "_doc/log", "_create/log", "_mapping", "_bulk", "_refresh", "_create/snapshot")


def test_a_build_that_fails_leaves_the_snapshot_before_it_and_can_be_repeated(proxy: Proxy, reopen: Any) -> None:
    header = reopen().commit(HEADER, files(*range(9)), expected=None)
    impatient = reopen(patience=0)
    none, other = '{"items": []}', '{"items": [{}]}'
    steps = (("_bulk", 500), ("_bulk", "<html>"), ("_bulk", none), ("_bulk", other), ("_refresh", 503))
    for step, fault in (*steps, ("_create/snapshot", "cut"), ("_search", '{"hits": {"hits": [{}]}}')):
        proxy.fault = lambda request, step=step, fault=fault: fault if step in request[1] else None
        with pytest.raises(MetadataError):
            impatient.amend(header, pa.array([False] * 9), files(9), expected=1)
        proxy.fault = lambda request: None
        assert (reopen().latest(), kept(reopen())[0]) == (1, [7, 8])
    impatient.amend(header, pa.array([False] * 9), files(9), expected=1)
    assert kept(reopen()) == ([7, 8, 9], "")
    assert reopen().sweep(tuple) >= 0
    assert kept(reopen()) == ([7, 8, 9], "")


def test_a_lost_answer_to_a_creation_is_no_lost_race(proxy: Proxy, reopen: Any) -> None:
    store = reopen()
    identity = store.begin()
    proxy.fault = first("lost", of="_create/operation")
    store.record(1, {"verb": "create"}, identity=identity)
    for verb in ("another", "create"):  # another's entry, even one of the same words, is another's
        with pytest.raises(ConflictError):
            store.record(1, {"verb": verb}, identity=identity)
    assert store.operation(1) == {"verb": "create"}


def test_documents_that_the_server_puts_off_are_sent_again_and_only_those(proxy: Proxy, reopen: Any) -> None:
    store = reopen()
    sent: list[str] = []
    answers = store.server.tell

    def tell(method: str, path: str, body: Any = None, **params: Any) -> Any:
        answer = answers(method, path, body, **params)
        if path.endswith("/_bulk"):
            sent.append(body)
            if len(sent) == 1:
                answer["items"][3]["index"] |= {"status": 429, "error": {"reason": "queue full"}}
        return answer

    store.server.tell = tell
    store.commit(HEADER, files(*range(10)), expected=None)
    assert [body.count('"kind":"file"') for body in sent] == [10, 1]
    assert kept(reopen()) == ([7, 8, 9], "")


def test_a_request_that_is_too_long_for_the_server_is_sent_in_parts(reopen: Any) -> None:
    store, sent = reopen(), list[int]()
    answers = store.server._answer

    def answer(method: str, path: str, body: Any, *rest: Any) -> Any:
        if path.endswith("/_bulk"):
            sent.append(body.count('"kind":"file"'))
            if len(body) > 1500:
                raise server._TooLargeError("answered 413")
        return answers(method, path, body, *rest)

    store.server._answer = answer
    store.commit(HEADER, files(*range(10)), expected=None)
    assert sent[0] == 10
    assert len(sent) > 3
    assert kept(reopen()) == ([7, 8, 9], "")
    store.server._answer = lambda *request: (_ for _ in ()).throw(server._TooLargeError("answered 413"))
    with pytest.raises(MetadataError, match="413"):
        store.server.store("faults", [("x-0", "{}")])


@pytest.mark.parametrize("their_id", ["1", "log"])
@pytest.mark.parametrize(("index", "name"), [("theirs", "theirs"), ("theirs", "alias"), ("theirs-000001", "theirs")])
def test_an_index_that_is_not_ours_is_left_alone(search_server: Any, index: str, name: str, their_id: str) -> None:
    store = ElasticsearchStore(search_server.url, name, settings=QUICK, timeout=20, patience=5)
    store.server.tell("PUT", f"/{index}", {"settings": QUICK, "aliases": {name: {}} if name == "alias" else {}})
    try:
        store.server.tell("PUT", f"/{index}/_doc/{their_id}", THEIRS, refresh="true")
        with pytest.raises(MetadataError, match="give the store a"):
            store.commit(HEADER, files(1), expected=None)
        with pytest.raises(MetadataError, match="give the store a") if name in (index, "alias") else nullcontext():
            store.drop()
        assert store.server.document(index, their_id) == THEIRS
        if name == "alias":  # as that of one index can
            store.server.tell("PUT", f"/{name}/_doc/2", THEIRS)
    finally:
        store.server.tell("DELETE", f"/{index}")


THEIRS = {"kind": "file", "part": "engine", "identity": "me", "number": 5}


def test_documents_of_others_in_our_index_are_left_alone(reopen: Any) -> None:
    store = reopen()
    store.commit(HEADER, files(*range(10)), expected=None)
    for kind in ("file", "snapshot"):
        store.server.tell("PUT", f"/faults/_doc/{kind}", {**THEIRS, "kind": kind}, refresh="true")
    assert store.sweep(tuple) == 0
    assert kept(store) == ([7, 8, 9], "")
    store.drop()
    assert [store.server.document("faults", kind)["part"] for kind in ("file", "snapshot")] == ["engine"] * 2
    for kind in ("file", "snapshot"):
        store.server.tell("DELETE", f"/faults/_doc/{kind}")


def test_who_may_not_see_mappings_builds_and_removes_all_the_same(proxy: Proxy, reopen: Any) -> None:
    proxy.fault = lambda request: 403 if request == ("GET", "/faults/_mapping") else None
    store = reopen()
    for _ in range(2):
        store.drop()
        assert store.latest() is None
        store.commit(HEADER, files(*range(10)), expected=None)
        assert kept(reopen()) == ([7, 8, 9], "")


def test_a_log_begins_anew_in_the_index_that_the_old_one_was_moved_to(reopen: Any) -> None:
    store = reopen()
    store.commit(HEADER, files(1), expected=None)
    told = store.server.tell("GET", "/faults-000001/_mapping")["faults-000001"]["mappings"]
    store.server.tell("PUT", "/faults-000002", {"mappings": told, "settings": QUICK})
    copy = {"source": {"index": "faults-000001"}, "dest": {"index": "faults-000002"}}
    store.server.tell("POST", "/_reindex", copy, refresh="true")
    add = [{"remove_index": {"index": "faults-000001"}}, {"add": {"index": "faults-000002", "alias": "faults"}}]
    store.server.tell("POST", "/_aliases", {"actions": add})
    try:
        store.drop()
        reopen().commit(HEADER, files(*range(10)), expected=None)
        assert kept(reopen()) == ([7, 8, 9], "")
    finally:
        store.server.tell("DELETE", "/faults-000002")


def test_an_index_that_is_read_only_is_no_question_of_credentials(reopen: Any) -> None:
    store = reopen()
    header = store.commit(HEADER, files(*range(10)), expected=None)
    try:
        store.server.tell("PUT", "/faults-000001/_settings", {"index.blocks.write": True})
        with pytest.raises(MetadataError, match="blocked by") as raised:
            store.record(1, {"verb": "create"}, identity=header.identity)
        assert "credentials" not in str(raised.value)
        assert kept(reopen()) == ([7, 8, 9], "")
    finally:
        store.server.tell("PUT", "/faults-000001/_settings", {"index.blocks.write": None})


def test_a_document_that_the_server_refuses_fails_the_build(reopen: Any) -> None:
    store = reopen()
    store.begin()
    with pytest.raises(MetadataError, match="did not store a document: 400"):
        store.server.store("faults", [("x-0", '{"row": "no number"}')])
    with pytest.raises(MetadataError, match="refused a request"):
        store.server.tell("POST", "/faults/_bulk", "no lines")


# --- who may, and whom to trust ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that no authority signed, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    path = tmp_path_factory.mktemp("certificate") / "localhost.pem"
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, form, plain) + made.public_bytes(pem))
    return path


def test_tls_certificates_are_verified_unless_one_says_otherwise(search_server: Any, certificate: Path) -> None:
    with Proxy(search_server.url, certificate) as proxy:
        with pytest.raises(MetadataError, match="cannot be trusted"):
            ElasticsearchStore(proxy.url, "none", user="me", password="s3cret", timeout=20).latest()
        assert proxy.credentials == [], "nothing is told to who cannot be trusted"
        other_name = proxy.url.replace("localhost", "127.0.0.1")
        with pytest.raises(MetadataError, match="cannot be trusted"):
            ElasticsearchStore(other_name, "none", ca_certs=str(certificate), timeout=20).latest()
        for options in ({"ca_certs": str(certificate)}, {"verify_certs": False}):
            assert ElasticsearchStore(proxy.url, "none", timeout=20, **options).latest() is None


def test_credentials_go_with_every_request_and_into_no_message(proxy: Proxy) -> None:
    store = ElasticsearchStore(proxy.url, "none", user="me", password="s3cret", timeout=20)
    assert (store.latest(), store.identity()) == (None, None)
    assert set(proxy.credentials) == {"Basic " + base64.b64encode(b"me:s3cret").decode()}
    proxy.fault = lambda request: 401
    with pytest.raises(MetadataError, match="refused the credentials: 401") as raised:
        store.latest()
    assert "s3cret" not in f"{raised.value!r} {store!r} {store.location} {vars(store)}"
    proxy.fault = lambda request: None
    assert ElasticsearchStore(proxy.url, "none", headers={"Authorization": "ApiKey abc"}, timeout=20).latest() is None
    assert proxy.credentials[-1] == "ApiKey abc"
    assert ElasticsearchStore(proxy.url, "none", user="me", password="ключ", timeout=20).latest() is None
    assert proxy.credentials[-1] == "Basic " + base64.b64encode("me:ключ".encode()).decode()
