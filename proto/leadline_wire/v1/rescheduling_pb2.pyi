from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetPlanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlannedMove(_message.Message):
    __slots__ = ("pod", "source", "target", "score", "better_score", "gain", "disruption", "why")
    POD_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    BETTER_SCORE_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    DISRUPTION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    pod: str
    source: str
    target: str
    score: float
    better_score: float
    gain: float
    disruption: str
    why: str
    def __init__(self, pod: _Optional[str] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., score: _Optional[float] = ..., better_score: _Optional[float] = ..., gain: _Optional[float] = ..., disruption: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class PodStays(_message.Message):
    __slots__ = ("pod", "node", "why")
    POD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    pod: str
    node: str
    why: str
    def __init__(self, pod: _Optional[str] = ..., node: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class GetPlanResponse(_message.Message):
    __slots__ = ("id", "strategy", "better", "moves", "stays", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    BETTER_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    strategy: str
    better: str
    moves: _containers.RepeatedCompositeFieldContainer[PlannedMove]
    stays: _containers.RepeatedCompositeFieldContainer[PodStays]
    state: ReschedulingState
    def __init__(self, id: _Optional[str] = ..., strategy: _Optional[str] = ..., better: _Optional[str] = ..., moves: _Optional[_Iterable[_Union[PlannedMove, _Mapping]]] = ..., stays: _Optional[_Iterable[_Union[PodStays, _Mapping]]] = ..., state: _Optional[_Union[ReschedulingState, _Mapping]] = ...) -> None: ...

class ApplyPlanRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ApplyPlanResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: ReschedulingState
    def __init__(self, state: _Optional[_Union[ReschedulingState, _Mapping]] = ...) -> None: ...

class GetReschedulingStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("duration_s", "reason")
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    duration_s: float
    reason: str
    def __init__(self, duration_s: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MoveOutcome(_message.Message):
    __slots__ = ("move", "ending", "why")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    move: PlannedMove
    ending: str
    why: str
    def __init__(self, move: _Optional[_Union[PlannedMove, _Mapping]] = ..., ending: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ReschedulingState(_message.Message):
    __slots__ = ("mode", "paused", "pause_reason", "pause_left_s", "leader", "lease_holder", "running", "last", "outcomes", "moves_in_hour", "moves_per_hour")
    MODE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    PAUSE_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    MOVES_IN_HOUR_FIELD_NUMBER: _ClassVar[int]
    MOVES_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    mode: str
    paused: bool
    pause_reason: str
    pause_left_s: float
    leader: bool
    lease_holder: str
    running: str
    last: str
    outcomes: _containers.RepeatedCompositeFieldContainer[MoveOutcome]
    moves_in_hour: int
    moves_per_hour: int
    def __init__(self, mode: _Optional[str] = ..., paused: _Optional[bool] = ..., pause_reason: _Optional[str] = ..., pause_left_s: _Optional[float] = ..., leader: _Optional[bool] = ..., lease_holder: _Optional[str] = ..., running: _Optional[str] = ..., last: _Optional[str] = ..., outcomes: _Optional[_Iterable[_Union[MoveOutcome, _Mapping]]] = ..., moves_in_hour: _Optional[int] = ..., moves_per_hour: _Optional[int] = ...) -> None: ...
