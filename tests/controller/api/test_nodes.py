"""What the listing of nodes says of boards that are not probed."""

from dataclasses import replace

from leadline_controller.api.nodes import NodeReader
from leadline_controller.framework.ports import NodeChanged
from leadline_controller.probing.addresses import AddressPolicy

from tests.controller.api.api_harness import ControllerHarness
from tests.controller.builders import node


def test_a_board_that_is_not_probed_is_noted_with_the_reason() -> None:
    harness = ControllerHarness()
    source = replace(harness.source, address_policy=AddressPolicy())
    for name, addresses in (("right", ("192.0.2.1",)), ("wrong", ("10.0.0.9",)), ("silent", ())):
        harness.cluster.apply(NodeChanged(node(name, addresses=addresses)))
    for name in ("right", "wrong", "stranger"):
        harness.hear(name)
    reader = NodeReader(source)
    notes = {name: list(reader.status(name).notes) for name in reader.names}
    assert notes["right"] == []
    assert notes["wrong"] == [
        "not probed: its agent's address 192.0.2.1 is neither an address of the node object "
        "(10.0.0.9) nor in probe.networks"
    ]
    assert notes["silent"] == ["agent never heard"]
    assert not [note for note in notes["stranger"] if note.startswith("not probed")]
