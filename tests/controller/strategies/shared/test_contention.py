"""Eq. 18 of the DACS paper."""

import math

import numpy as np
import pytest
from leadline_controller.strategies.shared.contention import contention_s


def test_eq_18_contention() -> None:
    placed = np.array([0, 1, 2, 5, 10**6])
    gamma = contention_s(placed, beta_cs=0.1, beta_rc=0.01)
    assert gamma[:4].tolist() == pytest.approx([0.0, 0.11, 0.12, 0.26])
    assert math.isfinite(gamma[4])
    assert contention_s(placed, 0.1, 0.0).tolist() == [0.0, 0.1, 0.1, 0.1, 0.1]
