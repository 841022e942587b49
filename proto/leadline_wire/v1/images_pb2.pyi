from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PullEstimate(_message.Message):
    __slots__ = ("missing_mb", "shared_mb", "queue_mb", "expected_s")
    MISSING_MB_FIELD_NUMBER: _ClassVar[int]
    SHARED_MB_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MB_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    missing_mb: float
    shared_mb: float
    queue_mb: float
    expected_s: float
    def __init__(self, missing_mb: _Optional[float] = ..., shared_mb: _Optional[float] = ..., queue_mb: _Optional[float] = ..., expected_s: _Optional[float] = ...) -> None: ...

class ListImagesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListImagesResponse(_message.Message):
    __slots__ = ("nodes", "registries")
    NODES_FIELD_NUMBER: _ClassVar[int]
    REGISTRIES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeImages]
    registries: _containers.RepeatedCompositeFieldContainer[RegistryStatus]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeImages, _Mapping]]] = ..., registries: _Optional[_Iterable[_Union[RegistryStatus, _Mapping]]] = ...) -> None: ...

class NodeImages(_message.Message):
    __slots__ = ("node", "architecture", "images", "held_mb", "queue_mb", "pulling", "pull_mbps", "pull_overhead_s", "pulls")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_MB_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MB_FIELD_NUMBER: _ClassVar[int]
    PULLING_FIELD_NUMBER: _ClassVar[int]
    PULL_MBPS_FIELD_NUMBER: _ClassVar[int]
    PULL_OVERHEAD_S_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    node: str
    architecture: str
    images: _containers.RepeatedCompositeFieldContainer[ImageStatus]
    held_mb: float
    queue_mb: float
    pulling: _containers.RepeatedCompositeFieldContainer[PullStatus]
    pull_mbps: float
    pull_overhead_s: float
    pulls: int
    def __init__(self, node: _Optional[str] = ..., architecture: _Optional[str] = ..., images: _Optional[_Iterable[_Union[ImageStatus, _Mapping]]] = ..., held_mb: _Optional[float] = ..., queue_mb: _Optional[float] = ..., pulling: _Optional[_Iterable[_Union[PullStatus, _Mapping]]] = ..., pull_mbps: _Optional[float] = ..., pull_overhead_s: _Optional[float] = ..., pulls: _Optional[int] = ...) -> None: ...

class ImageStatus(_message.Message):
    __slots__ = ("name", "size_mb", "layers", "used")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_MB_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_mb: float
    layers: int
    used: bool
    def __init__(self, name: _Optional[str] = ..., size_mb: _Optional[float] = ..., layers: _Optional[int] = ..., used: _Optional[bool] = ...) -> None: ...

class PullStatus(_message.Message):
    __slots__ = ("image", "missing_mb", "age_s")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    MISSING_MB_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    image: str
    missing_mb: float
    age_s: float
    def __init__(self, image: _Optional[str] = ..., missing_mb: _Optional[float] = ..., age_s: _Optional[float] = ...) -> None: ...

class RegistryStatus(_message.Message):
    __slots__ = ("name", "wanted", "images", "why", "retry_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    RETRY_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    wanted: int
    images: int
    why: str
    retry_s: float
    def __init__(self, name: _Optional[str] = ..., wanted: _Optional[int] = ..., images: _Optional[int] = ..., why: _Optional[str] = ..., retry_s: _Optional[float] = ...) -> None: ...
