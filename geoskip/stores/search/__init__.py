"""The search store: metadata on an Elasticsearch or OpenSearch server, in format 1.

One alias of one index holds the metadata of a dataset, in documents of five kinds:

* ``log``, whose id is ``log``: the ``format`` and the ``identity`` of the current log;
* ``snapshot-<identity>-00000001``: a snapshot's header as text, with a checksum, as the Parquet store writes it;
* ``operation-<identity>-00000001``: an entry of the operation log as text;
* ``<part>-<row>``: a file: its path, size, time, tag and rows, its ``summaries``, exact and never indexed
  (:mod:`~geoskip.stores.search.documents`), and its ``keys``, which queries compare
  (:mod:`~geoskip.stores.search.clause_queries`);
* ``<part>-<column>-<row>``: small values of up to 4,096 rows of a column once more, to be read at once.

A header names parts and their removed rows, as in the Parquet store: a part never changes, and a small change is a
small part. It also has the checksum of each column and field of a part, which reading compares.

**Writing**: the part's documents in bulk, under ids that make repetition harmless; a refresh, so that every search
finds them; then the snapshot's document, created exclusively and atomically: of two writers one wins. Where the
response is lost, the document is read back. All writes require the alias, so that a writer cannot create an index that
was removed. A document's id holds the log's identity: the writer of a log that was dropped meanwhile writes beside the
log begun since, and removes its documents.

**Reading**: one search returns the identity and the latest number. Rows are counted, so that documents deleted while
they are read are noticed.

**Moving**: create an index with the same mappings, index the documents into it, and move the alias; readers are not
affected. Under other mappings, clauses are evaluated by geoskip instead of the server.
"""

from geoskip.stores.search.store import ElasticsearchStore

__all__ = ["ElasticsearchStore"]
