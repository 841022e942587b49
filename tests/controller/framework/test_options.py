from dataclasses import dataclass

import pytest
from leadline_controller.framework.options import (
    OptionError,
    build,
    choice,
    option,
    options_of,
    value_of_text,
    value_text,
    values_of,
)


@dataclass(frozen=True, slots=True)
class Sample:
    share: float = option(0.5, unit="", maximum=1.0, help="a share")
    pause_s: float = option(2.0, unit="s", name="pause", help="a pause")


def test_options_are_read_off_the_class() -> None:
    share, pause = options_of(Sample)
    assert (share.name, share.default, share.minimum, share.maximum) == ("share", 0.5, 0.0, 1.0)
    assert (pause.name, pause.attribute, pause.unit) == ("pause", "pause_s", "s")


def test_given_values_are_set_and_the_others_stand() -> None:
    made = build(Sample, {"pause": "0.25"})
    assert values_of(made) == {"share": 0.5, "pause": 0.25}


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-1", "1.1", True, None, [1]])
def test_a_value_that_it_cannot_take_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="option share: expected a number from 0 to 1, got"):
        build(Sample, {"share": value})


def test_an_unbounded_option_is_finite_even_so() -> None:
    with pytest.raises(OptionError, match=r"option pause: expected a number from 0 \(s\), got"):
        build(Sample, {"pause": "inf"})


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    with pytest.raises(OptionError, match="option 'speed': unknown; this strategy has: share, p"):
        build(Sample, {"speed": 1})


@dataclass(frozen=True, slots=True)
class Choosy:
    queue: str = choice("wait", "literal", help="a word")


def test_an_option_may_be_one_of_some_words_the_first_by_default() -> None:
    (queue,) = options_of(Choosy)
    assert (queue.default, queue.choices) == ("wait", ("wait", "literal"))
    assert values_of(build(Choosy, {})) == {"queue": "wait"}
    assert values_of(build(Choosy, {"queue": "literal"})) == {"queue": "literal"}


@pytest.mark.parametrize("value", ["", "WAIT", 1, None, True, ["wait"]])
def test_another_word_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="option queue: expected wait or literal, got"):
        build(Choosy, {"queue": value})


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.5"), (10.0, "10"), ("wait", "wait")])
def test_values_as_text_and_back(value: float | str, text: str) -> None:
    assert value_text(value) == text
    assert value_of_text(text) == value
