r"""Lines of web servers' logs as templates for Formatted, and the parts of URLs.

The common and the combined log format (https://httpd.apache.org/docs/current/logs.html) become one Java regular
expression, with a named group for each requested part. The index and the queries use the same template::

    >>> lines = combined("day", "status", "agent")
    >>> index = Formatted("value", template=lines)
    >>> frame = spark.read.text(path).selectExpr("value", *columns("value", lines))  # doctest: +SKIP
    >>> frame.where("day = '10/Oct/2026' AND status LIKE '5%'")  # doctest: +SKIP

The selected columns are ``regexp_extract(value, ...)``, the expression of the index, which therefore decides every
condition on a part, also through a view. A line in another format has the empty string in every part, as in Spark; an
absent part is ``-``.
"""

from __future__ import annotations

from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.affix import Prefix
from geoskip.indexes.base import Index
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.minmax import MinMax
from geoskip.predicates import Call, Literal, Predicate, StartsWith
from geoskip.registry import maps
from udf_mappings import catalyst, equality
from udf_mappings.spark_sql import every

_QUOTED = r'[^"\\]*(?:\\.[^"\\]*)*'  # the servers escape a quote as \"; Java recurses once for each escape
_COMMON = (
    r"^{ip} \S+ {user} \[{day}:{time}\] "
    r'"(?:{method} {path}(?:\?{query})?(?: {protocol})?|' + _QUOTED + r')" {status} {bytes}'
)
_COMBINED = _COMMON + r' "{referrer}" "{agent}"'
_PARTS = {
    "ip": r"\S+",
    "user": r"\S+",
    "day": r"[^:\]]+",
    "time": r"[^\]]+",
    "method": r"[A-Z]+",
    "path": r'[^ ?"]+',
    "query": r'[^ "]*',
    "protocol": r'[^ "]+',
    "status": r"\d{3}",
    "bytes": r"\d+|-",
    "referrer": _QUOTED,
    "agent": _QUOTED,
}


def common(*parts: str) -> str:
    """The template of the common log format, with these parts as groups.

    Parts are ``ip user day time method path query protocol status bytes``: the day as ``10/Oct/2026``, the time with
    its zone, the path without the query.

    >>> import re
    >>> line = '10.0.0.7 - ann [10/Oct/2026:13:55:36 -0700] "GET /db/orders?id=7 HTTP/1.1" 404 512'
    >>> re.match(common("day", "path", "status").replace("?<", "?P<"), line).groups()
    ('10/Oct/2026', '/db/orders', '404')
    """
    return _template(_COMMON, parts)


def combined(*parts: str) -> str:
    """The template of the combined log format: the common one's parts, ``referrer`` and ``agent``."""
    return _template(_COMBINED, parts)


def _template(form: str, parts: tuple[str, ...]) -> str:
    known = [name for name in _PARTS if "{" + name + "}" in form]
    if not parts or not set(parts).issubset(known):
        raise InvalidSpecificationError(f"a log line's parts are {', '.join(known)}; got {', '.join(parts) or 'none'}")
    for name in known:
        form = form.replace("{" + name + "}", f"(?{f'<{name}>' if name in parts else ':'}{_PARTS[name]})")
    return form


def columns(column: str, template: str) -> list[str]:
    """SQL texts for ``selectExpr`` that split lines into the parts of a template.

    >>> columns("value", "^(?<ip>[^ ]+) ")
    ["regexp_extract(value, r'^(?<ip>[^ ]+) ', 1) AS ip"]
    """
    lines = Formatted(column, template=template)
    return [f"{lines.part(name)} AS {name}" for name in lines.parts]


@maps(*catalyst("ParseUrl", "parse_url"), index=(MinMax, Prefix))
def scheme(node: Predicate, index: Index) -> Clause | None:
    """``parse_url(url, 'PROTOCOL') = 'https'``: the URL begins with exactly this text and a colon.

    Other parts may be anywhere in the URL: they need ``ValueList(url)`` or
    ``Formatted("url", extract="parse_url({}, 'HOST')")``, which decide every condition on them.
    """
    match equality(node):
        case (Call(_, (url, Literal("PROTOCOL"))), values):
            return every(values, lambda value: index.clause(StartsWith(url, f"{value.value}:")))
    return None
