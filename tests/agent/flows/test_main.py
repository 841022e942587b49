"""The file that leadline-flows leaves, and its command line."""

import json
import signal
from ipaddress import ip_address
from pathlib import Path

import pytest
from leadline_flows import __main__ as program
from leadline_flows.conntrack import ConntrackError
from leadline_flows.totals import Flow, Pair, Period


def flow(source: str, destination: str, seen: str | None, *, translated: bool) -> Flow:
    packed = [ip_address(each).packed for each in (source, destination)]
    other = ip_address(seen).packed if seen else None
    return Flow(Pair(packed[0], packed[1], 8080, other, translated), 3, 200, 2, 900, 1)


def test_the_file_is_json_with_a_row_for_each_flow() -> None:
    flows = [
        flow("10.42.1.5", "10.42.2.7", None, translated=True),
        flow("fd00::1", "fd00::2", "fd00::3", translated=False),
    ]
    text = program.text_of(Period(flows, 44), 90_000, 60_000, has_lost_events=True)
    assert json.loads(text) == {
        "version": 1,
        "boot_ms": 90_000,
        "duration_ms": 60_000,
        "omitted_bytes": 44,
        "lost_events": True,
        "flows": [
            ["10.42.1.5", "10.42.2.7", 8080, 200, 900, 3, 2, 1, None, True],
            ["fd00::1", "fd00::2", 8080, 200, 900, 3, 2, 1, "fd00::3", False],
        ],
    }


def test_the_file_is_replaced_whole_and_only_its_group_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "flows.json"
    (tmp_path / "flows.json.new").write_text("of a run that was killed")
    for text in ("one", "two"):
        program.write(str(file), text)
        assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["flows.json"]


@pytest.mark.parametrize("wrong", ["0", "3601", "nan", "soon"])
def test_a_period_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--period-s", wrong])
    assert ended.value.code == 2
    assert "--period-s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConntrackError("the kernel refuses"), "leadline-flows: the kernel refuses\n"),
        (
            FileNotFoundError(2, "No such file or directory"),
            "leadline-flows: /no/flows.json: cannot be written: No such file or directory\n",
        ),
    ],
)
def test_an_error_is_one_line(
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(program, "run", fail)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    assert program.main(["--file", "/no/flows.json"]) == 1
    assert capsys.readouterr().err == said
