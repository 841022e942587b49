"""The Python versions and machines of a bundle, in the terms of pip and environment markers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

# The glibc of Debian 12; later releases have a newer one.
_GLIBC_MINOR = 36
_OLDEST_GLIBC_MINOR = 17
# Tags of older wheels, without a glibc version.
_OLD_PLATFORMS = {
    "aarch64": ("manylinux2014",),
    "x86_64": ("manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A Python version, such as 3.11, on a machine: aarch64 or x86_64."""

    python: str
    machine: str

    @property
    def name(self) -> str:
        """The target's name, such as cp311-aarch64."""
        return f"cp{self.python.replace('.', '')}-{self.machine}"

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform tags of compatible wheels, newest first."""
        glibcs = range(_GLIBC_MINOR, _OLDEST_GLIBC_MINOR - 1, -1)
        names = [f"manylinux_2_{minor}" for minor in glibcs]
        return tuple(f"{name}_{self.machine}" for name in (*names, *_OLD_PLATFORMS[self.machine]))

    def takes(self, wheel: Path) -> bool:
        """Whether the target can install a wheel, by its file name."""
        version = tuple(int(part) for part in self.python.split("."))
        own = cpython_tags(version, platforms=self.platforms)
        tags = (*own, *compatible_tags(version, platforms=self.platforms))
        return not parse_wheel_filename(wheel.name)[3].isdisjoint(tags)

    @property
    def markers(self) -> dict[str, str]:
        """The values of environment markers."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }


# Debian 12, Ubuntu 24.04 and Debian 13; Raspberry Pi OS has Debian's versions.
TARGETS = tuple(
    Target(python, machine)
    for machine in ("aarch64", "x86_64")
    for python in ("3.11", "3.12", "3.13")
)
