"""A comparison in every form: the same numbers, nothing from elsewhere, names that stay text."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import check_writable
from leadline_lab.replay import verdict
from leadline_lab.replay.comparison import Difference, Estimate, compare
from leadline_lab.replay.measures import MEASURES, READY
from leadline_lab.replay.outcomes import Outcome
from leadline_lab.replay.page import page
from leadline_lab.replay.report import show, to_csv, to_dict

from tests.docs.site import remote
from tests.lab.replay.synthetic import DACS, IMAGE_LOCALITY, KUBE_DEFAULT, NETSCHED, outcomes

HOSTILE = '"><script>alert(1)</script>\x1b]0;x\x07'
BY_KEY = {measure.key: measure for measure in MEASURES}


@pytest.fixture(scope="module")
def day() -> list[Outcome]:
    return outcomes([KUBE_DEFAULT, NETSCHED, DACS], 2, 200)


def hostile(given: Sequence[Outcome]) -> list[Outcome]:
    def renamed(pod: object) -> str:
        return f"{pod}{HOSTILE}"

    return [
        replace(
            each,
            strategy=renamed(each.strategy),
            cluster=HOSTILE,
            window=HOSTILE,
            options={HOSTILE: HOSTILE},
            zones={renamed(node): renamed(zone) for node, zone in each.zones.items()},
            tiers={renamed(node): tier for node, tier in each.tiers.items()},
            pods=tuple(
                replace(pod, pod=renamed(pod.pod), node=pod.node and renamed(pod.node))
                for pod in each.pods
            ),
            caveats=(HOSTILE,),
        )
        for each in given
    ]


class Tags(HTMLParser):
    """What a page consists of; a tag that is not closed in its turn is an error."""

    VOID = ("meta", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data)


def test_the_page_says_what_was_compared_and_needs_nothing_else(day: list[Outcome]) -> None:
    text = page(compare(day), day)
    tags = Tags(text)
    assert remote(text) == []
    assert re.findall(r"https?:|url\(|@import|<script|\bsrc=", text) == []
    assert tags.texts["title"] == [
        "netsched and dacs beside kube-default: which strategy places pods better?"
    ]
    assert "Verdict" in tags.texts["h2"]
    facts = dict(zip(tags.texts["dt"], tags.texts["dd"], strict=True))
    assert facts["Compared with"] == "kube-default, which decided when it was recorded"
    assert facts["Recorded hours"] == "monday.rec, 24 h from 2026-10-19 00:00 UTC"
    assert facts["Cluster"] == "factory: 18 boards, 16 edge, 2 cloud"
    assert facts["Pods"] == "200 for each strategy and seed"
    paragraphs = " ".join(tags.texts["p"]).replace("\xa0", " ")
    assert re.search(
        r"Round trips to users are \d+ % \(\d+ to \d+\) shorter under dacs", paragraphs
    )
    assert "No difference is certain in" in paragraphs
    for measure in MEASURES:
        nothing = f"{measure.title}: 0 under every strategy."
        assert measure.meaning in paragraphs or nothing in paragraphs
    assert tags.seen.count("svg") >= 2 * 10 + 1 + 3
    assert any("hours are drawn" in each for each in tags.texts["li"])


def test_the_same_input_gives_the_same_bytes(
    day: list[Outcome], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for name in ("a", "b"):
        show(day, "json", tmp_path / name, tmp_path / name / "page.html")
        files = sorted((tmp_path / name).iterdir())
        made.append(([(file.name, file.read_bytes()) for file in files], capsys.readouterr().out))
    assert made[0] == made[1]
    names = [name for name, _ in made[0][0]]
    assert {"page.html", "ready.svg", "ready_s.svg", "ready_s-difference.svg", "boards-2.svg"} <= {
        *names
    }
    for name, content in made[0][0]:
        if name.endswith(".svg"):
            root = ElementTree.fromstring(content)  # noqa: S314  # our own
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert root.get("aria-label")


def test_names_stay_text_everywhere(
    day: list[Outcome], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = hostile(day)
    for output in ("table", "wide", "json", "csv"):
        show(given, output, tmp_path, tmp_path / "page.html")
        out = capsys.readouterr().out
        assert output == "csv" or "\x1b" not in out
        assert "alert(1)" in out
    text = (tmp_path / "page.html").read_text()
    assert "script" not in Tags(text).seen
    assert "&lt;script&gt;alert(1)" in text
    assert "\x1b" not in text
    for file in tmp_path.glob("*.svg"):
        root = ElementTree.fromstring(file.read_bytes())  # noqa: S314  # our own
        tags = {each.tag.rpartition("}")[2] for each in root.iter()}
        assert "script" not in tags


def test_json_and_csv_have_the_same_numbers_and_null_for_what_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [
        replace(each, pods=tuple(replace(pod, transfer_s=None) for pod in each.pods))
        for each in outcomes([KUBE_DEFAULT, DACS], 1, 150)
    ]
    comparison = compare(given)
    show(given, "json")
    document = json.loads(capsys.readouterr().out)
    assert document == to_dict(comparison, given)
    assert document["base"] == "kube-default"
    assert document["drawn"] == {"unit": "hour", "count": 24}
    show(given, "csv")
    out = capsys.readouterr().out
    assert out == to_csv(comparison)
    lines = list(csv.DictReader(io.StringIO(out)))
    assert len(lines) == len(document["measures"]) == 2 * len(MEASURES)
    for line, row in zip(lines, document["measures"], strict=True):
        assert (line["measure"], line["strategy"]) == (row["measure"], row["strategy"])
        assert (int(line["known"]), int(line["unknown"])) == (row["known"], row["unknown"])
        for name in ("mean", "worst", "mean_difference", "worst_difference_percent"):
            for column, end in ((name, "value"), (f"{name}_low", "low"), (f"{name}_high", "high")):
                number = float(line[column]) if line[column] else None
                assert number == row[name][end]
    transfer = next(row for row in document["measures"] if row["measure"] == "transfer_s")
    assert transfer["mean"] == {"value": None, "low": None, "high": None}
    assert (transfer["known"], transfer["unknown"]) == (0, 150)


def test_the_table_has_a_dash_for_what_is_unknown_and_ends_with_the_verdict(
    day: list[Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        replace(each, pods=tuple(replace(pod, transfer_s=None) for pod in each.pods))
        for each in day
    ]
    show(given, "wide")
    lines = capsys.readouterr().out.splitlines()
    (row,) = (x for x in lines if x.startswith("Transfer to users, s") and "dacs" in x)
    assert row.split()[-7:] == ["dacs", "-", "-", "-", "-", "0", "400"]
    assert any(line.startswith("dacs: Better than kube-default: round trips") for line in lines)
    assert any(line.startswith("Nothing is known of transfer to users.") for line in lines)


@pytest.mark.parametrize(
    ("key", "difference", "says"),
    [
        ("ready_s", (Estimate(-2, -3, -1), Estimate(-12, -16, -8)), "12 % (8 to 16) sooner"),
        ("ready_s", (Estimate(2, -1, 3), Estimate(2.5, -1, 4)), "2.5 % (-1 to 4) later"),
        ("ready_s", (Estimate(-2, -3, -1), None), "2 s (1 to 3) sooner"),
        ("ready_s", (Estimate(-2), None), "2 s sooner"),
        ("pending", (Estimate(0.03, 0.01, 0.05), None), "3 points (1 to 5) more"),
        ("moves", (Estimate(0, 0, 0), None), "the same"),
        ("board_variation", (Estimate(-0.5, -0.6, -0.4), None), "0.5 (0.4 to 0.6) more even"),
    ],
)
def test_differences_in_words(
    key: str, difference: tuple[Estimate, Estimate | None], says: str
) -> None:
    assert verdict.change(BY_KEY[key], Difference(*difference)) == says


def test_more_on_the_edge_is_neither_better_nor_worse() -> None:
    more = Difference(Estimate(0.1, 0.05, 0.2), None)
    assert verdict.is_better(BY_KEY["edge"], more) is None
    assert verdict.is_better(READY, more) is False
    told = list(
        verdict.paragraphs(compare(outcomes([KUBE_DEFAULT, IMAGE_LOCALITY], 2)), "image-locality")
    )
    assert [each.split(":")[0] for each in told[:3]] == [
        "Better than kube-default",
        "Worse than kube-default",
        "Different",
    ]
    assert "pods on the edge are" in told[2]


def test_pods_that_never_became_ready_are_told(day: list[Outcome]) -> None:
    given = [
        replace(
            each,
            pods=tuple(
                replace(pod, node=None, bound_s=None, ready_s=None) if number < 30 else pod
                for number, pod in enumerate(each.pods)
            ),
        )
        if each.strategy == "dacs"
        else each
        for each in day
    ]
    told = list(verdict.caveats(compare(given), given))
    assert any("left out: 60 under dacs." in each for each in told)
    assert told[-1] == day[0].caveats[0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (outcomes([DACS], 2, 40), "Only dacs was replayed, so nothing is compared."),
        (
            [replace(x, length_s=900.0) for x in outcomes([DACS, NETSCHED], 1, 3)],
            "The recording is too short to say how certain any value is",
        ),
    ],
)
def test_a_verdict_does_not_claim_what_cannot_be_known(given: list[Outcome], says: str) -> None:
    comparison = compare(given)
    assert verdict.summary(comparison).startswith(says)
    assert says in page(comparison, given)
    for strategy in comparison.strategies[1:]:
        (told,) = verdict.paragraphs(comparison, strategy)
        assert told.startswith("No difference is certain in time to ready")


def test_an_empty_recording_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show([Outcome("dacs", 0, 7200.0, ())], "table", tmp_path, tmp_path / "page.html")
    assert "Time to ready, s" in capsys.readouterr().out
    Tags((tmp_path / "page.html").read_text())


def test_what_cannot_be_compared_or_written_is_said_in_a_line(
    day: list[Outcome], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="has two runs of the same hours and seed"):
        show([day[0], day[0]], "json")
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match="give a place to write to"):
        show(day[:1], "json", html=tmp_path / "file" / "page.html")
    with pytest.raises(BadInput, match=r"--plot .*file: .*give a place to write to"):
        check_writable("--plot", tmp_path / "file")
    check_writable("--plot", tmp_path / "pages" / "plots")
    assert [x.name for x in sorted(tmp_path.rglob("*"))] == ["file", "pages", "plots"]
