from leadline_wire.v1 import images_pb2 as _images_pb2
from leadline_wire.v1 import shadow_pb2 as _shadow_pb2
from leadline_wire.v1 import traffic_pb2 as _traffic_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetSnapshotRequest(_message.Message):
    __slots__ = ("anonymous",)
    ANONYMOUS_FIELD_NUMBER: _ClassVar[int]
    anonymous: bool
    def __init__(self, anonymous: _Optional[bool] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVersionResponse(_message.Message):
    __slots__ = ("version", "cluster", "strategy", "leader", "lease_holder", "unreachable")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    version: str
    cluster: str
    strategy: str
    leader: bool
    lease_holder: str
    unreachable: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., cluster: _Optional[str] = ..., strategy: _Optional[str] = ..., leader: _Optional[bool] = ..., lease_holder: _Optional[str] = ..., unreachable: _Optional[_Iterable[str]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("selector",)
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    selector: str
    def __init__(self, selector: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "selector")
    NODES_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    selector: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., selector: _Optional[str] = ...) -> None: ...

class Measurement(_message.Message):
    __slots__ = ("name", "value", "age_s", "lower_bound", "suspect", "confidence", "source", "host_limited", "in_words")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HOST_LIMITED_FIELD_NUMBER: _ClassVar[int]
    IN_WORDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    age_s: float
    lower_bound: bool
    suspect: bool
    confidence: float
    source: str
    host_limited: bool
    in_words: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., age_s: _Optional[float] = ..., lower_bound: _Optional[bool] = ..., suspect: _Optional[bool] = ..., confidence: _Optional[float] = ..., source: _Optional[str] = ..., host_limited: _Optional[bool] = ..., in_words: _Optional[str] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("name", "in_cluster", "schedulable", "ready", "tier", "agent", "agent_version", "hardware_model", "address", "metrics", "lost_messages", "pods", "allocatable", "requested", "notes", "report_age_s", "contradicting", "failed", "architecture", "kernel", "cores", "memory_bytes", "report_interval_s", "predicted_ms")
    class FailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class PredictedMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    IN_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULABLE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_MODEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    LOST_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATABLE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    CONTRADICTING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    in_cluster: bool
    schedulable: bool
    ready: bool
    tier: str
    agent: str
    agent_version: str
    hardware_model: str
    address: str
    metrics: _containers.RepeatedCompositeFieldContainer[Measurement]
    lost_messages: int
    pods: int
    allocatable: Resources
    requested: Resources
    notes: _containers.RepeatedScalarFieldContainer[str]
    report_age_s: float
    contradicting: _containers.RepeatedScalarFieldContainer[str]
    failed: _containers.ScalarMap[str, str]
    architecture: str
    kernel: str
    cores: int
    memory_bytes: int
    report_interval_s: int
    predicted_ms: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., in_cluster: _Optional[bool] = ..., schedulable: _Optional[bool] = ..., ready: _Optional[bool] = ..., tier: _Optional[str] = ..., agent: _Optional[str] = ..., agent_version: _Optional[str] = ..., hardware_model: _Optional[str] = ..., address: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[Measurement, _Mapping]]] = ..., lost_messages: _Optional[int] = ..., pods: _Optional[int] = ..., allocatable: _Optional[_Union[Resources, _Mapping]] = ..., requested: _Optional[_Union[Resources, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., report_age_s: _Optional[float] = ..., contradicting: _Optional[_Iterable[str]] = ..., failed: _Optional[_Mapping[str, str]] = ..., architecture: _Optional[str] = ..., kernel: _Optional[str] = ..., cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., report_interval_s: _Optional[int] = ..., predicted_ms: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu_milli", "memory_bytes", "pods")
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    cpu_milli: int
    memory_bytes: int
    pods: int
    def __init__(self, cpu_milli: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., pods: _Optional[int] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ("name", "history")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    name: str
    history: GetHistoryRequest
    def __init__(self, name: _Optional[str] = ..., history: _Optional[_Union[GetHistoryRequest, _Mapping]] = ...) -> None: ...

class GetNodeResponse(_message.Message):
    __slots__ = ("node", "links", "placed_pods", "history")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    PLACED_PODS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    node: NodeStatus
    links: _containers.RepeatedCompositeFieldContainer[LinkStatus]
    placed_pods: _containers.RepeatedScalarFieldContainer[str]
    history: GetHistoryResponse
    def __init__(self, node: _Optional[_Union[NodeStatus, _Mapping]] = ..., links: _Optional[_Iterable[_Union[LinkStatus, _Mapping]]] = ..., placed_pods: _Optional[_Iterable[str]] = ..., history: _Optional[_Union[GetHistoryResponse, _Mapping]] = ...) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("a", "b", "rtt_ms", "rtt_age_s", "bandwidth_mbps", "bandwidth_age_s", "bandwidth_is_lower_bound", "bandwidth_is_host_limited", "rtt_method", "rtt_source", "rtt_error_ms", "bandwidth_confidence", "loss", "jitter_ms", "flapping")
    A_FIELD_NUMBER: _ClassVar[int]
    B_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    RTT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_MBPS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_AGE_S_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_IS_LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_IS_HOST_LIMITED_FIELD_NUMBER: _ClassVar[int]
    RTT_METHOD_FIELD_NUMBER: _ClassVar[int]
    RTT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    RTT_ERROR_MS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    FLAPPING_FIELD_NUMBER: _ClassVar[int]
    a: str
    b: str
    rtt_ms: float
    rtt_age_s: float
    bandwidth_mbps: float
    bandwidth_age_s: float
    bandwidth_is_lower_bound: bool
    bandwidth_is_host_limited: bool
    rtt_method: str
    rtt_source: str
    rtt_error_ms: float
    bandwidth_confidence: float
    loss: float
    jitter_ms: float
    flapping: bool
    def __init__(self, a: _Optional[str] = ..., b: _Optional[str] = ..., rtt_ms: _Optional[float] = ..., rtt_age_s: _Optional[float] = ..., bandwidth_mbps: _Optional[float] = ..., bandwidth_age_s: _Optional[float] = ..., bandwidth_is_lower_bound: _Optional[bool] = ..., bandwidth_is_host_limited: _Optional[bool] = ..., rtt_method: _Optional[str] = ..., rtt_source: _Optional[str] = ..., rtt_error_ms: _Optional[float] = ..., bandwidth_confidence: _Optional[float] = ..., loss: _Optional[float] = ..., jitter_ms: _Optional[float] = ..., flapping: _Optional[bool] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("name", "series", "from_unix_s", "to_unix_s", "step_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    series: _containers.RepeatedScalarFieldContainer[str]
    from_unix_s: float
    to_unix_s: float
    step_s: float
    def __init__(self, name: _Optional[str] = ..., series: _Optional[_Iterable[str]] = ..., from_unix_s: _Optional[float] = ..., to_unix_s: _Optional[float] = ..., step_s: _Optional[float] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("from_unix_s", "step_s", "series")
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    from_unix_s: float
    step_s: float
    series: _containers.RepeatedCompositeFieldContainer[Series]
    def __init__(self, from_unix_s: _Optional[float] = ..., step_s: _Optional[float] = ..., series: _Optional[_Iterable[_Union[Series, _Mapping]]] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("name", "peer", "mean", "min", "max")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    name: str
    peer: str
    mean: _containers.RepeatedScalarFieldContainer[float]
    min: _containers.RepeatedScalarFieldContainer[float]
    max: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., peer: _Optional[str] = ..., mean: _Optional[_Iterable[float]] = ..., min: _Optional[_Iterable[float]] = ..., max: _Optional[_Iterable[float]] = ...) -> None: ...

class GetMatrixRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMatrixResponse(_message.Message):
    __slots__ = ("nodes", "links")
    NODES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    links: _containers.RepeatedCompositeFieldContainer[LinkStatus]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., links: _Optional[_Iterable[_Union[LinkStatus, _Mapping]]] = ...) -> None: ...

class GetBudgetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBudgetResponse(_message.Message):
    __slots__ = ("nodes", "uplinks", "running", "leader", "lease_holder")
    NODES_FIELD_NUMBER: _ClassVar[int]
    UPLINKS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[BudgetStatus]
    uplinks: _containers.RepeatedCompositeFieldContainer[BudgetStatus]
    running: _containers.RepeatedCompositeFieldContainer[RunningTest]
    leader: bool
    lease_holder: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[BudgetStatus, _Mapping]]] = ..., uplinks: _Optional[_Iterable[_Union[BudgetStatus, _Mapping]]] = ..., running: _Optional[_Iterable[_Union[RunningTest, _Mapping]]] = ..., leader: _Optional[bool] = ..., lease_holder: _Optional[str] = ...) -> None: ...

class BudgetStatus(_message.Message):
    __slots__ = ("name", "allowed_share", "share", "hour_share", "day_share", "bytes_per_day", "bytes", "day_bytes", "day_bytes_left", "tests", "age_s", "pings_per_minute")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    HOUR_SHARE_FIELD_NUMBER: _ClassVar[int]
    DAY_SHARE_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_DAY_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DAY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DAY_BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    TESTS_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PINGS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    allowed_share: float
    share: float
    hour_share: float
    day_share: float
    bytes_per_day: int
    bytes: int
    day_bytes: int
    day_bytes_left: int
    tests: int
    age_s: float
    pings_per_minute: float
    def __init__(self, name: _Optional[str] = ..., allowed_share: _Optional[float] = ..., share: _Optional[float] = ..., hour_share: _Optional[float] = ..., day_share: _Optional[float] = ..., bytes_per_day: _Optional[int] = ..., bytes: _Optional[int] = ..., day_bytes: _Optional[int] = ..., day_bytes_left: _Optional[int] = ..., tests: _Optional[int] = ..., age_s: _Optional[float] = ..., pings_per_minute: _Optional[float] = ...) -> None: ...

class RunningTest(_message.Message):
    __slots__ = ("client", "server", "max_bytes", "uplinks")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPLINKS_FIELD_NUMBER: _ClassVar[int]
    client: str
    server: str
    max_bytes: int
    uplinks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client: _Optional[str] = ..., server: _Optional[str] = ..., max_bytes: _Optional[int] = ..., uplinks: _Optional[_Iterable[str]] = ...) -> None: ...

class ListPlacementsRequest(_message.Message):
    __slots__ = ("since_s", "namespace", "node", "pending", "limit", "strategy", "selector")
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    since_s: float
    namespace: str
    node: str
    pending: bool
    limit: int
    strategy: str
    selector: str
    def __init__(self, since_s: _Optional[float] = ..., namespace: _Optional[str] = ..., node: _Optional[str] = ..., pending: _Optional[bool] = ..., limit: _Optional[int] = ..., strategy: _Optional[str] = ..., selector: _Optional[str] = ...) -> None: ...

class ListPlacementsResponse(_message.Message):
    __slots__ = ("placements", "truncated", "selector")
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    placements: _containers.RepeatedCompositeFieldContainer[Placement]
    truncated: bool
    selector: str
    def __init__(self, placements: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ..., truncated: _Optional[bool] = ..., selector: _Optional[str] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("pod", "node", "strategy", "why", "age_s", "outcome", "times", "first_age_s", "unix_s")
    POD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    FIRST_AGE_S_FIELD_NUMBER: _ClassVar[int]
    UNIX_S_FIELD_NUMBER: _ClassVar[int]
    pod: str
    node: str
    strategy: str
    why: str
    age_s: float
    outcome: str
    times: int
    first_age_s: float
    unix_s: float
    def __init__(self, pod: _Optional[str] = ..., node: _Optional[str] = ..., strategy: _Optional[str] = ..., why: _Optional[str] = ..., age_s: _Optional[float] = ..., outcome: _Optional[str] = ..., times: _Optional[int] = ..., first_age_s: _Optional[float] = ..., unix_s: _Optional[float] = ...) -> None: ...

class ExplainPodRequest(_message.Message):
    __slots__ = ("pod",)
    POD_FIELD_NUMBER: _ClassVar[int]
    pod: str
    def __init__(self, pod: _Optional[str] = ...) -> None: ...

class ExplainPodResponse(_message.Message):
    __slots__ = ("placement", "better", "options", "scores", "rejected", "scored_nodes", "rejected_nodes", "rejected_by_filter", "earlier", "removed_as", "removed_of")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class RejectedByFilterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    BETTER_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    SCORED_NODES_FIELD_NUMBER: _ClassVar[int]
    REJECTED_NODES_FIELD_NUMBER: _ClassVar[int]
    REJECTED_BY_FILTER_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    REMOVED_AS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_OF_FIELD_NUMBER: _ClassVar[int]
    placement: Placement
    better: str
    options: _containers.ScalarMap[str, str]
    scores: _containers.RepeatedCompositeFieldContainer[NodeScore]
    rejected: _containers.RepeatedCompositeFieldContainer[NodeRejection]
    scored_nodes: int
    rejected_nodes: int
    rejected_by_filter: _containers.ScalarMap[str, int]
    earlier: _containers.RepeatedCompositeFieldContainer[Placement]
    removed_as: int
    removed_of: int
    def __init__(self, placement: _Optional[_Union[Placement, _Mapping]] = ..., better: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., scores: _Optional[_Iterable[_Union[NodeScore, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[NodeRejection, _Mapping]]] = ..., scored_nodes: _Optional[int] = ..., rejected_nodes: _Optional[int] = ..., rejected_by_filter: _Optional[_Mapping[str, int]] = ..., earlier: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ..., removed_as: _Optional[int] = ..., removed_of: _Optional[int] = ...) -> None: ...

class NodeScore(_message.Message):
    __slots__ = ("node", "total", "parts", "report_age_s", "bandwidth_age_s", "rtt_age_s", "pull", "measured", "assumed", "recently_placed", "rates_unknown")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MeasuredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class AssumedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_AGE_S_FIELD_NUMBER: _ClassVar[int]
    RTT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_FIELD_NUMBER: _ClassVar[int]
    RECENTLY_PLACED_FIELD_NUMBER: _ClassVar[int]
    RATES_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    node: str
    total: float
    parts: _containers.ScalarMap[str, float]
    report_age_s: float
    bandwidth_age_s: float
    rtt_age_s: float
    pull: _images_pb2.PullEstimate
    measured: _containers.ScalarMap[str, float]
    assumed: _containers.ScalarMap[str, float]
    recently_placed: int
    rates_unknown: int
    def __init__(self, node: _Optional[str] = ..., total: _Optional[float] = ..., parts: _Optional[_Mapping[str, float]] = ..., report_age_s: _Optional[float] = ..., bandwidth_age_s: _Optional[float] = ..., rtt_age_s: _Optional[float] = ..., pull: _Optional[_Union[_images_pb2.PullEstimate, _Mapping]] = ..., measured: _Optional[_Mapping[str, float]] = ..., assumed: _Optional[_Mapping[str, float]] = ..., recently_placed: _Optional[int] = ..., rates_unknown: _Optional[int] = ...) -> None: ...

class NodeRejection(_message.Message):
    __slots__ = ("node", "reasons")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    node: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("only", "sync")
    ONLY_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    only: _containers.RepeatedScalarFieldContainer[str]
    sync: bool
    def __init__(self, only: _Optional[_Iterable[str]] = ..., sync: _Optional[bool] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("node", "placement", "node_gone", "synced")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    NODE_GONE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    node: NodeStatus
    placement: Placement
    node_gone: str
    synced: bool
    def __init__(self, node: _Optional[_Union[NodeStatus, _Mapping]] = ..., placement: _Optional[_Union[Placement, _Mapping]] = ..., node_gone: _Optional[str] = ..., synced: _Optional[bool] = ...) -> None: ...
