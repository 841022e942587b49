"""Rates from counters in Prometheus' text format, read over real HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from leadline_controller.keda import request_rate
from leadline_controller.keda.request_rate import RateError, RequestRates, read_counter, totals

from tests.support.manual_clock import ManualClock
from tests.support.tasks import until

COUNTER = 'requests_total{service="web"}'
TEXT = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{service="web",code="200"} 40
requests_total{service="web",code="500"} 2
requests_total{service="shop",code="200"} 7
requests_created{service="web"} 1.7e9
up 1
"""


def test_a_counter_is_the_sum_of_the_samples_with_its_labels() -> None:
    counters = [read_counter(COUNTER), read_counter("requests_total"), read_counter("none_total")]
    web, every, none = totals(TEXT, counters)
    assert (web, every, none != none) == (42, 49, True)  # NaN is unequal to itself


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a_total{", "a{, ={:~}", 'a{x="1"} 5', "a\nb", "# HELP a", "a{x=1}", "a" * 2000],
)
def test_a_wrong_counter_is_refused(text: str) -> None:
    with pytest.raises(RateError, match="expected a counter"):
        read_counter(text)


def test_a_text_of_something_else_is_refused() -> None:
    with pytest.raises(RateError, match="Prometheus"):
        totals("requests_total{ 1 2 3 4\n", [read_counter("requests_total")])


class Endpoint:
    """An HTTP server on a loopback port with one page."""

    def __init__(self) -> None:
        self.text, self.status, self.asked = "requests_total 0\n", 200, 0
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Endpoint"]:
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        app.router.add_get("/elsewhere", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        headers = {"Location": "/elsewhere"} if self.status == 302 else {}
        return web.Response(text=self.text, status=self.status, headers=headers)

    async def reads(self, count: int) -> None:
        await until(lambda: self.asked >= count)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint().serving() as endpoint:
        yield endpoint


@asynccontextmanager
async def running(rates: RequestRates) -> AsyncIterator[None]:
    task = asyncio.create_task(rates.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def sampled(rates: RequestRates, count: int) -> None:
    """Until the counter has this many samples, and the next one is waited for."""
    await until(lambda: len(rates._samples["requests_total"]) >= count)
    await asyncio.sleep(0.01)


async def newest(rates: RequestRates, total: float) -> None:
    """Until the last sample has this total, and the next one is waited for."""
    await until(lambda: rates._samples["requests_total"][-1][1] == total)
    await asyncio.sleep(0.01)


def unknown(rates: RequestRates) -> str:
    with pytest.raises(RateError) as error:
        rates.per_s("requests_total")
    return str(error.value)


async def test_the_rate_is_the_growth_over_the_window(endpoint: Endpoint) -> None:
    clock = ManualClock(100.0)
    rates = RequestRates([endpoint.url], 30.0, clock)
    async with running(rates):
        assert "no two values" in unknown(rates)
        await sampled(rates, 1)
        for step in range(1, 9):
            endpoint.text = f"requests_total {50 * step}\n"
            await clock.advance(5.0)
            await newest(rates, 50 * step)
        assert rates.per_s("requests_total") == pytest.approx(10.0)


async def test_endpoints_add_up_and_a_silent_one_makes_the_rate_unknown(endpoint: Endpoint) -> None:
    clock = ManualClock(100.0)
    async with Endpoint().serving() as second:
        rates = RequestRates([endpoint.url, second.url], 30.0, clock)
        async with running(rates):
            unknown(rates)
            await sampled(rates, 1)
            endpoint.text = second.text = "requests_total 50\n"
            await clock.advance(5.0)
            await sampled(rates, 2)
            assert rates.per_s("requests_total") == 20.0
            second.status = 500
            for _ in range(15):
                before = second.asked
                await clock.advance(5.0)
                await second.reads(before + 1)
                await asyncio.sleep(0.02)
            assert "answered 500" in unknown(rates)


async def test_a_counter_that_went_back_begins_anew(endpoint: Endpoint) -> None:
    clock = ManualClock(100.0)
    rates = RequestRates([endpoint.url], 30.0, clock)
    async with running(rates):
        unknown(rates)
        endpoint.text = "requests_total 1000\n"
        await sampled(rates, 1)
        await clock.advance(5.0)
        await sampled(rates, 2)
        endpoint.text = "requests_total 5\n"
        await clock.advance(5.0)
        await until(lambda: len(rates._samples["requests_total"]) == 1)
        assert "no two values" in unknown(rates)


async def test_a_redirect_is_not_followed(endpoint: Endpoint) -> None:
    """It would lead out of the configured addresses."""
    clock = ManualClock()
    rates = RequestRates([endpoint.url], 30.0, clock)
    endpoint.status = 302
    async with running(rates):
        unknown(rates)
        await endpoint.reads(1)
        await until(lambda: "answered 302" in unknown(rates))
    assert endpoint.asked == 1


async def test_a_long_answer_is_refused(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_rate, "_MAX_BYTES", 100)
    endpoint.text = "#" * 200
    rates = RequestRates([endpoint.url], 30.0, ManualClock())
    async with running(rates):
        unknown(rates)
        await until(lambda: "more than" in unknown(rates))


async def test_without_a_question_nothing_is_read_and_counters_are_bounded(
    endpoint: Endpoint,
) -> None:
    rates = RequestRates([endpoint.url], 30.0, ManualClock())
    async with running(rates):
        await asyncio.sleep(0.1)
        assert endpoint.asked == 0
    for number in range(256):
        with pytest.raises(RateError, match="no two values"):
            rates.per_s(f"a{number}_total")
    assert "no two values" in unknown(rates)
    assert len(rates._counters) == 256
    assert "a0_total" not in rates._counters


async def test_a_controller_without_endpoints_says_so() -> None:
    assert "keda.requests_urls" in unknown(RequestRates([], 30.0, ManualClock()))


async def test_whoever_asks_for_the_most_counters_loses_its_oldest(endpoint: Endpoint) -> None:
    clock = ManualClock(100.0)
    rates = RequestRates([endpoint.url], 30.0, clock)
    flood = [(f"flood_total_{at}", ("a", f"namespace-{at % 50}")) for at in range(300)]
    honest = [(f'requests_total{{at="{at}"}}', ("b", "shop")) for at in range(40)]
    endpoint.text = "".join(f"{counter} 1\n" for counter, _ in honest)

    def ask(asked: Sequence[tuple[str, tuple[str, ...]]]) -> list[str]:
        said = []
        for counter, client in asked:
            try:
                said.append(str(rates.per_s(counter, client)))
            except RateError as error:
                said.append(str(error))
        return said

    async with running(rates):
        ask(flood)
        assert all("no two values" in each for each in ask(honest))
        await until(lambda: len(rates._samples[honest[0][0]]) == 1)
        for _ in range(2):
            ask(flood)
            asked = endpoint.asked
            await clock.advance(5.0)
            await endpoint.reads(asked + 1)
            await asyncio.sleep(0.01)
        ask(flood)
        assert ask(honest) == ["0.0"] * 40
        assert len(rates._counters) == len(rates._asked_s) == 256


async def test_a_counter_that_two_ask_for_stays_while_one_of_them_does() -> None:
    rates = RequestRates(["http://127.0.0.1:9/"], 30.0, ManualClock(100.0))

    def ask(counter: str, client: str) -> None:
        with pytest.raises(RateError, match="no two values"):
            rates.per_s(counter, (client,))

    ask("shared_total", "a")
    ask("shared_total", "b")
    for at in range(400):
        ask(f"flood_total_{at}", "a")
    assert "shared_total" in rates._counters
    assert set(rates._counters) == set(rates._samples) == {x.counter for x in rates._asked_s}
