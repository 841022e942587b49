"""The papers' experiments, run again. Each is one line here, and one module or one folder, in which
claims.py has the paper's claims and simulation.py its setting and the runs.

EXPERIMENTS names modules, so that listing the experiments imports none of their libraries.
What a board or a controller needs at run time does not belong here.
"""

from collections.abc import Mapping

EXPERIMENTS: Mapping[str, str] = {
    "netsched": "leadline_experiments.netsched",
    "dacs": "leadline_experiments.dacs",
    "kubedsm": "leadline_experiments.kubedsm",
    "infrastructure-aware": "leadline_experiments.infrastructure_aware",
    "response-time": "leadline_experiments.response_time",
    "leadline": "leadline_experiments.leadline",
}
