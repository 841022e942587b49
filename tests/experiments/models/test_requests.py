"""A user's request, with times worked by hand."""

import pytest
import simpy
from leadline_experiments.models.cpu import CpuModel
from leadline_experiments.models.requests import Request, ServedRequest, serve, served


def run(cores: float, *requests: Request) -> list[ServedRequest]:
    env = simpy.Environment()
    node = CpuModel(env, cores)
    users = [env.process(serve(env, node, request)) for request in requests]
    env.run()
    return [served(user) for user in users]


def test_a_request_takes_the_network_and_the_processing() -> None:
    request = Request(ready_s=3, sending_s=2, round_trip_s=1, work_core_s=4, limit_cores=1)
    # Ready at 3, data there at 5.5, done at 9.5, and half a round trip back.
    assert run(2, request) == [ServedRequest(network_s=3.0, processing_s=4.0, done_s=10.0)]


def test_users_of_one_node_wait_for_each_other_only_while_both_are_served() -> None:
    near = Request(ready_s=0, sending_s=0, round_trip_s=0, work_core_s=4, limit_cores=1)
    far = Request(ready_s=0, sending_s=0, round_trip_s=4, work_core_s=4, limit_cores=1)
    # One core: the far one comes at 2, when the near one has 2 left. Both at half speed: the
    # near one is done at 6, the far one has 2 left then and is alone.
    assert run(1, near, far) == [ServedRequest(0.0, 6.0, 6.0), ServedRequest(4.0, 6.0, 10.0)]


def test_a_request_without_work_is_only_network() -> None:
    (found,) = run(1, Request(1, 0.5, 0.25, 0, 1))
    assert found.processing_s == 0
    assert found.done_s == pytest.approx(1.75)
