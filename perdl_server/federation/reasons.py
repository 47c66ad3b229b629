"""Report why clients are left out, with one line for many clients with the same fault."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from common.protocol import natural_key

_NAMED, _TOLD = 5, 5
"""Most clients of a fault, and most faults, that are listed one by one."""


def by_reason(reasons: Mapping[str, str]) -> list[str]:
    """Return one line for each reason, with its clients.

    Parameters
    ----------
    reasons : mapping of str to str
        Reason of each client, in the order of the report.
    """
    names = defaultdict(list)
    for name, why in reasons.items():
        names[why].append(name)
    return [f"{_list(who)}: {why}" for why, who in names.items()]


def merge_similar(reasons: Iterable[str]) -> list[str]:
    """Merge reasons that differ only in numbers and client's name: only the first of them is returned.

    Parameters
    ----------
    reasons : iterable of str
        Reasons that begin with the client's name.
    """
    kinds = defaultdict(list)
    for why in sorted(reasons, key=natural_key):
        first, _, rest = why.partition(" ")
        kinds[re.sub(r"\d+", "#", why if first.endswith("Error") else rest)].append(why)
    told = [
        why[0] if len(why) == 1 else f"{why[0]} ({len(why) - 1} other client{'s' * (len(why) > 2)} likewise)"
        for why in kinds.values()
    ]
    more = [f"and {len(told) - _TOLD} other faults"] if len(told) > _TOLD else []
    return [*told[:_TOLD], *more]


def _list(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} other{'s' * (more > 1)}" if more > 0 else "")
