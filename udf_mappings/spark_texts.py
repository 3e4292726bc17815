"""Spark's own string functions, mapped to prefixes and suffixes: MinMax, Prefix and Suffix.

Most of them give a part of the text, so a condition on the part says how the text begins or ends. Two
tables of classes, :data:`BEGIN` and :data:`END`, list the parts; the rules below use them. All are bound to the
Catalyst classes that queries arrive with: ``left`` and ``right`` as ``Substring``, ``split_part`` as ``ElementAt``
of ``StringSplitSQL``.

To add a function: a row in a table, or a rule with the reason why no matching row is lost.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from geoskip.bounds.sort_keys import literal_prefix, literal_suffix
from geoskip.clauses import KEEP_NONE, Clause
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Comparison, EndsWith, In, Like, Literal, Or, Predicate, StartsWith
from geoskip.registry import maps
from geoskip.registry.functions import catalyst_class
from udf_mappings import catalyst, equality, is_catalyst
from udf_mappings.spark_sql import BEGINNINGS, trimmed_characters

Part = tuple[Predicate, str | None]
"""A text and the separator of its part; None for an unknown separator."""
_FEW = 16
_LONGEST = 100


def _of_split(call: Call, place: int) -> Part | None:
    match call.args:
        case (Call(_, (text, Literal(str() as separator))) as split, Literal(int() as at), *_) if at == place:
            return (text, separator) if is_catalyst(split, "StringSplitSQL") else None
    return None


def _of_pattern(call: Call) -> Part | None:
    match call.args:
        case (Call(_, (text, *_)) as split, Literal(0)) if is_catalyst(split, "StringSplit"):
            return text, None
    return None


def _of_index(call: Call, sign: int) -> Part | None:
    match call.args:
        case (text, Literal(str() as separator), Literal(int() as count)) if count * sign > 0:
            return text, separator if abs(count) == 1 else None
    return None


BEGIN: dict[str, Callable[[Call], Part | None]] = {
    "ElementAt": lambda call: _of_split(call, 1),  # split_part(s, '-', 1)
    "GetArrayItem": _of_pattern,  # split(s, '-')[0]
    "SubstringIndex": lambda call: _of_index(call, 1),
    "StringTrimRight": lambda call: (call.args[0], None),
}
END: dict[str, Callable[[Call], Part | None]] = {
    "ElementAt": lambda call: _of_split(call, -1),
    "SubstringIndex": lambda call: _of_index(call, -1),
    "StringTrimLeft": lambda call: (call.args[0], None),
}
NAMES = {
    "ElementAt": ("element_at",),
    "GetArrayItem": ("getarrayitem",),
    "SubstringIndex": ("substring_index",),
    "StringTrim": ("trim",),
    "StringTrimLeft": ("ltrim",),
    "StringTrimRight": ("rtrim",),
}


def _part(node: Predicate, table: dict[str, Callable[[Call], Part | None]]) -> Part | None:
    rule = table.get(catalyst_class(node))
    return rule(node) if rule is not None and isinstance(node, Call) else None


def _sure(call: Predicate, text: str, place: int = 0) -> str:
    """Return the beginning (``place`` -1: the end) that a call's result and its operand have in common.

    Splitting works on decoded texts, in which each byte that is not UTF-8 reads as U+FFFD.
    """
    return (
        _UNDECODED.split(text)[place] if is_catalyst(call, "ElementAt") or is_catalyst(call, "GetArrayItem") else text
    )


_UNDECODED = re.compile("[\ufffd\ud800-\udfff]")


def _equal_texts(node: Predicate) -> tuple[Predicate, list[str]] | None:
    """Return the expression and the texts of ``e = 'a'`` or ``e IN ('a', 'b')``, or None."""
    found = equality(node)
    return None if found is None or len(found[1]) > _FEW else (found[0], [literal.value for literal in found[1]])


@maps(*(f for kind in BEGIN for f in catalyst(kind, *NAMES[kind])), index=BEGINNINGS)
def first_part(node: Predicate, index: Index) -> Clause | None:
    """A text starts with its beginning and is not below it; the separator or nothing follows."""
    match node:
        case Comparison(">" | ">=" as op, call, Literal(str() as value) as least) if part := _part(call, BEGIN):
            # U+FFFD may be above the byte that it stands for
            if value.isascii() or is_catalyst(call, "SubstringIndex") or is_catalyst(call, "StringTrimRight"):
                return clause_for(Comparison(op, part[0], least), [index])
        case StartsWith(call, start) if (part := _part(call, BEGIN)) is not None:
            return clause_for(StartsWith(part[0], _sure(call, start)), [index])
    return _equals_its_part(node, index, BEGIN, StartsWith)


@maps(*(f for kind in END for f in catalyst(kind, *NAMES[kind])), index=Suffix)
def last_part(node: Predicate, index: Suffix) -> Clause | None:
    """A text ends with its last part; the separator or nothing precedes."""
    match node:
        case EndsWith(call, end) if (part := _part(call, END)) is not None:
            return clause_for(EndsWith(part[0], _sure(call, end, -1)), [index])
    return _equals_its_part(node, index, END, EndsWith)


def _equals_its_part(
    node: Predicate, index: Index, table: dict[str, Callable[[Call], Part | None]],
    test: Callable[[Predicate, str], Predicate],
) -> Clause | None:  # fmt: skip
    """Map equalities of a part: the text is it, or begins (ends) with it and the separator."""
    equality = _equal_texts(node)
    if equality is None or (part := _part(equality[0], table)) is None:
        return None
    text, separator = part
    found: list[Predicate] = []
    for value in equality[1]:
        if separator:
            found.append(_equal(equality[0], text, value, test))
        joined = (separator or "") + value if test is EndsWith else value + (separator or "")
        found.append(test(text, _sure(equality[0], joined, -1 if test is EndsWith else 0)))
    return clause_for(Or(tuple(found)), [index]) if found else None


def _equal(call: Predicate, text: Predicate, value: str, test: Callable[[Predicate, str], Predicate]) -> Predicate:
    """Return the condition that the text is the value, as far as that is sure."""
    sure = _sure(call, value, -1 if test is EndsWith else 0)
    return Comparison("=", text, Literal(value, "string")) if sure == value else test(text, sure)


# ---- trims


@maps(*catalyst("StringTrim", "trim"), *catalyst("StringTrimLeft", "ltrim"), index=BEGINNINGS)
def trim_prefix(node: Predicate, index: Index) -> Clause | None:
    """``trim(s) = 'ab'``: s begins with it, or with a character that is trimmed."""
    return _trim_clause(node, index, StartsWith)


@maps(*catalyst("StringTrim", "trim"), *catalyst("StringTrimRight", "rtrim"), index=Suffix)
def trim_suffix(node: Predicate, index: Suffix) -> Clause | None:
    """``trim(s) = 'ab'``: s ends with it, or with a character that is trimmed."""
    return _trim_clause(node, index, EndsWith)


def _trim_clause(node: Predicate, index: Index, test: Callable[[Predicate, str], Predicate]) -> Clause | None:
    match _equal_texts(node):
        case (Call(_, (text, *rest)), values):
            if (cut := trimmed_characters(rest)) is not None and values:
                return clause_for(Or(tuple(test(text, start) for start in [*values, *cut])), [index])
    return None


# ---- upper and lower case

_CASED, _CASED_IN_ENTRIES = 3, 4
"""Letters whose spellings are all tried, with bounds and with entries: each letter doubles them."""
_CHARACTERS = 16


@maps(*catalyst("Upper", "upper", "ucase"), *catalyst("Lower", "lower", "lcase"), index=BEGINNINGS)
def case_insensitive_prefix(node: Predicate, index: Index) -> Clause | None:
    """``upper(s) LIKE 'ABC%'``: s begins with a spelling of ABC, or a non-ASCII character comes first.

    An ASCII letter has the case of the very letter, whatever stands around it. Other characters may turn into ASCII
    ones: the Kelvin sign into k, ß into SS. Bytes that are not UTF-8 never do, so such characters begin at U+0080.
    """
    match node:
        case StartsWith(Call(_, (text,)), start):
            starts = [start]
        case Like(Call(_, (text,)), pattern, escape):
            starts = [literal_prefix(pattern, escape)[0]]
        case _:
            equality = _equal_texts(node)
            if equality is None or not isinstance(equality[0], Call):
                return None
            (text,), starts = equality[0].args, equality[1]
    most = _CASED_IN_ENTRIES if isinstance(index, Prefix) and len(starts) == 1 else _CASED
    heads = [_head(start, most) for start in starts[: _FEW // 2 + 1]]
    if not heads or not all(heads) or len(heads) > _FEW // 2:
        return None
    return clause_for(Or(tuple(part for head in heads for part in _spellings(text, head))), [index])


def _head(start: str, letters: int) -> str:
    """Return the longest beginning that is ASCII and has few letters.

    >>> _head("san francisco", 5), _head("2024-06-30T23:59:59", 5), _head("straße", 5)
    ('san fr', '2024-06-30T23:59', 'stra')
    """
    places = [at for at, char in enumerate(start) if char.isalpha() and char.isascii()]
    end = places[letters] if len(places) > letters else len(start)
    return re.match(r"[\x00-\x7f]*", start[: min(end, _CHARACTERS)])[0]  # type: ignore[index]


def _spellings(text: Predicate, head: str) -> Iterator[Predicate]:
    for length in range(len(head) + 1):
        for letters in itertools.product(*(sorted({letter.lower(), letter.upper()}) for letter in head[:length])):
            start = "".join(letters)
            if length == len(head):
                yield StartsWith(text, start)
            else:
                beyond = Comparison(">=", text, Literal(start + "\u0080", "string"))
                yield And((StartsWith(text, start), beyond)) if start else beyond


# ---- texts put together


@maps(*catalyst("Concat", "concat"), index=Index)
def concat_prefix(node: Predicate, index: Index) -> Clause | None:
    """``concat('a/', s, t) = 'a/bc'``: s is ``''``, ``b`` or ``bc``; a literal after s fixes its end.

    Of ``concat(s, 'x') LIKE 'abc%'``, s begins so, or is that much of it that ``x`` may follow.
    """
    return _concat_clause(node, index, StartsWith, literal_prefix)


@maps(*catalyst("Concat", "concat"), index=Index)
def concat_suffix(node: Predicate, index: Index) -> Clause | None:
    """``concat(s, t, '/z') = 'a/z'``: the arguments are matched from the end."""
    return _concat_clause(node, index, EndsWith, literal_suffix)


def _concat_clause(
    node: Predicate, index: Index, kind: type[StartsWith | EndsWith], known: Callable[[str, str], tuple[str, bool]]
) -> Clause | None:
    match node:
        case StartsWith(Call(_, args), text) | EndsWith(Call(_, args), text) if isinstance(node, kind):
            return _put_together(args, [text], index, kind)
        case Like(Call(_, args), pattern, escape):
            return _put_together(args, [known(pattern, escape)[0]], index, kind)
    match _equal_texts(node):
        case Call(_, args), texts:
            return _put_together(args, texts, index, None, backwards=kind is EndsWith)
    return None


def _put_together(
    args: tuple[Predicate, ...], texts: list[str], index: Index,
    test: Callable[[Predicate, str], Predicate] | None, *, backwards: bool = False,
) -> Clause | None:  # fmt: skip
    """Conditions on the first (or last) non-literal argument, if the whole is or begins with a text.

    ``test`` is None for the whole text. Texts are ASCII, so that none is cut within a character.
    """
    turned = slice(None, None, -1 if backwards or test is EndsWith else 1)
    args, texts = args[turned], [text[turned] for text in texts]
    place = next((n for n, arg in enumerate(args) if not isinstance(arg, Literal)), None)
    values = [arg.value for arg in args if isinstance(arg, Literal)]
    if place is None or not all(isinstance(value, str) and value.isascii() for value in [*values, *texts]):
        return None
    others = next((n for n, arg in enumerate(args[place + 1 :], place + 1) if not isinstance(arg, Literal)), len(args))
    before, after = ("".join(arg.value[turned] for arg in args[a:b] if isinstance(arg, Literal))
                     for a, b in ((0, place), (place + 1, others)))  # fmt: skip
    found: list[Predicate] = []
    for text in texts:
        if test is not None and before.startswith(text):
            return None  # it begins so with any argument
        if not text.startswith(before):
            continue
        rest = text[len(before) :]
        if len(rest) > _LONGEST:
            return None
        heads = [rest[:n] for n in range(len(rest) + 1)
                 if _may_follow(rest[n:], after, more=others < len(args), begins=test is not None)]  # fmt: skip
        found.append(In(args[place], tuple(Literal(head[turned], "string") for head in heads)))
        if test is not None:
            found.append(test(args[place], rest[turned]))
    return clause_for(Or(tuple(found)), [index]) if found else KEEP_NONE


def _may_follow(rest: str, after: str, *, more: bool, begins: bool) -> bool:
    """True if this may be the rest of a text, followed by ``after`` and ``more`` unknown text."""
    return (begins and after.startswith(rest)) or (rest.startswith(after) if more else rest == after)


# ---- regular expressions

_PLAIN = r"[A-Za-z0-9 _/:,;@=<>~\"'!%&#-]"
_HEAD = re.compile(rf"\^({_PLAIN}*)")
_CHOICE = re.compile(rf"\^({_PLAIN}*)\((?:\?:)?({_PLAIN}+(?:\|{_PLAIN}+)+)\)(?![?*{{])")
_GROUP = re.compile(rf"\^({_PLAIN}*)\((?:\?<\w+>)?(?!\?)(?:[^()\\\[\]|]|\\[^QE]|\[[^\]\[\\]*\])*\)(?![?*+{{])")


def regex_prefixes(pattern: str) -> list[str]:
    """Texts one of which every match of a Java regular expression begins with; empty if unknown.

    A character that a quantifier follows may be absent, so it is left out; of alternatives, one group is understood.

    >>> regex_prefixes("^ab+c"), regex_prefixes("^ab|c"), regex_prefixes("ab"), regex_prefixes("^user-7$")
    (['a'], [], [], ['user-7'])
    >>> regex_prefixes("^a(?:b|cd)e"), regex_prefixes("^(b|cd)*"), regex_prefixes("^(a|b)|c")
    (['ab', 'acd'], [], [])
    """
    choice = _CHOICE.match(pattern)
    if choice and "|" not in pattern[choice.end() :]:
        return [choice[1] + one for one in choice[2].split("|")]
    head = _HEAD.match(pattern)
    if not head or "|" in pattern:
        return []
    follows = pattern[head.end() : head.end() + 1]
    start = head[1][:-1] if follows and follows in "?*{+" else head[1]
    return [start] if start else []


@maps(*catalyst("RLike", "rlike", "regexp", "regexp_like"), index=BEGINNINGS)
def anchored_regex(node: Predicate, index: Index) -> Clause | None:
    """``s RLIKE '^ab...'`` begins with what precedes the first special character."""
    match node:
        case Call(_, (text, Literal(str() as pattern))) if starts := regex_prefixes(pattern):
            return clause_for(Or(tuple(StartsWith(text, start) for start in starts)), [index])
    return None


@maps(*catalyst("RegExpExtract", "regexp_extract"), index=BEGINNINGS)
def anchored_group(node: Predicate, index: Index) -> Clause | None:
    """``regexp_extract(s, '^user=([a-z]+)', 1) = 'ann'``: s begins with ``user=ann``.

    The first group begins where the plain text before it ends, unless it is repeated. What does not match has the empty
    text, so of any other value of any group it follows that s matches. It is the decoded text that does.
    """
    match _equal_texts(node):
        case (Call(_, (text, Literal(str() as pattern), Literal(int() as group))), values) if all(values) and values:
            found = _GROUP.match(pattern)
            if group == 1 and found and "|" not in pattern[found.end() :]:
                starts = [found[1] + value for value in values]
            elif group == 0 and pattern.startswith("^") and "|" not in pattern:
                starts = values
            else:
                starts = regex_prefixes(pattern)
            sure = [StartsWith(text, _UNDECODED.split(start)[0]) for start in starts]
            return clause_for(Or(tuple(sure)), [index]) if sure else None
    return None
