"""The states of a replay, entry by entry."""

from leadline_controller.framework.model import Node
from leadline_controller.framework.ports import Relisted
from leadline_controller.framework.traffic import PeerTraffic
from leadline_controller.history.recorded import Began, Changed, Counted, Entry
from leadline_lab.replay.states import States

WEB, DB = (("shop", frozenset({("app", app)})) for app in ("web", "db"))


def test_decisions_of_a_replay_read_the_traffic_that_was_recorded_last() -> None:
    began = Began(None, "1", "home", "dacs", {}, 1)
    states = States(began, 100.0)
    states.apply(Entry(100.0, Changed(Relisted((Node("n1"),), ()))))
    peers = {WEB: (PeerTraffic(DB, "shop/db", 2.5, 1.0, 9.0),)}
    states.apply(Entry(101.0, Counted(peers, {"192.0.2.7": "n1"}, {"n1": 3.0})))
    traffic = states.cluster.view(states.telemetry, 102.0).traffic
    assert traffic.peers == peers
    assert (traffic.entries, traffic.flowing_mbps) == ({"192.0.2.7": "n1"}, {"n1": 3.0})
    states.apply(Entry(160.0, Counted({}, {}, {})))
    assert states.cluster.view(states.telemetry, 161.0).traffic.peers == {}
