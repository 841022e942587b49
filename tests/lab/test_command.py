"""`leadline lab` where its package is not installed."""

import sys

import pytest
from leadline_controller.cli.__main__ import run


def test_without_the_package_the_command_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "leadline_lab.command", raising=False)
    monkeypatch.setitem(sys.modules, "leadline_lab", None)
    assert run(["lab", "run", "--local"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == (
        "",
        "leadline: the lab is a package of its own: "
        "install it with pip install 'leadline-controller[demo]'\n",
    )
