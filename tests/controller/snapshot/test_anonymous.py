"""An anonymous snapshot decides the same but for the names, and has nobody's names in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.framework.peers import peers_of
from leadline_controller.snapshot.capture import stated_rule
from leadline_controller.snapshot.snapshot import Snapshot, read_snapshot
from leadline_controller.snapshot.writing import write_snapshot

from tests.controller.builders import manifest
from tests.controller.snapshot.live_decisions import decided_offline, document_of
from tests.controller.snapshot.live_states import STRATEGY_NAMES, LiveState

# Where manifests have names of somebody's.
_MAPS = ("labels", "matchLabels", "nodeSelector", "selector")
_NAMES = (
    *("name", "namespace", "storageClassName", "volumeName", "volumeHandle", "driver"),
    *("image", "provisioner", "attacher", "claimName", "volumeAttributesClassName", "pdName"),
    *("topologyKey", "nodeName", "hostIP", "volumeID", "iqn", "pool"),
)
# Such names that are words of Kubernetes, or of the file's format or the strategies, as well, and
# numbers that are compared as such.
_WORDS = re.compile(
    r"[a-z.-]*kubernetes\.io/[a-z-]+|leadline\.dev/[a-z-]+|true|pod-template-hash"
    r"|arm64|amd64|edge|cloud"
    r"|0\.0\.0\.0|[0-9.]+|a|b|yes|image|wait|disk|tier|cores|matchExpressions|metadata\.name|"
)


def texts(part: Any) -> Iterator[str]:
    """Every name of a field, and every text, also of JSON within a text."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield key
            yield from texts(value)
    elif isinstance(part, list):
        for each in part:
            yield from texts(each)
    elif isinstance(part, str):
        if part.startswith("{"):
            yield from texts(json.loads(part))
        else:
            yield part


def names_in(part: Any) -> Iterator[str]:
    """What somebody has named in these manifests."""
    if isinstance(part, list):
        for each in part:
            yield from names_in(each)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key in _MAPS and isinstance(value, dict) and "matchLabels" not in value:
                yield from (text for text in [*value, *value.values()] if isinstance(text, str))
            if key in ("values", "monitors"):
                yield from (text for text in value if isinstance(text, str))
            if key in _NAMES and isinstance(value, str):
                yield value
            yield from names_in(value)


def renamed(live: LiveState) -> tuple[Snapshot, dict[str, str]]:
    """The anonymous snapshot, and the cluster's name of each of its nodes."""
    snapshot = read_snapshot(document_of(live, anonymous=True))
    return snapshot, dict(zip(snapshot.view.table.names, live.names, strict=True))


def assert_same_decisions(live: LiveState, strategies: Sequence[str] = ()) -> int:
    """By the strategy of the state, and by these."""
    plain = read_snapshot(document_of(live))
    anonymous, name_of = renamed(live)
    count = assert_alike(live, plain, anonymous, name_of)
    for live.strategy in strategies:
        rule = stated_rule(live.rule(), assumes_load=live.assumes_load)
        count += assert_alike(
            live, replace(plain, rule=rule), replace(anonymous, rule=rule), name_of
        )
    return count


def assert_alike(
    live: LiveState, plain: Snapshot, anonymous: Snapshot, name_of: Mapping[str, str]
) -> int:
    assert len(plain.pods) == len(anonymous.pods)
    count = 0
    for pod, other in zip(plain.pods[:3], anonymous.pods[:3], strict=True):
        there, here = decided_offline(plain, pod), decided_offline(anonymous, other)
        where = f"seed {live.seed}, {live.strategy}, {pod.key}: {there.why} | {here.why}"
        assert (None if here.node is None else name_of[here.node]) == there.node, where
        scores = {name_of[node]: total for node, (total, _) in here.scores().items()}
        assert scores == {node: total for node, (total, _) in there.scores().items()}, where
        assert {name_of[node] for node in here.rejected()} == there.rejected().keys(), where
        count += 1
    return count


def test_decisions_are_the_same_but_for_the_names() -> None:
    for seed, strategy in enumerate(STRATEGY_NAMES, 500):
        assert_same_decisions(LiveState(seed, strategy))


@pytest.mark.slow
def test_decisions_of_every_strategy_are_the_same_but_for_the_names() -> None:
    states = [LiveState(seed, STRATEGY_NAMES[0]) for seed in range(500, 510)]
    count = sum(assert_same_decisions(live, STRATEGY_NAMES[1:]) for live in states)
    assert count > 10 * len(STRATEGY_NAMES)


@pytest.mark.experiment
@pytest.mark.parametrize("first", range(1000, 1500, 100))
def test_decisions_on_500_states_are_the_same_but_for_the_names(first: int) -> None:
    states = (
        LiveState(seed, STRATEGY_NAMES[seed % len(STRATEGY_NAMES)])
        for seed in range(first, first + 100)
    )
    assert sum(map(assert_same_decisions, states)) > 100


def test_no_name_is_left() -> None:
    seen = set()
    for seed in range(25):
        live = LiveState(seed, STRATEGY_NAMES[seed % len(STRATEGY_NAMES)])
        own = {each for each in names_in(live.case) if not _WORDS.fullmatch(each)}
        own.add("198.51.100.7")
        seen |= own & {*texts(document_of(live))}
        assert own & {*texts(document_of(live, anonymous=True))} == set(), f"seed {seed}"
    named = {"n0", "web", "example.com/rack", "web:1", "pi4", "198.51.100.7"}
    assert named <= seen | {"pi4"}


def test_peers_are_called_as_what_they_are() -> None:
    """Services and workloads as owners, so that a name leads to the same pods; numbers stay."""
    hashed = {"app": "pgsql", "pod-template-hash": "h1"}
    db = manifest("pgsql-1", labels=hashed, namespace="shop", nodeName="alpha")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "pgsql-h1", "uid": "u"}
    db["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    peers = "pgsql=5@20.5rps<7ms,cache.infra=0.25,node/alpha=2,192.0.2.7=1"
    web = manifest("web", namespace="shop", annotations={"peers": peers})
    db_set = {
        "metadata": {"name": "pgsql-h1", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": hashed}},
    }
    cache = {
        "metadata": {"name": "cache", "namespace": "infra"},
        "spec": {"selector": {"app": "cache"}},
    }
    far = manifest("cache-1", labels={"app": "cache"}, namespace="infra", nodeName="beta")
    plain = read_snapshot(
        {
            "apiVersion": "leadline.dev/v1",
            "kind": "ClusterSnapshot",
            "nodes": [{"name": "alpha"}, {"name": "beta"}],
            "pods": [db, far, web],
            "services": [cache],
            "replica_sets": [db_set],
            "traffic": {"entries": [{"address": "192.0.2.7", "node": "beta"}]},
        }
    )
    document = write_snapshot(plain, anonymous=True)
    text = json.dumps(document)
    assert not [each for each in ("pgsql", "cache", "alpha", "infra", "192.0.2.7") if each in text]
    other = read_snapshot(document)
    written = other.pods[0].annotations.peers
    assert [replace(each, name="") for each in written] == [
        replace(each, name="") for each in plain.pods[0].annotations.peers
    ]
    assert [each.name for each in written] == [
        "owner-2",
        "owner-1.namespace-1",
        "node/node-1",
        "2001:db8::1",
    ]
    found, there = peers_of(other.view, other.pods[0]), peers_of(plain.view, plain.pods[0])
    assert len(found) == 4
    assert [each.share.tolist() for each in found] == [each.share.tolist() for each in there]
