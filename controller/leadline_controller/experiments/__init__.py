"""EXPERIMENTS: what each paper measured, run again. One folder and one line each.

Named as modules, so that listing them imports none of the libraries that only they need.
"""

from collections.abc import Mapping

EXPERIMENTS: Mapping[str, str] = {
    "kubedsm": "leadline_controller.experiments.kubedsm",
    "netsched": "leadline_controller.experiments.netsched",
}
