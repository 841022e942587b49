"""What the services answer from: the controller's state, read and never changed."""

from collections.abc import Callable
from dataclasses import dataclass

from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.framework.model import SCHEDULER_NAME
from leadline_controller.framework.ports import Leadership
from leadline_controller.leaderelection.lease import SOLE_LEADER
from leadline_controller.probing.addresses import Addressing
from leadline_controller.telemetry.state import TelemetryState


@dataclass(frozen=True, slots=True)
class InspectionSource:
    """A running controller. now_s: the monotonic clock by which the states were written;
    cluster_name: the cluster in the topics; strategy: the name of the one in force;
    scheduler_name: whose pods are ours; leadership: whether it decides about them; history:
    what was decided, in earlier runs as well; places: whether it places those pods at all;
    advises: whether kube-scheduler asks it about the others; addressing: where it probes boards.

    `cluster` and `decisions` belong to the event loop, and so does whoever reads them here.
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
    addressing: Addressing | None = None
