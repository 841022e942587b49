from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompareStrategiesRequest(_message.Message):
    __slots__ = ("since_s",)
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    since_s: float
    def __init__(self, since_s: _Optional[float] = ...) -> None: ...

class CompareStrategiesResponse(_message.Message):
    __slots__ = ("strategies", "strategy", "comparisons", "truncated")
    STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    COMPARISONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    strategies: _containers.RepeatedScalarFieldContainer[str]
    strategy: str
    comparisons: _containers.RepeatedCompositeFieldContainer[ShadowComparison]
    truncated: bool
    def __init__(self, strategies: _Optional[_Iterable[str]] = ..., strategy: _Optional[str] = ..., comparisons: _Optional[_Iterable[_Union[ShadowComparison, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ShadowComparison(_message.Message):
    __slots__ = ("strategy", "decided_by", "better", "decisions", "missed", "same", "tied", "different", "pending", "scored", "gain", "rank", "later", "workloads", "boards", "verdicts")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    BETTER_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    TIED_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LATER_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    BOARDS_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    decided_by: str
    better: str
    decisions: int
    missed: int
    same: int
    tied: int
    different: int
    pending: int
    scored: int
    gain: float
    rank: float
    later: _containers.RepeatedCompositeFieldContainer[LaterMeasured]
    workloads: _containers.RepeatedCompositeFieldContainer[DifferingWorkload]
    boards: _containers.RepeatedCompositeFieldContainer[DifferingBoards]
    verdicts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, strategy: _Optional[str] = ..., decided_by: _Optional[str] = ..., better: _Optional[str] = ..., decisions: _Optional[int] = ..., missed: _Optional[int] = ..., same: _Optional[int] = ..., tied: _Optional[int] = ..., different: _Optional[int] = ..., pending: _Optional[int] = ..., scored: _Optional[int] = ..., gain: _Optional[float] = ..., rank: _Optional[float] = ..., later: _Optional[_Iterable[_Union[LaterMeasured, _Mapping]]] = ..., workloads: _Optional[_Iterable[_Union[DifferingWorkload, _Mapping]]] = ..., boards: _Optional[_Iterable[_Union[DifferingBoards, _Mapping]]] = ..., verdicts: _Optional[_Iterable[str]] = ...) -> None: ...

class LaterMeasured(_message.Message):
    __slots__ = ("name", "decisions", "hours", "chosen", "shadow", "pods", "difference", "low", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    decisions: int
    hours: int
    chosen: float
    shadow: float
    pods: float
    difference: float
    low: float
    high: float
    def __init__(self, name: _Optional[str] = ..., decisions: _Optional[int] = ..., hours: _Optional[int] = ..., chosen: _Optional[float] = ..., shadow: _Optional[float] = ..., pods: _Optional[float] = ..., difference: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class DifferingWorkload(_message.Message):
    __slots__ = ("name", "different", "decisions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    different: int
    decisions: int
    def __init__(self, name: _Optional[str] = ..., different: _Optional[int] = ..., decisions: _Optional[int] = ...) -> None: ...

class DifferingBoards(_message.Message):
    __slots__ = ("node", "shadow", "different", "decisions")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    node: str
    shadow: str
    different: int
    decisions: int
    def __init__(self, node: _Optional[str] = ..., shadow: _Optional[str] = ..., different: _Optional[int] = ..., decisions: _Optional[int] = ...) -> None: ...
