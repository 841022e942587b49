"""Generates the Python code of the wire's .proto files into a folder.

Used by `make proto`, which writes beside the sources, and by the test that holds the
committed code against a fresh run.
"""

import sys
from importlib.resources import files
from pathlib import Path

import grpc_tools.protoc

SOURCES = Path(__file__).parents[2] / "proto"
PROTOS = (
    "leadline_wire/v1/telemetry.proto",
    "leadline_wire/v1/images.proto",
    "leadline_wire/v1/shadow.proto",
    "leadline_wire/v1/traffic.proto",
    "leadline_wire/v1/control.proto",
    "leadline_wire/v1/externalscaler.proto",
    "leadline_wire/v1/replicas.proto",
    "leadline_wire/v1/rescheduling.proto",
    "leadline_wire/v1/status.proto",
)


def generate(out: Path) -> None:
    """Write *_pb2.py, *_pb2.pyi and *_pb2_grpc.py(i) of every schema below `out`.

    Raises RuntimeError when the compiler refuses a schema (it has then said why itself).
    """
    include = str(files("grpc_tools") / "_proto")
    plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
    telemetry, images, shadow, traffic, *services = PROTOS
    common = ["protoc", f"-I{SOURCES}", f"-I{include}", f"--python_out={out}", f"--pyi_out={out}"]
    runs = (
        [*common, telemetry, images, shadow, traffic],
        [
            *common,
            f"--grpc_python_out={out}",
            f"--mypy_grpc_out={out}",
            f"--plugin=protoc-gen-mypy_grpc={plugin}",
            *services,
        ],
    )
    for arguments in runs:
        if grpc_tools.protoc.main(arguments):
            raise RuntimeError(f"protoc refused {arguments[-1]}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
