"""Where decisions are kept, and how many."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """path: the database's file. max_mb: how large it may grow (MiB); without a path, or with 0,
    the decisions are kept in memory only. max_age_days: what is older is dropped."""

    path: Path | None = None
    max_mb: int = 64
    max_age_days: float = 90.0
