"""EXPERIMENTS: what each paper measured, run again. One folder and one line each.

Named as modules, so that listing them imports none of the libraries that only they need.
"""

from collections.abc import Mapping

EXPERIMENTS: Mapping[str, str] = {
    "netsched": "leadline_experiments.netsched",
    "dacs": "leadline_experiments.dacs",
    "kubedsm": "leadline_experiments.kubedsm",
    "infrastructure-aware": "leadline_experiments.infrastructure_aware",
    "response-time": "leadline_experiments.response_time",
}
