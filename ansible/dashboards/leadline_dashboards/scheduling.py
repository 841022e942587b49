"""The dashboard of decisions: where pods went, how long it took, and why some wait."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from leadline_dashboards import panels as p

_PHASES = "leadline_scheduling_duration_seconds_bucket"
_SHADOW = "leadline_shadow_decisions_total"
_EXTENDER = "extender_request_duration_seconds"


def dashboard() -> models.Dashboard:
    """Decisions of whichever controller leads."""
    phase = builders.CustomVariable("phase").label("Phase").values("decide,queue,preempt,plan,bind")
    return p.dashboard(
        "leadline-scheduling",
        "Leadline: scheduling",
        "Decisions, their latency, and what waits.",
        {
            "Now": _now(),
            "Decisions": _decisions(),
            "Latency": _latency(),
            "kube-scheduler's requests": _extender(),
            "Moves and messages": _others(),
        },
        [phase],
    )


def _quantile(share: float, by: str, histogram: str) -> str:
    rates = f"sum by (le, {by}) (rate({histogram}[$__rate_interval]))"
    return f"histogram_quantile({share}, {rates})"


def _now() -> p.Lines:
    return [
        [
            p.names(
                "Strategy",
                "The strategy, and the scheduler's name that pods ask for.",
                (
                    "max by (strategy, scheduler_name) (leadline_scheduling_info)",
                    "{{strategy}} for {{scheduler_name}}",
                ),
            ),
            p.now(
                "Placed",
                "Pods that were bound in the time shown.",
                (
                    'sum(increase(leadline_decisions_total{outcome="bound"}[$__range])) '
                    "or vector(0)",
                    "bound",
                ),
            ).decimals(0),
            p.now(
                "Waiting pods",
                "Pods in the queue that are not held and are not decided just now.",
                (
                    "sum(max by (queue) "
                    '(leadline_pending_pods{queue=~"active|backoff|unschedulable"}))',
                    "waiting",
                ),
            ),
            p.now(
                "Moves",
                "Whether moves of running pods are paused; unknown where they are off.",
                ("max(leadline_rescheduling_paused)", "moves"),
            ).mappings(p.words(("allowed", p.GOOD), ("paused", p.WARNING))),
        ],
    ]


def _decisions() -> p.Lines:
    return [
        [
            p.stacked(
                "Decisions by outcome",
                "Decisions a minute; unschedulable counts each attempt.",
                p.PER_MINUTE,
                p.a_minute("outcome", "decisions_total"),
            ),
            p.stacked(
                "Decisions by strategy",
                "Decisions a minute of each strategy.",
                p.PER_MINUTE,
                p.a_minute("strategy", "decisions_total"),
            ),
            p.stacked(
                "Why pods are unschedulable",
                "Attempts a minute that found no node, by the filter that refused the most nodes.",
                p.PER_MINUTE,
                p.a_minute("reason", 'decisions_total{outcome="unschedulable"}'),
            ),
        ],
        [
            p.stacked(
                "Queue",
                "Pods that wait, by what they wait for.",
                p.COUNT,
                ("max by (queue) (leadline_pending_pods)", "{{queue}}"),
            ),
            p.over_time(
                "Other nodes of shadows",
                "The share of the decisions that they saw for which strategies without effect find "
                "another node better.",
                p.RATIO,
                (
                    f'sum by (strategy) (rate({_SHADOW}{{result="different"}}[$__rate_interval]))'
                    f' / sum by (strategy) (rate({_SHADOW}{{result=~"same|tied|different"}}'
                    "[$__rate_interval]))",
                    "{{strategy}}",
                ),
            ),
            p.stacked(
                "Decisions of shadows",
                "Decisions a minute of strategies without effect, and those that they left out, by "
                "result.",
                p.PER_MINUTE,
                p.a_minute("result", "shadow_decisions_total"),
            ),
        ],
    ]


def _latency() -> p.Lines:
    return [
        [
            p.over_time(
                "Half of the pods",
                "The median time of each phase; no value while no pod is placed.",
                p.SECONDS,
                (_quantile(0.5, "phase", _PHASES), "{{phase}}"),
            ),
            p.over_time(
                "99 of 100 pods",
                "The time of each phase that one pod of a hundred exceeds.",
                p.SECONDS,
                (_quantile(0.99, "phase", _PHASES), "{{phase}}"),
            ),
            p.buckets(
                "Phase $phase",
                "How many pods took how long in the phase that is chosen above.",
                f'sum by (le) (increase({_PHASES}{{phase="$phase"}}[$__rate_interval]))',
            ),
        ],
    ]


def _extender() -> p.Lines:
    return [
        [
            p.over_time(
                "Requests",
                "Requests a minute of kube-scheduler, where Leadline is its extender.",
                p.PER_MINUTE,
                p.a_minute("verb", f"{_EXTENDER}_count"),
            ),
            p.over_time(
                "Errors",
                "Answers a minute that were an error.",
                p.PER_MINUTE,
                p.a_minute("verb", "extender_errors_total"),
            ),
            p.over_time(
                "How long kube-scheduler waits",
                "The median of the answers, and what one of a hundred exceeds.",
                p.SECONDS,
                (_quantile(0.5, "verb", f"leadline_{_EXTENDER}_bucket"), "{{verb}}, median"),
                (_quantile(0.99, "verb", f"leadline_{_EXTENDER}_bucket"), "{{verb}}, 99 %"),
            ),
        ],
    ]


def _others() -> p.Lines:
    return [
        [
            p.stacked(
                "Moves",
                "Moves of running pods that ended, a minute, by how.",
                p.PER_MINUTE,
                p.a_minute("outcome", "moves_total"),
            ),
            p.over_time(
                "Preemptions",
                "Pods a minute that others had to make room for, and the pods that were evicted.",
                p.PER_MINUTE,
                *(
                    (f"60 * sum(rate(leadline_preemption_victims_{part}[$__rate_interval]))", name)
                    for part, name in (("count", "preemptions"), ("sum", "evicted"))
                ),
            ),
            p.over_time(
                "Refused messages",
                "MQTT messages a minute that do not count, by why.",
                p.PER_MINUTE,
                p.a_minute("reason", "mqtt_messages_refused_total", of_all="max"),
            ),
        ],
    ]
