"""The dashboard of one board: what it measures, and its links to its peers."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from leadline_dashboards import panels as p


def dashboard() -> models.Dashboard:
    """The board that the variable `node` names."""
    node = (
        builders.QueryVariable("node")
        .label("Board")
        .query("label_values(leadline_board_info, node)")
        .datasource(p.DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )
    return p.dashboard(
        "leadline-board",
        "Leadline: board",
        "One board, its links to its peers, and what probing costs it.",
        {"Now": _now(), "Board": _board(), "Network": _network(), "Probing": _probing()},
        [node],
    )


def _of(metric: str, by: str = "node") -> str:
    """The board's value; of several controllers' values one counts."""
    return f'max by ({by}) (leadline_{metric}{{node="$node"}})'


def _now() -> p.Lines:
    return [
        [
            p.names(
                "Model",
                "The board's hardware, as it says.",
                (_of("board_info", "model"), "{{model}}"),
                none="unknown",
            ),
            p.names(
                "Agent",
                "The version of its agent.",
                (_of("board_info", "agent_version"), "{{agent_version}}"),
                none="unknown",
            ),
            p.now(
                "Agent is",
                "Whether the agent is connected to the broker.",
                (_of("board_online"), "agent"),
            ).mappings(p.words(("offline", p.BAD), ("online", p.GOOD))),
            p.now(
                "Last report",
                "The age of the newest report; after a minute its values are unknown.",
                ('min(leadline_board_report_age_seconds{node="$node"})', "age"),
                unit=p.SECONDS,
                steps=p.OLD,
            ),
        ],
        [
            p.now(
                "Temperature",
                "Of the processor; a Raspberry Pi slows down at 80 °C.",
                (_of("board_cpu_temperature_celsius"), "temperature"),
                unit=p.CELSIUS,
                steps=p.HOT,
            ),
            p.now(
                "Throttled",
                "Whether heat or voltage slow the processor down; unknown where no firmware says "
                "so.",
                (_of("board_throttled"), "throttled"),
            ).mappings(p.words(("no", p.GOOD), ("yes", p.BAD))),
            p.now(
                "Under-voltage",
                "Whether the supply voltage is too low; unknown where neither firmware nor hwmon "
                "says so.",
                (_of("board_under_voltage"), "under-voltage"),
            ).mappings(p.words(("no", p.GOOD), ("yes", p.BAD))),
            p.now(
                "Bandwidth is",
                "Whether the bandwidth is measured, or the link can do at least that and nobody "
                "knows how much more.",
                (_of("board_bandwidth_lower_bound"), "bandwidth"),
            ).mappings(p.words(("measured", p.GOOD), ("at least that", p.NEUTRAL))),
        ],
    ]


def _board() -> p.Lines:
    return [
        [
            p.over_time(
                "CPU",
                "The busy share of all cores.",
                p.RATIO,
                (_of("board_cpu_usage_ratio"), "CPU"),
                steps=p.FULL,
            ).max(1),
            p.over_time(
                "Memory",
                "The share of the memory that programs cannot get.",
                p.RATIO,
                (_of("board_memory_usage_ratio"), "memory"),
                steps=p.FULL,
            ).max(1),
            p.over_time(
                "Disk",
                "Bytes a second, read and written together.",
                p.BYTES_PER_S,
                (_of("board_disk_usage_bytes_per_second"), "disk"),
            ),
        ],
        [
            p.over_time(
                "Temperature",
                "Of the processor.",
                p.CELSIUS,
                (_of("board_cpu_temperature_celsius"), "temperature"),
                steps=p.HOT,
            ),
            p.states(
                "Throttled and under-voltage",
                "When heat or voltage slowed the board down; often for seconds only.",
                p.words(("no", p.GOOD), ("yes", p.BAD)),
                (_of("board_throttled"), "throttled"),
                (_of("board_under_voltage"), "under-voltage"),
            ),
            p.over_time(
                "Age of the last report",
                "It rises while the board is silent; after two minutes that is an alert.",
                p.SECONDS,
                ('min(leadline_board_report_age_seconds{node="$node"})', "age"),
                steps=p.OLD,
            ),
        ],
    ]


def _network() -> p.Lines:
    columns = {
        "Round trip": (p.SECONDS, _of("link_rtt_seconds", "peer")),
        "Within": (p.SECONDS, _of("link_rtt_error_seconds", "peer")),
        "Lost packets": (p.RATIO, _of("link_loss_ratio", "peer")),
        "Bandwidth": (p.BITS_PER_S, f"8 * {_of('link_bandwidth_bytes_per_second', 'peer')}"),
        "Measured": (
            p.COUNT,
            'max by (peer) (leadline_link_rtt_seconds{node="$node", source="measured"} >= bool 0 '
            'or leadline_link_rtt_seconds{node="$node", source="stale"} < bool 0)',
        ),
    }
    peers = p.rows(
        "Peers",
        "The links to the nearest boards and the anchors: in 90 % of the pairs the true round trip "
        "is within that of the one shown.",
        ("peer", "Peer"),
        columns,
    )
    p.words_in(peers, "Measured", p.words(("a while ago", p.WARNING), ("lately", p.GOOD)))
    p.colours_in(peers, "Lost packets", p.LOSSY)
    p.link_in(peers, "Peer", p.BOARD_OF_THE_CELL)
    return [
        [
            p.over_time(
                "Traffic and bandwidth",
                "Traffic of the fastest interface in its busier direction, and what the link can "
                "do.",
                p.BITS_PER_S,
                (f"8 * {_of('board_network_usage_bytes_per_second')}", "traffic"),
                (f"8 * {_of('board_bandwidth_bytes_per_second')}", "bandwidth"),
            ),
            p.states(
                "Bandwidth is a lower bound",
                "When the link could do more than its bandwidth, and nobody knew how much.",
                p.words(("measured", p.GOOD), ("at least", p.WARNING)),
                (_of("board_bandwidth_lower_bound"), "bandwidth"),
            ),
            p.over_time(
                "Lost messages",
                "Messages a minute that the board sent and that never came.",
                p.PER_MINUTE,
                (
                    '60 * max(rate(leadline_board_lost_messages_total{node="$node"}'
                    "[$__rate_interval]))",
                    "lost",
                ),
            ),
        ],
        [peers],
        [
            p.over_time(
                "Round trips",
                "To each peer.",
                p.SECONDS,
                (_of("link_rtt_seconds", "peer"), "{{peer}}"),
            ),
            p.over_time(
                "Lost packets",
                "To each peer; 100 % if no ping of several rounds came back.",
                p.RATIO,
                (_of("link_loss_ratio", "peer"), "{{peer}}"),
                steps=p.LOSSY,
            ),
        ],
    ]


def _probing() -> p.Lines:
    return [
        [
            p.over_time(
                "Bytes of tests",
                "Bytes of bandwidth tests in the last 24 hours, and those left before the limit of "
                "a day.",
                p.BYTES,
                (_of("probe_spent_bytes"), "spent"),
                ('min(leadline_probe_left_bytes{node="$node"})', "left"),
            ),
            p.over_time(
                "Time of the link",
                "The share of the link's last 24 hours that tests took, and that they may take.",
                p.RATIO,
                (_of("probe_link_time_ratio"), "taken"),
                ("max(leadline_probe_allowed_link_time_ratio)", "allowed"),
            ),
        ],
    ]
