"""An account as a few hundred bytes: names and counts as JSON, columns as they are, deflated.

Columns stay binary because writing floats as text takes longer than deciding, and are cut to
seven digits, which are more than anybody reads.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline_controller.core.account import KEPT, Account, in_kept_digits

_LEVEL = 1  # the others take longer and save little: most of it is digits


def encode(account: Account) -> bytes:
    """The account in bytes that outlast this version."""
    columns = [account.total, *account.parts.values(), *account.ages_s.values()]
    head = {
        "nodes": account.nodes,
        "parts": list(account.parts),
        "ages": list(account.ages_s),
        "scored": account.scored,
        "rejected": account.rejected,
        "failing": dict(account.failing),
        "reasons": _by_reasons(account.reasons),
    }
    text = json.dumps(head, separators=(",", ":"))
    with np.errstate(over="ignore"):
        floats = np.array(columns).astype(KEPT).tobytes()
    return zlib.compress(text.encode() + b"\n" + floats, _LEVEL)


def decode(data: bytes) -> Account:
    """The account that was encoded. Raises ValueError when that is none."""
    try:
        text, _, floats = zlib.decompress(data).partition(b"\n")
        return _account(json.loads(text), floats)
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no account of a decision: {error}") from None


def _account(head: Mapping[str, Any], floats: bytes) -> Account:
    nodes, parts, ages = tuple(head["nodes"]), head["parts"], head["ages"]
    shape = (1 + len(parts) + len(ages), len(nodes))
    columns = in_kept_digits(np.frombuffer(floats, dtype=KEPT)).reshape(shape)
    return Account(
        nodes=nodes,
        total=columns[0],
        parts=dict(zip(parts, columns[1:], strict=False)),
        ages_s=dict(zip(ages, columns[1 + len(parts) :], strict=True)),
        scored=head["scored"],
        rejected=head["rejected"],
        failing=head["failing"],
        reasons={node: tuple(reasons) for reasons, names in head["reasons"] for node in names},
    )


def _by_reasons(reasons: Mapping[str, tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Many nodes are turned down for the very same reasons; those are written once."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    for node, why in reasons.items():
        nodes.setdefault(why, []).append(node)
    return list(nodes.items())
