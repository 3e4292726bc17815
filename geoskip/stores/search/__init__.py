"""The search store: metadata on an Elasticsearch or OpenSearch server, in format 1.

The metadata of a dataset are in one index with one alias, as documents of five kinds:

* ``log`` (this is also its id): the ``format`` and the ``identity`` of the current log;
* ``snapshot-<identity>-00000001``: a snapshot's header as text with a checksum, as in the Parquet store;
* ``operation-<identity>-00000001``: an entry of the operation log as text;
* ``<part>-<row>``: a file: its path, size, time, tag and rows, its ``summaries``, which are exact and not indexed
  (:mod:`~geoskip.stores.search.documents`), and its ``keys``, which queries compare
  (:mod:`~geoskip.stores.search.clause_queries`);
* ``<part>-<column>-<row>``: a copy of small values of up to 4,096 rows of a column, to be read at once.

A header names parts and their removed rows, as in the Parquet store: a part never changes, and a small change is a
small part. It also has the checksum of each column and field of a part, which are verified when reading.

**Writing**: the part's documents in bulk, with fixed ids so that repetition is harmless; a refresh, so that every
search finds them; then the snapshot's document, created exclusively and atomically: of two writers one wins. If the
response is lost, the document is read back. All writes require the alias, so that a writer cannot create an index that
was removed. The ids of entries contain the log's identity: after a log was dropped, its writers do not write into the
log that has begun since, and remove their documents.

**Reading**: one search returns the identity and the latest number. Rows are counted, so that documents deleted during
the read are detected.

**Moving**: create an index with the same mappings, index the documents into it, and move the alias; readers are not
affected. With other mappings, clauses are evaluated by geoskip instead of the server.
"""

from geoskip.stores.search.store import ElasticsearchStore

__all__ = ["ElasticsearchStore"]
