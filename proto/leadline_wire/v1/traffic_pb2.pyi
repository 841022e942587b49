from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetTrafficRequest(_message.Message):
    __slots__ = ("of",)
    OF_FIELD_NUMBER: _ClassVar[int]
    of: str
    def __init__(self, of: _Optional[str] = ...) -> None: ...

class GetTrafficResponse(_message.Message):
    __slots__ = ("edges", "report_age_s", "nodes", "dropped")
    EDGES_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    edges: _containers.RepeatedCompositeFieldContainer[TrafficEdge]
    report_age_s: float
    nodes: _containers.RepeatedScalarFieldContainer[str]
    dropped: int
    def __init__(self, edges: _Optional[_Iterable[_Union[TrafficEdge, _Mapping]]] = ..., report_age_s: _Optional[float] = ..., nodes: _Optional[_Iterable[str]] = ..., dropped: _Optional[int] = ...) -> None: ...

class TrafficEdge(_message.Message):
    __slots__ = ("source", "destination", "port", "minute", "hour", "day", "requests_least_per_s", "requests_most_per_s", "declared", "one_sided", "age_s", "source_nodes", "destination_nodes", "rtt_ms", "best_rtt_ms", "best_node", "link_share", "declared_mbps", "moves")
    class SourceNodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DestinationNodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    MINUTE_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_LEAST_PER_S_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_MOST_PER_S_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    ONE_SIDED_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NODES_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_NODES_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    BEST_RTT_MS_FIELD_NUMBER: _ClassVar[int]
    BEST_NODE_FIELD_NUMBER: _ClassVar[int]
    LINK_SHARE_FIELD_NUMBER: _ClassVar[int]
    DECLARED_MBPS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    source: str
    destination: str
    port: int
    minute: TrafficRates
    hour: TrafficRates
    day: TrafficRates
    requests_least_per_s: float
    requests_most_per_s: float
    declared: bool
    one_sided: bool
    age_s: float
    source_nodes: _containers.ScalarMap[str, int]
    destination_nodes: _containers.ScalarMap[str, int]
    rtt_ms: float
    best_rtt_ms: float
    best_node: str
    link_share: float
    declared_mbps: float
    moves: str
    def __init__(self, source: _Optional[str] = ..., destination: _Optional[str] = ..., port: _Optional[int] = ..., minute: _Optional[_Union[TrafficRates, _Mapping]] = ..., hour: _Optional[_Union[TrafficRates, _Mapping]] = ..., day: _Optional[_Union[TrafficRates, _Mapping]] = ..., requests_least_per_s: _Optional[float] = ..., requests_most_per_s: _Optional[float] = ..., declared: _Optional[bool] = ..., one_sided: _Optional[bool] = ..., age_s: _Optional[float] = ..., source_nodes: _Optional[_Mapping[str, int]] = ..., destination_nodes: _Optional[_Mapping[str, int]] = ..., rtt_ms: _Optional[float] = ..., best_rtt_ms: _Optional[float] = ..., best_node: _Optional[str] = ..., link_share: _Optional[float] = ..., declared_mbps: _Optional[float] = ..., moves: _Optional[str] = ...) -> None: ...

class TrafficRates(_message.Message):
    __slots__ = ("mbps", "packets_per_s", "connections_per_s")
    MBPS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_PER_S_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_PER_S_FIELD_NUMBER: _ClassVar[int]
    mbps: float
    packets_per_s: float
    connections_per_s: float
    def __init__(self, mbps: _Optional[float] = ..., packets_per_s: _Optional[float] = ..., connections_per_s: _Optional[float] = ...) -> None: ...
