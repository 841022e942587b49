"""The dashboard that answers: is all well? Boards, network, probing and the controllers."""

from grafana_foundation_sdk.models import dashboard as models

from leadline_dashboards import panels as p

# Their names are in docs/examples/prometheus/leadline.rules.yml.
_FIRING = 'ALERTS{alertname=~"Leadline.+", alertstate="firing"}'


def _board(metric: str) -> str:
    """The boards' values; of several controllers' values one counts."""
    return f"max by (node) (leadline_board_{metric})"


_AGE = "min by (node) (leadline_board_report_age_seconds)"
_COUNTS = (
    (f"count({_board('info')})", "heard"),
    (f"count({_board('online')} == 1)", "online"),
    (f"count({_AGE} <= 120)", "reporting"),
)


def dashboard() -> models.Dashboard:
    """Every board and controller that Prometheus knows."""
    return p.dashboard(
        "leadline-cluster",
        "Leadline: cluster",
        "How the boards, their network and Leadline itself are.",
        {
            "Now": _now(),
            "Alerts and nodes": _alerts(),
            "Boards": _boards(),
            "Network": _network(),
            "Probing": _probing(),
            "Controllers": _controllers(),
        },
    )


def _now() -> p.Lines:
    return [
        [
            p.now(
                "Boards",
                "Boards that were ever heard, that are connected, and that reported in the last "
                "two minutes.",
                *((f"{count} or vector(0)", legend) for count, legend in _COUNTS),
            ),
            p.now(
                "Silent boards",
                "Boards whose last report is more than two minutes old.",
                (f"count({_AGE} > 120) or vector(0)", "silent"),
                steps=p.ANY,
            ),
            p.now(
                "Boards slowed down",
                "Boards whose firmware says that they are throttled or under voltage now.",
                (
                    "count(max by (node) "
                    '({__name__=~"leadline_board_(throttled|under_voltage)"}) == 1) or vector(0)',
                    "slowed down",
                ),
                steps=p.ANY,
            ),
            p.now(
                "Firing alerts",
                "Alerts of leadline.rules.yml that fire; without these rules it is always 0.",
                (f"count({_FIRING}) or vector(0)", "firing"),
                steps=p.ANY,
            ),
        ],
        [
            p.names(
                "Leader",
                "The controller that places pods; others stand by.",
                ("leadline_leader == 1", "{{instance}}"),
                none="nobody",
            ),
            p.now(
                "Broker",
                "Whether every controller is connected to the broker, and it answers.",
                ("min(leadline_mqtt_connected) or vector(0)", "broker"),
            ).mappings(p.words(("away", p.BAD), ("connected", p.GOOD))),
            p.now(
                "API server",
                "Whether every controller has listed nodes and pods; one that loses the API server "
                "later does not lead any more.",
                ("min(leadline_cluster_synced) or vector(0)", "API server"),
            ).mappings(p.words(("not listed", p.BAD), ("listed", p.GOOD))),
            p.names(
                "Versions",
                "The versions of the controllers.",
                ("max by (version) (leadline_build_info)", "{{version}}"),
            ),
        ],
    ]


def _alerts() -> p.Lines:
    by = "alertname, severity, what, node, peer, instance"
    return [
        [
            p.rows(
                "Firing alerts",
                "What the rules find wrong; docs/troubleshooting.md says what to do.",
                ("alertname", "Alert"),
                {"Count": (p.COUNT, f"count by ({by}) ({_FIRING})")},
            ).no_value("No alert fires"),
            p.stacked(
                "Nodes",
                "Nodes of Kubernetes that are ready, and those that are not.",
                p.COUNT,
                ('max by (state) (leadline_nodes{state!="unschedulable"})', "{{state}}"),
            ),
        ],
    ]


def _boards() -> p.Lines:
    columns = {
        "Online": (p.COUNT, _board("online")),
        "Last report": (p.SECONDS, _AGE),
        "CPU": (p.RATIO, _board("cpu_usage_ratio")),
        "Memory": (p.RATIO, _board("memory_usage_ratio")),
        "Temperature": (p.CELSIUS, _board("cpu_temperature_celsius")),
        "Bandwidth": (p.BITS_PER_S, f"8 * {_board('bandwidth_bytes_per_second')}"),
        "Bandwidth is": (p.COUNT, _board("bandwidth_lower_bound")),
    }
    table = p.rows(
        "All boards",
        "The newest values; an empty cell is unknown, and a bandwidth may be a lower bound.",
        ("node", "Board"),
        columns,
    )
    p.words_in(table, "Online", p.words(("no", p.BAD), ("yes", p.GOOD)))
    p.words_in(table, "Bandwidth is", p.words(("measured", p.GOOD), ("at least that", p.NEUTRAL)))
    p.colours_in(table, "Last report", p.OLD)
    p.colours_in(table, "Temperature", p.HOT)
    p.link_in(table, "Board", p.BOARD_OF_THE_CELL)
    return [
        [table],
        [
            p.ranking(
                "Hottest boards",
                "The highest temperatures; a Raspberry Pi slows down at 80 °C.",
                p.CELSIUS,
                _highest("node", "leadline_board_cpu_temperature_celsius"),
                p.HOT,
            ),
            p.ranking(
                "Busiest boards",
                "The highest busy shares of all cores.",
                p.RATIO,
                _highest("node", "leadline_board_cpu_usage_ratio"),
                p.FULL,
            ),
            p.ranking(
                "Fullest memories",
                "The highest shares of memory that programs cannot get.",
                p.RATIO,
                _highest("node", "leadline_board_memory_usage_ratio"),
                p.FULL,
            ),
        ],
        [
            p.over_time(
                "Boards",
                "How many boards were heard, connected, and reporting in the two minutes before.",
                p.COUNT,
                *_COUNTS,
            ),
            p.over_time(
                "Boards slowed down",
                "How many boards were throttled, and had too low a voltage.",
                p.COUNT,
                (f"sum({_board('throttled')})", "throttled"),
                (f"sum({_board('under_voltage')})", "under voltage"),
            ),
            p.over_time(
                "Lost messages",
                "Messages a minute that boards sent and that never came.",
                p.PER_MINUTE,
                (
                    "60 * sum(max by (node) "
                    "(rate(leadline_board_lost_messages_total[$__rate_interval])))",
                    "lost",
                ),
            ),
        ],
    ]


def _network() -> p.Lines:
    rtts = "max by (node, peer) (leadline_link_rtt_seconds)"
    return [
        [
            p.over_time(
                "Round trips",
                "The median, the 90th percentile and the longest of the exported links.",
                p.SECONDS,
                (f"quantile(0.5, {rtts})", "median"),
                (f"quantile(0.9, {rtts})", "90 %"),
                (f"max({rtts})", "longest"),
            ),
            p.over_time(
                "Lost packets",
                "The mean share of lost packets, and that of the worst link.",
                p.RATIO,
                ("avg(max by (node, peer) (leadline_link_loss_ratio))", "mean"),
                ("max(leadline_link_loss_ratio)", "worst"),
                steps=p.LOSSY,
            ),
            p.stacked(
                "Pairs of boards",
                "Pairs whose round trip is measured, is about to expire, or where no ping returns.",
                p.COUNT,
                ("max by (source) (leadline_links)", "{{source}}"),
            ),
        ],
        [
            p.ranking(
                "Longest round trips",
                "The links with the longest round trips.",
                p.SECONDS,
                _highest("node, peer", "leadline_link_rtt_seconds"),
                base=p.NEUTRAL,
            ),
            p.ranking(
                "Most lost packets",
                "The links that lose the largest shares of packets.",
                p.RATIO,
                _highest("node, peer", "leadline_link_loss_ratio"),
                p.LOSSY,
            ),
            p.ranking(
                "Slowest boards",
                "The boards with the lowest bandwidths, which may be lower bounds.",
                p.BITS_PER_S,
                (f"bottomk(8, 8 * {_board('bandwidth_bytes_per_second')})", "{{node}}"),
                base=p.NEUTRAL,
            ),
            p.over_time(
                "Contradicting boards",
                "Boards whose measurements disagree with their peers', so that they do not count.",
                p.COUNT,
                ("max by (what) (leadline_boards_contradicting)", "{{what}}"),
            ),
        ],
    ]


def _probing() -> p.Lines:
    return [
        [
            p.over_time(
                "Time of links",
                "The largest share of a link's last 24 hours that bandwidth tests took, and the "
                "share that they may take.",
                p.RATIO,
                ("max(leadline_probe_link_time_ratio)", "busiest board"),
                ("max(leadline_probe_allowed_link_time_ratio)", "allowed"),
            ),
            p.ranking(
                "Least bytes left",
                "The boards with the fewest bytes of tests before their limit of a day.",
                p.BYTES,
                ("bottomk(8, min by (node) (leadline_probe_left_bytes))", "{{node}}"),
                base=p.NEUTRAL,
            ),
            p.over_time(
                "Tests",
                "Bandwidth tests in progress.",
                p.COUNT,
                ("max(leadline_probe_running_tests)", "running"),
            ),
            p.over_time(
                "Bytes of tests",
                "Bytes of bandwidth tests in the last 24 hours, of all boards, and over each "
                "declared uplink.",
                p.BYTES,
                ("sum(max by (node) (leadline_probe_spent_bytes))", "all boards"),
                ("max by (uplink) (leadline_uplink_probe_spent_bytes)", "uplink {{uplink}}"),
            ),
        ],
    ]


def _controllers() -> p.Lines:
    return [
        [
            p.states(
                "Leadership",
                "When which controller placed pods.",
                p.words(("stands by", p.NEUTRAL), ("leads", p.GOOD)),
                ("leadline_leader", "{{instance}}"),
            ),
            p.states(
                "Connections",
                "When each controller was connected to the broker, and had listed nodes and pods.",
                p.words(("no", p.BAD), ("yes", p.GOOD)),
                ("leadline_mqtt_connected", "{{instance}}, broker"),
                ("leadline_cluster_synced", "{{instance}}, API server"),
            ),
        ],
        [
            p.ranking(
                "Certificates end in",
                "The time that is left of the certificates that controllers use.",
                p.SECONDS,
                (
                    "sort(min by (use) (leadline_certificate_expiry_timestamp_seconds) - time())",
                    "{{use}}",
                ),
                ((14 * 86_400, p.GOOD),),
                base=p.BAD,
            ),
            p.over_time(
                "Messages of boards",
                "MQTT messages a minute that count, by kind.",
                p.PER_MINUTE,
                p.a_minute("kind", "mqtt_messages_accepted_total", of_all="max"),
            ),
            p.over_time(
                "Clocks",
                "How far the controllers' clocks are from Prometheus'.",
                p.SECONDS,
                ("timestamp(leadline_time_seconds) - leadline_time_seconds", "{{instance}}"),
            ),
        ],
        [
            p.over_time(
                "CPU",
                "Cores that the controllers use.",
                p.COUNT,
                (
                    "rate(process_cpu_seconds_total[$__rate_interval]) "
                    "and on (job, instance) leadline_build_info",
                    "{{instance}}",
                ),
            ),
            p.over_time(
                "Memory",
                "Resident memory of the controllers.",
                p.BYTES,
                (
                    "process_resident_memory_bytes and on (job, instance) leadline_build_info",
                    "{{instance}}",
                ),
            ),
            p.over_time(
                "History",
                "Size of each controller's database, and what waits to be written.",
                p.BYTES,
                ("leadline_history_size_bytes", "{{instance}}"),
                ("leadline_history_limit_bytes", "limit of {{instance}}"),
                ("leadline_history_waiting_bytes", "waiting at {{instance}}"),
            ),
            p.over_time(
                "Losses of the history",
                "What a minute was not kept, because the disk is full, broken or too slow.",
                p.PER_MINUTE,
                p.a_minute("what", "history_losses_total"),
            ),
        ],
    ]


def _highest(by: str, metric: str) -> p.Query:
    """The eight highest of the boards or links; of several controllers' values one counts."""
    legend = " → ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return f"topk(8, max by ({by}) ({metric}))", legend
