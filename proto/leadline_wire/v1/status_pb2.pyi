from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "cluster", "up_s", "modes", "strategy", "options", "broker", "api_server", "leadership", "boards", "probing", "queue", "last_decision", "database", "rescheduling", "certificates", "stuck", "problems", "fine", "unserved", "notifications", "recording", "strategy_kept")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    API_SERVER_FIELD_NUMBER: _ClassVar[int]
    LEADERSHIP_FIELD_NUMBER: _ClassVar[int]
    BOARDS_FIELD_NUMBER: _ClassVar[int]
    PROBING_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LAST_DECISION_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULING_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    FINE_FIELD_NUMBER: _ClassVar[int]
    UNSERVED_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    RECORDING_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_KEPT_FIELD_NUMBER: _ClassVar[int]
    version: str
    cluster: str
    up_s: float
    modes: _containers.RepeatedScalarFieldContainer[str]
    strategy: str
    options: _containers.ScalarMap[str, str]
    broker: BrokerCondition
    api_server: ApiServerCondition
    leadership: LeadershipCondition
    boards: BoardsCondition
    probing: ProbingCondition
    queue: QueueCondition
    last_decision: DecisionCondition
    database: DatabaseCondition
    rescheduling: MovesCondition
    certificates: _containers.RepeatedCompositeFieldContainer[CertificateCondition]
    stuck: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    fine: _containers.RepeatedScalarFieldContainer[str]
    unserved: _containers.RepeatedCompositeFieldContainer[ServerCondition]
    notifications: NotificationCondition
    recording: RecordingCondition
    strategy_kept: bool
    def __init__(self, version: _Optional[str] = ..., cluster: _Optional[str] = ..., up_s: _Optional[float] = ..., modes: _Optional[_Iterable[str]] = ..., strategy: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., broker: _Optional[_Union[BrokerCondition, _Mapping]] = ..., api_server: _Optional[_Union[ApiServerCondition, _Mapping]] = ..., leadership: _Optional[_Union[LeadershipCondition, _Mapping]] = ..., boards: _Optional[_Union[BoardsCondition, _Mapping]] = ..., probing: _Optional[_Union[ProbingCondition, _Mapping]] = ..., queue: _Optional[_Union[QueueCondition, _Mapping]] = ..., last_decision: _Optional[_Union[DecisionCondition, _Mapping]] = ..., database: _Optional[_Union[DatabaseCondition, _Mapping]] = ..., rescheduling: _Optional[_Union[MovesCondition, _Mapping]] = ..., certificates: _Optional[_Iterable[_Union[CertificateCondition, _Mapping]]] = ..., stuck: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., fine: _Optional[_Iterable[str]] = ..., unserved: _Optional[_Iterable[_Union[ServerCondition, _Mapping]]] = ..., notifications: _Optional[_Union[NotificationCondition, _Mapping]] = ..., recording: _Optional[_Union[RecordingCondition, _Mapping]] = ..., strategy_kept: _Optional[bool] = ...) -> None: ...

class RecordingCondition(_message.Message):
    __slots__ = ("folder", "size_bytes", "error", "missed")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    folder: str
    size_bytes: int
    error: str
    missed: int
    def __init__(self, folder: _Optional[str] = ..., size_bytes: _Optional[int] = ..., error: _Optional[str] = ..., missed: _Optional[int] = ...) -> None: ...

class NotificationCondition(_message.Message):
    __slots__ = ("receiver", "error", "age_s")
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    receiver: str
    error: str
    age_s: float
    def __init__(self, receiver: _Optional[str] = ..., error: _Optional[str] = ..., age_s: _Optional[float] = ...) -> None: ...

class ServerCondition(_message.Message):
    __slots__ = ("where", "what", "since_s")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    where: str
    what: str
    since_s: float
    def __init__(self, where: _Optional[str] = ..., what: _Optional[str] = ..., since_s: _Optional[float] = ...) -> None: ...

class BrokerCondition(_message.Message):
    __slots__ = ("address", "connected", "since_s", "heard_age_s", "rtt_ms", "answers", "why", "refused", "accepted", "not_accepted", "limits")
    class NotAcceptedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    HEARD_AGE_S_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NOT_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    address: str
    connected: bool
    since_s: float
    heard_age_s: float
    rtt_ms: float
    answers: bool
    why: str
    refused: _containers.RepeatedScalarFieldContainer[str]
    accepted: int
    not_accepted: _containers.ScalarMap[str, int]
    limits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, address: _Optional[str] = ..., connected: _Optional[bool] = ..., since_s: _Optional[float] = ..., heard_age_s: _Optional[float] = ..., rtt_ms: _Optional[float] = ..., answers: _Optional[bool] = ..., why: _Optional[str] = ..., refused: _Optional[_Iterable[str]] = ..., accepted: _Optional[int] = ..., not_accepted: _Optional[_Mapping[str, int]] = ..., limits: _Optional[_Iterable[str]] = ...) -> None: ...

class ApiServerCondition(_message.Message):
    __slots__ = ("url", "listed", "answered_age_s", "watched_age_s", "failures")
    URL_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_AGE_S_FIELD_NUMBER: _ClassVar[int]
    WATCHED_AGE_S_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    url: str
    listed: bool
    answered_age_s: float
    watched_age_s: float
    failures: _containers.RepeatedCompositeFieldContainer[RequestFailure]
    def __init__(self, url: _Optional[str] = ..., listed: _Optional[bool] = ..., answered_age_s: _Optional[float] = ..., watched_age_s: _Optional[float] = ..., failures: _Optional[_Iterable[_Union[RequestFailure, _Mapping]]] = ...) -> None: ...

class RequestFailure(_message.Message):
    __slots__ = ("path", "error", "refused", "since_s")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    path: str
    error: str
    refused: bool
    since_s: float
    def __init__(self, path: _Optional[str] = ..., error: _Optional[str] = ..., refused: _Optional[bool] = ..., since_s: _Optional[float] = ...) -> None: ...

class LeadershipCondition(_message.Message):
    __slots__ = ("leads", "holder")
    LEADS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    leads: bool
    holder: str
    def __init__(self, leads: _Optional[bool] = ..., holder: _Optional[str] = ...) -> None: ...

class BoardsCondition(_message.Message):
    __slots__ = ("total", "reporting", "median_age_s", "oldest_age_s", "boards", "report_ttl_s")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    REPORTING_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_AGE_S_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_S_FIELD_NUMBER: _ClassVar[int]
    BOARDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_TTL_S_FIELD_NUMBER: _ClassVar[int]
    total: int
    reporting: int
    median_age_s: float
    oldest_age_s: float
    boards: _containers.RepeatedCompositeFieldContainer[BoardCondition]
    report_ttl_s: float
    def __init__(self, total: _Optional[int] = ..., reporting: _Optional[int] = ..., median_age_s: _Optional[float] = ..., oldest_age_s: _Optional[float] = ..., boards: _Optional[_Iterable[_Union[BoardCondition, _Mapping]]] = ..., report_ttl_s: _Optional[float] = ...) -> None: ...

class BoardCondition(_message.Message):
    __slots__ = ("name", "agent", "states", "report_age_s", "clock_ahead_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    agent: str
    states: _containers.RepeatedScalarFieldContainer[str]
    report_age_s: float
    clock_ahead_s: float
    def __init__(self, name: _Optional[str] = ..., agent: _Optional[str] = ..., states: _Optional[_Iterable[str]] = ..., report_age_s: _Optional[float] = ..., clock_ahead_s: _Optional[float] = ...) -> None: ...

class ProbingCondition(_message.Message):
    __slots__ = ("hour_share", "allowed_share", "running", "spent")
    HOUR_SHARE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_SHARE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    hour_share: float
    allowed_share: float
    running: int
    spent: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hour_share: _Optional[float] = ..., allowed_share: _Optional[float] = ..., running: _Optional[int] = ..., spent: _Optional[_Iterable[str]] = ...) -> None: ...

class QueueCondition(_message.Message):
    __slots__ = ("active", "in_progress", "backoff", "unschedulable", "held", "unschedulable_pods")
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    UNSCHEDULABLE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    UNSCHEDULABLE_PODS_FIELD_NUMBER: _ClassVar[int]
    active: int
    in_progress: int
    backoff: int
    unschedulable: int
    held: int
    unschedulable_pods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, active: _Optional[int] = ..., in_progress: _Optional[int] = ..., backoff: _Optional[int] = ..., unschedulable: _Optional[int] = ..., held: _Optional[int] = ..., unschedulable_pods: _Optional[_Iterable[str]] = ...) -> None: ...

class DecisionCondition(_message.Message):
    __slots__ = ("pod", "node", "strategy", "outcome", "age_s")
    POD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    pod: str
    node: str
    strategy: str
    outcome: str
    age_s: float
    def __init__(self, pod: _Optional[str] = ..., node: _Optional[str] = ..., strategy: _Optional[str] = ..., outcome: _Optional[str] = ..., age_s: _Optional[float] = ...) -> None: ...

class DatabaseCondition(_message.Message):
    __slots__ = ("path", "size_bytes", "free_bytes", "error", "late_s", "lost")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LATE_S_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    free_bytes: int
    error: str
    late_s: float
    lost: int
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., error: _Optional[str] = ..., late_s: _Optional[float] = ..., lost: _Optional[int] = ...) -> None: ...

class MovesCondition(_message.Message):
    __slots__ = ("mode", "paused", "pause_left_s", "running", "moves_in_hour")
    MODE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    MOVES_IN_HOUR_FIELD_NUMBER: _ClassVar[int]
    mode: str
    paused: bool
    pause_left_s: float
    running: str
    moves_in_hour: int
    def __init__(self, mode: _Optional[str] = ..., paused: _Optional[bool] = ..., pause_left_s: _Optional[float] = ..., running: _Optional[str] = ..., moves_in_hour: _Optional[int] = ...) -> None: ...

class CertificateCondition(_message.Message):
    __slots__ = ("setting", "path", "left_s")
    SETTING_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    setting: str
    path: str
    left_s: float
    def __init__(self, setting: _Optional[str] = ..., path: _Optional[str] = ..., left_s: _Optional[float] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("kind", "severity", "where", "what", "remedy", "commands", "subjects")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    severity: str
    where: str
    what: str
    remedy: str
    commands: _containers.RepeatedScalarFieldContainer[str]
    subjects: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., severity: _Optional[str] = ..., where: _Optional[str] = ..., what: _Optional[str] = ..., remedy: _Optional[str] = ..., commands: _Optional[_Iterable[str]] = ..., subjects: _Optional[_Iterable[str]] = ...) -> None: ...
