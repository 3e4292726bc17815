"""Spark's own string functions, mapped to prefixes and suffixes: MinMax, Prefix and Suffix.

Most of these functions return a part of the text, so a condition on the part restricts the text's prefix or suffix. Two
tables of classes, :data:`BEGIN` and :data:`END`, list the parts; the rules below use them. All are bound to the
Catalyst classes in optimized plans: ``left`` and ``right`` are ``Substring``, ``split_part`` is ``ElementAt`` of
``StringSplitSQL``.

To add a function, add a row to a table, or write a rule with the reason why no matching row is lost.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from geoskip.bounds.sort_keys import literal_prefix, literal_suffix
from geoskip.clauses import KEEP_NONE, Clause
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Comparison, EndsWith, In, Like, Literal, Or, Predicate, StartsWith
from geoskip.registry import maps
from geoskip.registry.functions import catalyst_class
from udf_mappings import catalyst, equality, is_catalyst
from udf_mappings.spark_sql import BEGINNINGS

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
            return text, separator
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
    """Return the prefix (suffix for ``place`` -1) that a call's result and its operand share.

    Splitting decodes texts, and each invalid byte becomes U+FFFD.
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
    """A text starts with its first part and is not below it; the separator or nothing follows."""
    match node:
        case Comparison(">" | ">=" as op, call, Literal(str() as value) as least) if part := _part(call, BEGIN):
            # U+FFFD may be above the byte that it replaces
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
    """Map equalities of a part: the text equals it, or begins (ends) with it and the separator.

    If a part may have been decoded, the second condition holds for both: it is on what the part and the text share.
    """
    equality = _equal_texts(node)
    if equality is None or (part := _part(equality[0], table)) is None:
        return None
    text, separator = part
    found: list[Predicate] = []
    for value in equality[1]:
        if separator:
            found.append(Comparison("=", text, Literal(value, "string")))
        joined = (separator or "") + value if test is EndsWith else value + (separator or "")
        found.append(test(text, _sure(equality[0], joined, -1 if test is EndsWith else 0)))
    return clause_for(Or(tuple(found)), [index]) if found else None


# ---- trims


@maps(*catalyst("StringTrim", "trim"), *catalyst("StringTrimLeft", "ltrim"), index=BEGINNINGS)
def trim_prefix(node: Predicate, index: Index) -> Clause | None:
    """``trim(s) = 'ab'``: s begins with ``ab``, or with a trimmed character."""
    return _trim_clause(node, index, StartsWith)


@maps(*catalyst("StringTrim", "trim"), *catalyst("StringTrimRight", "rtrim"), index=Suffix)
def trim_suffix(node: Predicate, index: Suffix) -> Clause | None:
    """``trim(s) = 'ab'``: s ends with ``ab``, or with a trimmed character."""
    return _trim_clause(node, index, EndsWith)


def _trim_clause(node: Predicate, index: Index, test: Callable[[Predicate, str], Predicate]) -> Clause | None:
    match _equal_texts(node):
        case (Call(_, (text, *rest)), values):
            if (cut := _trimmed_characters(rest)) is not None and values:
                return clause_for(Or(tuple(test(text, start) for start in [*values, *cut])), [index])
    return None


def _trimmed_characters(rest: Sequence[Predicate]) -> str | None:
    """Characters that a trim removes; None if unknown, or if Spark may cut within a character."""
    cut = rest[0].value if rest and isinstance(rest[0], Literal) else " " if not rest else None
    return cut if isinstance(cut, str) and cut.isascii() and len(cut) <= _FEW else None


# ---- upper and lower case

_CASED, _CASED_IN_ENTRIES = 3, 4
"""Numbers of letters with all their spellings tried, for bounds and for entries: each letter doubles the spellings."""
_CHARACTERS = 16


@maps(*catalyst("Upper", "upper", "ucase"), *catalyst("Lower", "lower", "lcase"), index=BEGINNINGS)
def case_insensitive_prefix(node: Predicate, index: Index) -> Clause | None:
    """``upper(s) LIKE 'ABC%'``: s begins with ABC in any case, or with a part and a non-ASCII character.

    The case of an ASCII letter does not depend on its context. Other characters may be converted to ASCII ones: the
    Kelvin sign to k, ß to SS. Invalid UTF-8 bytes never are, so such characters are at or above U+0080.
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
    """Return the longest ASCII prefix with at most ``letters`` letters.

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


# ---- concatenated texts


@maps(*catalyst("Concat", "concat"), index=Index)
def concat_prefix(node: Predicate, index: Index) -> Clause | None:
    """``concat('a/', s, t) = 'a/bc'``: s is ``''``, ``b`` or ``bc``; a literal after s determines its end.

    ``concat(s, 'x') LIKE 'abc%'``: s begins with ``abc``, or is a prefix of it that ``x`` may continue.
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
    """Map a condition that a concatenation equals a text, or begins or ends with it.

    The result is on the first (or last) non-literal argument. ``test`` is None for equality. Texts are ASCII, so that
    no character is split.
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
            return None  # true for any argument
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
    """Test whether this may be the rest of a text, followed by ``after`` and, with ``more``, unknown text."""
    return (begins and after.startswith(rest)) or (rest.startswith(after) if more else rest == after)


# ---- regular expressions

_LITERAL = r"A-Za-z0-9 _/:,;@=<>~\"'!%#"
_PLAIN = rf"(?:[{_LITERAL}&-]|\\[.$*+?(){{}}\[\]/-]|\[[{_LITERAL}.$*+?(){{}}]\])"
"""A part of a pattern that matches one character: the character itself, escaped, or alone in a class."""
_ESCAPED = re.compile(r"\\(.)|\[(.)\]")
_HEAD = re.compile(rf"\^((?:{_PLAIN}(?![?*{{+]))*)")
_CHOICE = re.compile(rf"\^({_PLAIN}*)\((?:\?:)?({_PLAIN}+(?:\|{_PLAIN}+)+)\)(?![?*{{])")
_GROUP = re.compile(rf"\^({_PLAIN}*)\((?:\?<\w+>)?(?!\?)(?:[^()\\\[\]|]|\\[^QE]|\[[^\]\[\\]*\])*\)(?![?*+{{])")


def _text(plain: str) -> str:
    r"""The text that a sequence of plain parts matches.

    >>> _text(r"10[.]6\.1")
    '10.6.1'
    """
    return _ESCAPED.sub(r"\1\2", plain)


def regex_prefixes(pattern: str) -> list[str]:
    r"""Prefixes, one of which begins every match of a Java regular expression; empty if unknown.

    A character before a quantifier may be absent, so it is dropped; only one group of alternatives is supported.

    >>> regex_prefixes("^ab+c"), regex_prefixes("^ab|c"), regex_prefixes("ab"), regex_prefixes("^user-7$")
    (['a'], [], [], ['user-7'])
    >>> regex_prefixes("^a(?:b|cd)e"), regex_prefixes("^(b|cd)*"), regex_prefixes("^(a|b)|c")
    (['ab', 'acd'], [], [])
    >>> regex_prefixes(r"^10[.]6\.1"), regex_prefixes(r"^a\.?b"), regex_prefixes(r"^a\d")
    (['10.6.1'], ['a'], ['a'])
    """
    choice = _CHOICE.match(pattern)
    if choice and "|" not in pattern[choice.end() :]:
        return [_text(choice[1] + one) for one in choice[2].split("|")]
    head = _HEAD.match(pattern)
    if not head or "|" in pattern:
        return []
    return [_text(head[1])] if head[1] else []


@maps(*catalyst("RLike", "rlike", "regexp", "regexp_like"), index=BEGINNINGS)
def anchored_regex(node: Predicate, index: Index) -> Clause | None:
    """``s RLIKE '^ab...'``: s begins with the text before the first special character."""
    match node:
        case Call(_, (text, Literal(str() as pattern))) if starts := regex_prefixes(pattern):
            return clause_for(Or(tuple(StartsWith(text, start) for start in starts)), [index])
    return None


@maps(*catalyst("RegExpExtract", "regexp_extract"), index=BEGINNINGS)
def anchored_group(node: Predicate, index: Index) -> Clause | None:
    """``regexp_extract(s, '^user=([a-z]+)', 1) = 'ann'``: s begins with ``user=ann``.

    The first group begins after the plain text before it, unless the group is repeated. For a text that does not match,
    the result is the empty string, so any other value of any group implies that s matches. Matching decodes the text.
    """
    match _equal_texts(node):
        case (Call(_, (text, Literal(str() as pattern), Literal(int() as group))), values) if all(values) and values:
            found = _GROUP.match(pattern)
            if group == 1 and found and "|" not in pattern[found.end() :]:
                starts = [_text(found[1]) + value for value in values]
            elif group == 0 and pattern.startswith("^") and "|" not in pattern:
                starts = values
            else:
                starts = regex_prefixes(pattern)
            sure = [StartsWith(text, _UNDECODED.split(start)[0]) for start in starts]
            return clause_for(Or(tuple(sure)), [index]) if sure else None
    return None
