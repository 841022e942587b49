import time

import pytest
from leadline_controller.history import times

from tests.controller.history.decision_builder import UNIX_S, Machine


def test_within_one_boot_ages_are_exact_when_the_wall_clock_jumps() -> None:
    machine = Machine()
    then = machine.now()
    machine.wait(30)
    for jump_s in (-3600.0, +86400.0):
        machine.unix_s = UNIX_S + jump_s
        assert then.age_s(machine.now()) == 30.0


def test_setting_the_clock_corrects_earlier_times() -> None:
    machine = Machine(unix_s=None)
    then = machine.now()
    assert then.unix_s(machine.now()) is None
    machine.wait(30)
    machine.unix_s = UNIX_S
    assert then.unix_s(machine.now()) == UNIX_S - 30


def test_ages_over_a_reboot_follow_the_wall_clocks() -> None:
    machine = Machine()
    then = machine.now()
    machine.reboot("boot-2", off_s=600)
    assert then.age_s(machine.now()) == pytest.approx(600)
    assert then.unix_s(machine.now()) == pytest.approx(UNIX_S)


@pytest.mark.parametrize("unix_s", [None, UNIX_S - 86400, UNIX_S])
def test_a_moment_of_an_earlier_boot_is_never_younger_than_this_boot(unix_s: float | None) -> None:
    machine = Machine()
    then = machine.now()
    machine.reboot("boot-2")
    machine.unix_s, machine.up_s = unix_s, 50.0
    assert then.age_s(machine.now()) >= 50.0


def test_a_moment_of_a_boot_without_a_clock_is_as_old_as_this_boot() -> None:
    machine = Machine(unix_s=None)
    then = machine.now()
    machine.reboot("boot-2")
    machine.unix_s = UNIX_S
    assert then.age_s(machine.now()) == machine.up_s
    assert then.unix_s(machine.now()) is None


def test_this_machine_has_a_boot_id_and_a_monotonic_clock() -> None:
    first, second = times.now(), times.now()
    assert first.boot == second.boot != ""
    assert second.up_s >= first.up_s > 0
    assert first.unix_s(second) == pytest.approx(time.time(), abs=60)


def test_a_wall_clock_that_was_never_set_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1234.5)
    assert times.now().started_unix_s is None
