"""Monotone functions of Spark: they keep or reverse the order of one argument.

The other arguments are literals.

MinMax over x then serves comparisons of these functions: Spark evaluates the function for the bounds (soundness rules 5
and 6; :mod:`geoskip.bounds.monotone`). Each row of the table: the Catalyst class, its SQL name, and its direction. A
listed function is NULL for NULL. If it is NULL or NaN or throws for another value, it does so for all smaller or for
all greater values.

Floating-point results also keep the order: Java guarantees this for exp, log, log10, expm1, log1p and pow (but not for
cbrt, sinh and tanh), and correctly rounded results keep it.

Not listed: periodic functions (``month``, ``hour``, ``%``) and ``abs``, which MinMax bounds itself
(:mod:`geoskip.bounds.transfer`); functions of a time zone whose clocks are set back; ``months_between``, which treats
the last days of two months as whole months apart: the result from February 29th is greater to March 30th than to March
31st.
"""

from __future__ import annotations

from collections.abc import Callable

from geoskip.bounds.time_zones import OF_ONE_LENGTH, has_fixed_zone
from geoskip.predicates import Call, Literal
from geoskip.registry import declare
from geoskip.types import DAY, sql_type
from udf_mappings import catalyst

Direction = str | Callable[[Call], str | None]

RISES = "increasing"


def direction_by_sign(call: Call) -> str | None:
    """Direction of ``x / 3``, ``x * -2``, ``x div 7`` by the literal's sign; None for ``3 / x``."""
    match call:
        case Call("*", (Literal(by), _)) | Call(_, (_, Literal(by))) if by is not None and by == by and by != 0:
            return RISES if by > 0 else "decreasing"
    return None


def direction_of_first(call: Call) -> str | None:
    """Increasing in the first argument, if the others are literals and not NULL."""
    others = call.args[1:]
    return RISES if all(isinstance(a, Literal) and a.value is not None for a in others) else None


def direction_of_rounding(call: Call) -> str | None:
    """Increasing if rounding cannot wrap around, as integers may do outside of ANSI mode."""
    exact = sql_type(call.type).is_numeric and not sql_type(call.type).is_integral
    return direction_of_first(call) if exact or call.flags[:1] == ("true",) else None


def direction_of_second(call: Call) -> str | None:
    """Increasing in the second argument, after the unit: ``date_trunc('month', ts)``.

    Units up to seconds are allowed in any zone, others only if clocks are never set back; for other zones MinMax uses
    the zone's transitions (:mod:`geoskip.bounds.time_zones`).
    """
    match call.args:
        case (Literal(str() as unit), _):
            short = unit.lower() in ("second", "millisecond", "microsecond")
            return RISES if short or has_fixed_zone(call.flags[0] if call.flags else None) else None
    return None


def direction_by_zone(call: Call) -> str | None:
    """Increasing for a conversion from or to UTC, if the clocks of the other zone are never set back."""
    match call.args:
        case (_, Literal(str() as zone)):
            return RISES if has_fixed_zone(zone) else None
    return None


def direction_of_time(call: Call) -> str | None:
    """Direction of the seconds since 1970 of a time or a date.

    For a time without a zone only if clocks are never set back.
    """
    kind = call.args[0].type
    if kind in ("timestamp", "date") or (kind == "timestamp_ntz" and in_fixed_zone(call)):
        return RISES
    return None


def direction_between_times(call: Call) -> str | None:
    """Direction of whole units from one time to another, by the argument that is not a literal.

    Months are not monotone in their start: up to noon of March 1st they are 0 from 2 p.m. on January 30th, but 1 from
    10 a.m. on the 31st.
    """
    match call.args:
        case (Literal(int()), _) if in_fixed_zone(call):
            return RISES
        case (_, Literal(int())) if in_fixed_zone(call) and _is_of_one_length(call):
            return "decreasing"
    return None


def direction_between_days(call: Call) -> str | None:
    """Direction of the days from the second date to the first, by the argument that is not a literal."""
    match call.args:
        case (Literal(int()), _):
            return "decreasing"
    return direction_of_first(call)


def direction_of_interval_sum(call: Call) -> str | None:
    """Direction of a time plus an interval of days and seconds; with months the sum is not monotone.

    Whole days are added to the local time, so clocks may be set back in between.
    """
    match call.args:
        case (_, Literal(int() as micros, kind)) if sql_type(kind).kind == "interval second":
            return RISES if in_fixed_zone(call) or abs(micros) < DAY else None
    return None


def direction_of_unit_sum(call: Call) -> str | None:
    """Direction of a time plus a number of units of constant length."""
    match call.args:
        case (Literal(int()), _) if in_fixed_zone(call) and _is_of_one_length(call):
            return RISES
    return None


def _is_of_one_length(call: Call) -> bool:
    """Test whether one of the call's settings is a unit of constant length."""
    return any(flag.upper() in OF_ONE_LENGTH for flag in call.flags)


def in_fixed_zone(call: Call) -> bool:
    """Test whether one of the call's settings is a time zone whose clocks are never set back."""
    return any(map(has_fixed_zone, call.flags))


def direction_of_logarithm(call: Call) -> str | None:
    """Increasing for a logarithm to a base above 1."""
    match call.args:
        case (Literal(float() as base), _) if base > 1:
            return RISES
    return None


def direction_of_power(call: Call) -> str | None:
    """Increasing for powers of 1, 3, 5; for even ones MinMax takes the absolute value first."""
    match call.args:
        case (_, Literal(float() as power)) if power > 0 and power % 2 == 1:
            return RISES
    return None


FUNCTIONS: dict[str, tuple[str, Direction]] = {
    # dates and times
    "Year": ("year", RISES),
    "YearOfWeek": ("yearofweek", RISES),
    "TruncDate": ("trunc", direction_of_first),
    "TruncTimestamp": ("date_trunc", direction_of_second),
    "LastDay": ("last_day", RISES),
    "NextDay": ("next_day", direction_of_first),
    "UnixTimestamp": ("unix_timestamp", direction_of_time),
    "ToUnixTimestamp": ("to_unix_timestamp", direction_of_time),
    "TimestampDiff": ("timestampdiff", direction_between_times),
    "TimeAdd": ("timeadd", direction_of_interval_sum),
    "TimestampAddInterval": ("timestampaddinterval", direction_of_interval_sum),  # the same since Spark 4.1
    "TimestampAdd": ("timestampadd", direction_of_unit_sum),
    "AddMonths": ("add_months", direction_of_first),
    "DateAddYMInterval": ("dateaddyminterval", direction_of_first),  # clipped to the last day of a month
    "DateDiff": ("datediff", direction_between_days),
    "UnixDate": ("unix_date", RISES),
    "UnixSeconds": ("unix_seconds", RISES),
    "UnixMillis": ("unix_millis", RISES),
    "UnixMicros": ("unix_micros", RISES),
    "FromUTCTimestamp": ("from_utc_timestamp", direction_by_zone),
    "ToUTCTimestamp": ("to_utc_timestamp", direction_by_zone),
    "SecondsToTimestamp": ("timestamp_seconds", RISES),
    "MillisToTimestamp": ("timestamp_millis", RISES),
    "MicrosToTimestamp": ("timestamp_micros", RISES),
    "DateFromUnixDate": ("date_from_unix_date", RISES),
    # rounding
    "Floor": ("floor", RISES),
    "Ceil": ("ceil", RISES),
    "Round": ("round", direction_of_rounding),
    "BRound": ("bround", direction_of_rounding),
    "Rint": ("rint", RISES),
    # arithmetic of decimals, and integer division
    "Multiply": ("*", direction_by_sign),
    "Divide": ("/", direction_by_sign),
    "IntegralDivide": ("integraldivide", direction_by_sign),
    # other functions of real numbers
    "Sqrt": ("sqrt", RISES),
    "Exp": ("exp", RISES),
    "Expm1": ("expm1", RISES),
    "Log": ("ln", RISES),
    "Log1p": ("log1p", RISES),
    "Log2": ("log2", RISES),
    "Log10": ("log10", RISES),
    "Logarithm": ("log", direction_of_logarithm),
    "Pow": ("pow", direction_of_power),
    "Signum": ("signum", RISES),
    "ToDegrees": ("degrees", RISES),
    "ToRadians": ("radians", RISES),
}

for _kind, (_name, _direction) in FUNCTIONS.items():
    declare(*catalyst(_kind, _name), monotone=_direction, null_in_null_out=True)
