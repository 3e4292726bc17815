"""The search store: metadata on an Elasticsearch or OpenSearch server, format 1 as everywhere.

One alias, and behind it one index, holds the metadata of a dataset, in documents of five kinds:

* ``log``, whose id is ``log``: the ``format`` and the ``identity`` of the current log;
* ``snapshot-<identity>-00000001``: a snapshot, its header as text, with a checksum, as the Parquet store writes it;
* ``operation-<identity>-00000001``: an entry of the operation log, as text too;
* ``<part>-<row>``: a file: its path, size, time, tag and rows, its ``summaries``, exact and never indexed
  (:mod:`~geoskip.stores.search.json_values`), and its ``keys``, which queries compare
  (:mod:`~geoskip.stores.search.translate`);
* ``<part>-<column>-<row>``: the same values of up to 4,096 rows of a column, where they are small, to be read at once.

A header names parts and says which of their rows were removed since, as in the Parquet store: a part never changes, and
a small change is a small part. It also has the checksum of each part's column and field, which reading compares.

**Writing**: the part's documents in bulk, each under an id of its own so that repeating changes nothing; a refresh, so
that every search finds them; then the snapshot's document, created exclusively: of two writers one wins, and nobody
sees a half. Where the answer to that is lost the document is read back. All writing goes by the alias and requires it,
so that a writer cannot bring back an index that is gone. A document's id has the log's identity in it: the writer of a
log that was dropped meanwhile writes beside the log begun since, and takes it back.

**Reading**: one search tells the identity and the latest number. What is deleted by others while it is read is noticed:
rows are counted.

**Moving**: make another index with the mappings of this one, index the documents into it, and let the alias name that;
readers notice nothing. Where the mappings are others, clauses are evaluated here.
"""

from geoskip.stores.search.store import ElasticsearchStore

__all__ = ["ElasticsearchStore"]
