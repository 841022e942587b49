"""The notes that survive a controller, which others can write, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.rescheduling.journal import (
    MOVES,
    PAUSED,
    HourlyBudgets,
    Journal,
    MoveNote,
    Pause,
)
from leadline_controller.settings import ConfigError, load

from tests.support.examples import examples
from tests.support.memory_cluster import MemoryCluster

NOTE = MoveNote("u", "default/p", "o", "n1", "n2", 1000.0, 900.0, "ReplicaSet", "default/web", 2)


async def test_a_move_is_read_as_it_was_noted_and_ends() -> None:
    cluster = MemoryCluster()
    await Journal(cluster, HourlyBudgets()).begin(NOTE)
    journal = Journal(cluster, HourlyBudgets())
    await journal.load()
    assert journal.begun() == (NOTE,)
    assert "spent" in journal.refusal(1001.0, "o", ("n3", "n4"))

    await journal.end("u", "moved")

    await journal.load()
    assert journal.begun() == ()
    assert len(journal.of_the_hour(4599.0)) == 1
    assert journal.refusal(4601.0, "o", ("n1", "n2")) == ""


async def test_a_pause_survives_and_ends_by_itself() -> None:
    cluster = MemoryCluster()
    await Journal(cluster, HourlyBudgets()).set_pause(Pause(10.0, 70.0, "new switch"))
    journal = Journal(cluster, HourlyBudgets())
    await journal.load()
    assert journal.pause == Pause(10.0, 70.0, "new switch")
    assert [journal.is_paused(at) for at in (69.0, 70.0, None)] == [True, False, True]

    await journal.set_pause(None)
    await journal.load()
    assert not journal.is_paused(20.0)


@pytest.mark.parametrize("text", ["please", "{", "[]", '{"until_s": "soon"}', "[" * 100_000])
async def test_a_pause_that_cannot_be_read_pauses(text: str) -> None:
    cluster = MemoryCluster()
    await cluster.write_note(PAUSED, text)
    journal = Journal(cluster, HourlyBudgets())
    await journal.load()
    assert journal.is_paused(1e12)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@given(anything, anything)
@examples(100)
async def test_strange_notes_do_no_harm(moves: Any, field: Any) -> None:
    cluster = MemoryCluster()
    good: dict[str, Any] = {
        "uid": "u",
        "pod": "d/p",
        "owner": "o",
        "kind": "",
        "source": "a",
        "target": "b",
    }
    good |= {"deployment": "", "begun_s": 5, "newest_s": 1, "replicas": 0, "outcome": "open"}
    bad = {**good, "begun_s": field}
    await cluster.write_note(MOVES, json.dumps([moves, bad, good]))
    journal = Journal(cluster, HourlyBudgets())
    await journal.load()
    assert MoveNote("u", "d/p", "o", "a", "b", 5.0, 1.0) in journal.begun()
    await cluster.write_note(MOVES, json.dumps(moves))
    await journal.load()


@pytest.mark.slow
async def test_the_notes_of_the_largest_budget_with_the_longest_names_are_read() -> None:
    cluster = MemoryCluster()
    journal = Journal(cluster, HourlyBudgets())
    key = f"{'n' * 63}/{'p' * 253}"
    for at in range(200):
        uid = f"{at:036}"
        note = MoveNote(uid, key, "o" * 36, "a" * 253, "b" * 253, at, at, "k" * 63, key, 2**31 - 1)
        await journal.begin(note)
        await journal.end(uid, "e" * 200)
    await journal.load()
    assert len(journal.of_the_hour(200.0)) == 200


@pytest.mark.parametrize(
    "name", ["moves_per_hour", "node_moves_per_hour", "workload_moves_per_hour"]
)
def test_no_budget_is_larger_than_the_notes_that_are_kept(name: str, tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(f"[rescheduling]\n{name} = 201\n")
    with pytest.raises(ConfigError, match=f"rescheduling.{name}: .* from 0 to 200"):
        load(file, {})
