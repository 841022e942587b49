"""EXPERIMENTS: what each paper measured, run again. One folder and one line each.

Named as modules, so that listing them imports none of the libraries that only they need.
"""

from collections.abc import Mapping

EXPERIMENTS: Mapping[str, str] = {
    "netsched": "leadline_controller.experiments.netsched",
    "dacs": "leadline_controller.experiments.dacs",
    "kubedsm": "leadline_controller.experiments.kubedsm",
    "infrastructure-aware": "leadline_controller.experiments.infrastructure_aware",
    "response-time": "leadline_controller.experiments.response_time",
}
