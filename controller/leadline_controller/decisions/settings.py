"""Settings of the decision database."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """path: the database file; None keeps decisions in memory only. max_mb: its largest size in
    MiB; 0 keeps decisions in memory only. max_age_days: older decisions are deleted."""

    path: Path | None = None
    max_mb: int = 64
    max_age_days: float = 90.0
