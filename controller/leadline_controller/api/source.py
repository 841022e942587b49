"""The controller's state as the servers read it."""

from collections.abc import Callable
from dataclasses import dataclass

from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.framework.model import SCHEDULER_NAME
from leadline_controller.framework.ports import Leadership
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.telemetry.state import TelemetryState


@dataclass(frozen=True, slots=True)
class InspectionSource:
    """A running controller. history: the stored decisions, of earlier runs as well. now_s: the
    monotonic clock of the states. cluster_name: the cluster in the topics. strategy: its name.
    scheduler_name: of the pods that this controller schedules, if `places` is true and it has the
    leadership. advises: whether it serves kube-scheduler's extender calls. addressing: the
    addresses at which it probes boards.

    Read `cluster` and `decisions` only in the event loop.
    """

    telemetry: TelemetryState
    cluster: ClusterState
    decisions: DecisionLog
    history: Recorder
    now_s: Callable[[], float]
    version: str
    cluster_name: str
    strategy: str
    scheduler_name: str = SCHEDULER_NAME
    leadership: Leadership = SOLE_LEADER
    places: bool = True
    advises: bool = False
    address_policy: AddressPolicy | None = None
