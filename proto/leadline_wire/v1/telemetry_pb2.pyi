from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Origin(_message.Message):
    __slots__ = ("node", "boot_id", "session", "sequence")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot_id: bytes
    session: int
    sequence: int
    def __init__(self, node: _Optional[str] = ..., boot_id: _Optional[bytes] = ..., session: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("measured_boot_ms", "sent_boot_ms", "sent_unix_ms")
    MEASURED_BOOT_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_BOOT_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    measured_boot_ms: int
    sent_boot_ms: int
    sent_unix_ms: int
    def __init__(self, measured_boot_ms: _Optional[int] = ..., sent_boot_ms: _Optional[int] = ..., sent_unix_ms: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("origin", "timing", "cpu", "memory", "disk", "network", "temperature", "collectors")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    COLLECTORS_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    timing: Timing
    cpu: Cpu
    memory: Memory
    disk: Disk
    network: _containers.RepeatedCompositeFieldContainer[NetworkInterface]
    temperature: Temperature
    collectors: _containers.RepeatedCompositeFieldContainer[CollectorRun]
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., cpu: _Optional[_Union[Cpu, _Mapping]] = ..., memory: _Optional[_Union[Memory, _Mapping]] = ..., disk: _Optional[_Union[Disk, _Mapping]] = ..., network: _Optional[_Iterable[_Union[NetworkInterface, _Mapping]]] = ..., temperature: _Optional[_Union[Temperature, _Mapping]] = ..., collectors: _Optional[_Iterable[_Union[CollectorRun, _Mapping]]] = ...) -> None: ...

class Cpu(_message.Message):
    __slots__ = ("busy_percent", "load_1m", "cores", "frequency_mhz", "throttled", "under_voltage")
    BUSY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    LOAD_1M_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_MHZ_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    UNDER_VOLTAGE_FIELD_NUMBER: _ClassVar[int]
    busy_percent: float
    load_1m: float
    cores: int
    frequency_mhz: float
    throttled: bool
    under_voltage: bool
    def __init__(self, busy_percent: _Optional[float] = ..., load_1m: _Optional[float] = ..., cores: _Optional[int] = ..., frequency_mhz: _Optional[float] = ..., throttled: _Optional[bool] = ..., under_voltage: _Optional[bool] = ...) -> None: ...

class Memory(_message.Message):
    __slots__ = ("total_bytes", "available_bytes")
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    total_bytes: int
    available_bytes: int
    def __init__(self, total_bytes: _Optional[int] = ..., available_bytes: _Optional[int] = ...) -> None: ...

class Disk(_message.Message):
    __slots__ = ("read_bytes_per_s", "written_bytes_per_s")
    READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    read_bytes_per_s: float
    written_bytes_per_s: float
    def __init__(self, read_bytes_per_s: _Optional[float] = ..., written_bytes_per_s: _Optional[float] = ...) -> None: ...

class NetworkInterface(_message.Message):
    __slots__ = ("name", "packets_sent_per_s", "packets_received_per_s", "bytes_sent_per_s", "bytes_received_per_s", "link_mbps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PACKETS_SENT_PER_S_FIELD_NUMBER: _ClassVar[int]
    PACKETS_RECEIVED_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_PER_S_FIELD_NUMBER: _ClassVar[int]
    LINK_MBPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    packets_sent_per_s: float
    packets_received_per_s: float
    bytes_sent_per_s: float
    bytes_received_per_s: float
    link_mbps: int
    def __init__(self, name: _Optional[str] = ..., packets_sent_per_s: _Optional[float] = ..., packets_received_per_s: _Optional[float] = ..., bytes_sent_per_s: _Optional[float] = ..., bytes_received_per_s: _Optional[float] = ..., link_mbps: _Optional[int] = ...) -> None: ...

class Temperature(_message.Message):
    __slots__ = ("cpu_celsius",)
    CPU_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    cpu_celsius: float
    def __init__(self, cpu_celsius: _Optional[float] = ...) -> None: ...

class CollectorRun(_message.Message):
    __slots__ = ("name", "outcome", "duration_us", "why")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[CollectorRun.Outcome]
        OK: _ClassVar[CollectorRun.Outcome]
        ABSENT: _ClassVar[CollectorRun.Outcome]
        FAILED: _ClassVar[CollectorRun.Outcome]
    OUTCOME_UNSPECIFIED: CollectorRun.Outcome
    OK: CollectorRun.Outcome
    ABSENT: CollectorRun.Outcome
    FAILED: CollectorRun.Outcome
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DURATION_US_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    name: str
    outcome: CollectorRun.Outcome
    duration_us: int
    why: str
    def __init__(self, name: _Optional[str] = ..., outcome: _Optional[_Union[CollectorRun.Outcome, str]] = ..., duration_us: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class RttReport(_message.Message):
    __slots__ = ("origin", "timing", "peers")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    timing: Timing
    peers: _containers.RepeatedCompositeFieldContainer[Rtt]
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[Rtt, _Mapping]]] = ...) -> None: ...

class Rtt(_message.Message):
    __slots__ = ("peer", "rtt_ms", "deviation_ms", "sent", "received", "method")
    class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        METHOD_UNSPECIFIED: _ClassVar[Rtt.Method]
        ICMP: _ClassVar[Rtt.Method]
        MQTT: _ClassVar[Rtt.Method]
    METHOD_UNSPECIFIED: Rtt.Method
    ICMP: Rtt.Method
    MQTT: Rtt.Method
    PEER_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    DEVIATION_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    peer: str
    rtt_ms: float
    deviation_ms: float
    sent: int
    received: int
    method: Rtt.Method
    def __init__(self, peer: _Optional[str] = ..., rtt_ms: _Optional[float] = ..., deviation_ms: _Optional[float] = ..., sent: _Optional[int] = ..., received: _Optional[int] = ..., method: _Optional[_Union[Rtt.Method, str]] = ...) -> None: ...

class BandwidthReport(_message.Message):
    __slots__ = ("origin", "timing", "lease_id", "peer", "outcome", "bandwidth_mbps", "lower_bound", "transferred_bytes", "duration_ms", "detail", "measured_us", "hindrances", "waited_us", "steady")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[BandwidthReport.Outcome]
        DONE: _ClassVar[BandwidthReport.Outcome]
        REFUSED: _ClassVar[BandwidthReport.Outcome]
        FAILED: _ClassVar[BandwidthReport.Outcome]
        ABSENT: _ClassVar[BandwidthReport.Outcome]
    OUTCOME_UNSPECIFIED: BandwidthReport.Outcome
    DONE: BandwidthReport.Outcome
    REFUSED: BandwidthReport.Outcome
    FAILED: BandwidthReport.Outcome
    ABSENT: BandwidthReport.Outcome
    class Hindrance(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HINDRANCE_UNSPECIFIED: _ClassVar[BandwidthReport.Hindrance]
        CPU_BOUND: _ClassVar[BandwidthReport.Hindrance]
        THROTTLED: _ClassVar[BandwidthReport.Hindrance]
        UNDER_VOLTAGE: _ClassVar[BandwidthReport.Hindrance]
    HINDRANCE_UNSPECIFIED: BandwidthReport.Hindrance
    CPU_BOUND: BandwidthReport.Hindrance
    THROTTLED: BandwidthReport.Hindrance
    UNDER_VOLTAGE: BandwidthReport.Hindrance
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_MBPS_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    TRANSFERRED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    MEASURED_US_FIELD_NUMBER: _ClassVar[int]
    HINDRANCES_FIELD_NUMBER: _ClassVar[int]
    WAITED_US_FIELD_NUMBER: _ClassVar[int]
    STEADY_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    timing: Timing
    lease_id: str
    peer: str
    outcome: BandwidthReport.Outcome
    bandwidth_mbps: float
    lower_bound: bool
    transferred_bytes: int
    duration_ms: int
    detail: str
    measured_us: int
    hindrances: _containers.RepeatedScalarFieldContainer[BandwidthReport.Hindrance]
    waited_us: int
    steady: bool
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., lease_id: _Optional[str] = ..., peer: _Optional[str] = ..., outcome: _Optional[_Union[BandwidthReport.Outcome, str]] = ..., bandwidth_mbps: _Optional[float] = ..., lower_bound: _Optional[bool] = ..., transferred_bytes: _Optional[int] = ..., duration_ms: _Optional[int] = ..., detail: _Optional[str] = ..., measured_us: _Optional[int] = ..., hindrances: _Optional[_Iterable[_Union[BandwidthReport.Hindrance, str]]] = ..., waited_us: _Optional[int] = ..., steady: _Optional[bool] = ...) -> None: ...

class TrafficReport(_message.Message):
    __slots__ = ("origin", "timing", "duration_ms", "flows", "omitted_bytes")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    OMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    timing: Timing
    duration_ms: int
    flows: _containers.RepeatedCompositeFieldContainer[Flow]
    omitted_bytes: int
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., duration_ms: _Optional[int] = ..., flows: _Optional[_Iterable[_Union[Flow, _Mapping]]] = ..., omitted_bytes: _Optional[int] = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ("source", "destination", "port", "bytes_sent", "bytes_received", "packets_sent", "packets_received", "connections", "translated_source", "translated")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PACKETS_SENT_FIELD_NUMBER: _ClassVar[int]
    PACKETS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSLATED_SOURCE_FIELD_NUMBER: _ClassVar[int]
    TRANSLATED_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    destination: bytes
    port: int
    bytes_sent: int
    bytes_received: int
    packets_sent: int
    packets_received: int
    connections: int
    translated_source: bytes
    translated: bool
    def __init__(self, source: _Optional[bytes] = ..., destination: _Optional[bytes] = ..., port: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., packets_sent: _Optional[int] = ..., packets_received: _Optional[int] = ..., connections: _Optional[int] = ..., translated_source: _Optional[bytes] = ..., translated: _Optional[bool] = ...) -> None: ...

class Birth(_message.Message):
    __slots__ = ("origin", "timing", "agent_version", "hardware_model", "architecture", "kernel", "cores", "memory_bytes", "address", "interval_s", "probes", "dropped_messages")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_MODEL_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    timing: Timing
    agent_version: str
    hardware_model: str
    architecture: str
    kernel: str
    cores: int
    memory_bytes: int
    address: str
    interval_s: int
    probes: _containers.RepeatedScalarFieldContainer[str]
    dropped_messages: int
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., agent_version: _Optional[str] = ..., hardware_model: _Optional[str] = ..., architecture: _Optional[str] = ..., kernel: _Optional[str] = ..., cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., address: _Optional[str] = ..., interval_s: _Optional[int] = ..., probes: _Optional[_Iterable[str]] = ..., dropped_messages: _Optional[int] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("origin", "online")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ONLINE_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    online: bool
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., online: _Optional[bool] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("node", "ping", "bandwidth")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    node: str
    ping: PingLease
    bandwidth: BandwidthLease
    def __init__(self, node: _Optional[str] = ..., ping: _Optional[_Union[PingLease, _Mapping]] = ..., bandwidth: _Optional[_Union[BandwidthLease, _Mapping]] = ...) -> None: ...

class PingLease(_message.Message):
    __slots__ = ("peers", "interval_s", "count", "ttl_s")
    PEERS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    interval_s: int
    count: int
    ttl_s: int
    def __init__(self, peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., interval_s: _Optional[int] = ..., count: _Optional[int] = ..., ttl_s: _Optional[int] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("node", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class BandwidthLease(_message.Message):
    __slots__ = ("lease_id", "role", "peer", "port", "duration_ms", "max_bytes", "ttl_ms")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[BandwidthLease.Role]
        SERVER: _ClassVar[BandwidthLease.Role]
        CLIENT: _ClassVar[BandwidthLease.Role]
    ROLE_UNSPECIFIED: BandwidthLease.Role
    SERVER: BandwidthLease.Role
    CLIENT: BandwidthLease.Role
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    role: BandwidthLease.Role
    peer: Peer
    port: int
    duration_ms: int
    max_bytes: int
    ttl_ms: int
    def __init__(self, lease_id: _Optional[str] = ..., role: _Optional[_Union[BandwidthLease.Role, str]] = ..., peer: _Optional[_Union[Peer, _Mapping]] = ..., port: _Optional[int] = ..., duration_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...
