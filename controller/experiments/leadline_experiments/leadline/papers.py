"""The papers' own experiments and metrics, with the paper's method beside `leadline`, both with the
same workloads and draws. Fewer runs than in the papers' experiments; the settings are theirs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import NamedTuple

import numpy as np
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Better, Strategy
from leadline_controller.strategies.infrastructure_aware import InfrastructureAware
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.strategies.response_time import ResponseTime

from leadline_experiments.dacs import methods as dacs
from leadline_experiments.dacs.simulation import ITERATIONS, SCENARIO_1, SCENARIO_2
from leadline_experiments.infrastructure_aware import WEIGHT
from leadline_experiments.infrastructure_aware import simulation as pulls
from leadline_experiments.kubedsm import simulation as tiers
from leadline_experiments.kubedsm.logs import Log, logs, mean_over_runs
from leadline_experiments.netsched import assignment_s
from leadline_experiments.netsched import simulation as links
from leadline_experiments.response_time import simulation as scaling

Strategies = Mapping[str, Strategy]
Values = Mapping[str, Sequence[float]]  # by method, one for each draw
DACS = "dacs, its best alpha"
NO_MIGRATION = "kubedsm without migration"
DRAWS, RUNS, SCALING_RUNS = 4, 3, 6
STEP_S = {"web": 2.0, "object detection": 60.0}
_SENT_MB = 100
LOADS = ("1.1_0.4", "1.3_0.4", "1.5_0.4")
EQUAL_PODS, REPORTED = 90, links.Readings(links.REPORT_S, assumed=True)


class Comparison(NamedTuple):
    """One metric of a paper, by its method and others."""

    paper: str
    case: str
    metric: str
    method: str  # the paper's
    values: Values
    better: Better = "lower"
    claims: bool = True  # whether it is the paper's own metric

    def mean(self, method: str) -> float:
        """Of a method, over its draws."""
        return fmean(self.values[method])


def comparisons(ours: Strategies, seed: int, done: Callable[[], None]) -> Iterator[Comparison]:
    """Of all papers. ours: what stands beside their methods. done: called after each of PARTS."""
    for part in PARTS:
        yield from part(ours, seed)
        done()


def _pulls(ours: Strategies, seed: int) -> Iterator[Comparison]:
    """Table II."""
    paper = InfrastructureAware(
        w=WEIGHT,
        w_images=WEIGHT,
        w_layers=WEIGHT,
        queue="wait",
        rounding="whole",
        spread="selector-spread",
    )
    images, outcomes = pulls.stand_in_images(), dict[str, list[pulls.Outcome]]()
    for draw in range(DRAWS):
        random = Random(f"{seed}/{draw}")
        links_mbps = pulls.draw_links(random)
        applications = pulls.draw_applications(images, random)
        ties = random.random()
        for name, strategy in {paper.name: paper, **ours}.items():
            found = pulls.simulate(links_mbps, images, applications, strategy, Random(ties))
            outcomes.setdefault(name, []).append(found)

    def of(metric: str, value: Callable[[pulls.Outcome], float], claims: bool = True) -> Comparison:
        values = {name: [value(each) for each in found] for name, found in outcomes.items()}
        labels = ("Infrastructure Aware", "Table II", metric, paper.name)
        return Comparison(*labels, values, claims=claims)

    yield of("provision time, mean, s", lambda each: fmean(each.provision_s))
    yield of("provision time, 99 %, s", lambda each: float(np.percentile(each.provision_s, 99)))
    yield of("storage of a node, mean, MB", lambda each: fmean(each.stored_mb))
    yield of("until the last layer is there, mean, s", lambda each: fmean(each.with_waits_s), False)


def _links(ours: Strategies, seed: int) -> Iterator[Comparison]:
    """Fig. 9 and 10, and equal workers as a cluster reads them."""
    methods = {"netsched": NetSched(), **ours}
    for case, count in (("Fig. 9, 5 pods", 5), ("Fig. 10, 10 pods", 10)):
        pods = links.SENDER.pods(count)
        times_s = {
            name: [
                count * assignment_s(strategy)
                + links.delivery_s(links.place(strategy, pods, Random(seed)).counts, _SENT_MB)
            ]
            for name, strategy in methods.items()
        }
        yield Comparison("NetSched", case, "execution time, s", "netsched", times_s)
    noisy = links.UNCONGESTED._replace(noise=links.NOISE)
    pods = links.PAUSE.pods(EQUAL_PODS)
    fullest = {
        name: [
            float(max(links.place(strategy, pods, Random(n), noisy, readings=REPORTED).counts))
            for n in range(seed, seed + RUNS)
        ]
        for name, strategy in methods.items()
    }
    case = f"Section IV-B.1, {EQUAL_PODS} pods, equal workers, {REPORTED}"
    yield Comparison("NetSched", case, "pods on the fullest", "netsched", fullest)


def _scaling(ours: Strategies, seed: int) -> Iterator[Comparison]:
    """Fig. 5 and 7, each step."""
    paper = ResponseTime()
    for figure, each in (("Fig. 5", scaling.WEB), ("Fig. 7", scaling.DETECTION)):
        service = replace(each, step_s=STEP_S[each.name])
        outcomes = {
            name: [
                scaling.run_trial(service, scaling.Method(strategy, scaling.newest), n)
                for n in range(seed, seed + SCALING_RUNS)
            ]
            for name, strategy in {paper.name: paper, **ours}.items()
        }
        for step in range(len(service.steps)):
            times_ms = {
                name: [fmean(run.response_s[step]) * 1000 for run in runs]
                for name, runs in outcomes.items()
            }
            case = f"{figure}, {service.name}, step {step + 1}"
            yield Comparison("Response time", case, "response time, ms", paper.name, times_ms)


def _delays(ours: Strategies, seed: int) -> Iterator[Comparison]:
    """Tables 6 and 7."""
    alphas = [each for each in dacs.METHODS if each.strategy.name == "dacs"]
    methods = [*alphas, *(dacs.Method(each, name) for name, each in ours.items())]
    for scenario in (SCENARIO_1, SCENARIO_2):
        result = dacs.run_methods(scenario, methods, seed, RUNS)
        for load in ITERATIONS:
            times_s = {
                key: [run.completion_s(load) for run in runs] for key, runs in result.runs.items()
            }
            values = {name: times_s[each.name, name] for name, each in ours.items()}
            values[DACS] = min((times_s[each.key] for each in alphas), key=fmean)
            case = f"{scenario.table}, {load}"
            yield Comparison("DACS", case, "completion time, mean, s", DACS, values)


def _tiers(ours: Strategies, seed: int) -> Iterator[Comparison]:
    """Fig. 4: the logged pods of three workloads."""
    methods = {"kubedsm": tiers.kubedsm(), NO_MIGRATION: tiers.kubedsm(0, 0)}
    for name, each in ours.items():
        methods[name] = tiers.Method(each, each if isinstance(each, BatchStrategy) else None)

    def percent(log: Log, method: tiers.Method, random: Random) -> float:
        run = tiers.replay(log, method, random)
        return float(mean_over_runs([run.on_edge / log.pods]).mean() * 100)

    for load in LOADS:
        ratios = {
            name: [
                percent(log, method, Random(f"{seed} {load} {number}"))
                for number, log in enumerate(logs()["kubedsm"][load][:RUNS])
            ]
            for name, method in methods.items()
        }
        yield Comparison("KubeDSM", f"Fig. 4, {load}", "edge ratio, %", "kubedsm", ratios, "higher")


PARTS: Sequence[Callable[[Strategies, int], Iterator[Comparison]]] = (
    *(_pulls, _links, _scaling),
    *(_delays, _tiers),
)
