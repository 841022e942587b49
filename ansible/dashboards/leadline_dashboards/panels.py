"""Panels in the one style that all dashboards share.

Colours are Grafana's names, which suit its dark and its light theme.
"""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# That of Grafana 10.4 and 11.0: later ones migrate it, and nothing here is newer.
SCHEMA_VERSION = 39
TAG = "leadline"
WIDTH = 24
DATASOURCE = models.DataSourceRef("prometheus", "${datasource}")
# Grafana puts the text of the cell into it.
BOARD_OF_THE_CELL = (
    "/d/leadline-board?var-node=${__value.text}&var-datasource=${datasource}&${__url_time_range}"
)

COUNT, RATIO, SECONDS, CELSIUS = units.Short, units.PercentUnit, units.Seconds, units.Celsius
BYTES, BYTES_PER_S, BITS_PER_S = units.BytesSI, units.BytesPerSecondSI, units.BitsPerSecondSI
PER_MINUTE = units.OpsPerMinute

GOOD, WARNING, BAD, NEUTRAL = "green", "orange", "red", "text"
ANY = ((1.0, BAD),)
# A Raspberry Pi slows down at the last.
HOT = ((70.0, WARNING), (80.0, BAD))
# Where values become unknown (ttl.report_s), and where LeadlineBoardSilent fires.
OLD = ((60.0, WARNING), (120.0, BAD))
FULL = ((0.8, WARNING), (0.95, BAD))
# LeadlineLinkDegraded fires at the last.
LOSSY = ((0.01, WARNING), (0.05, BAD))
_COLOURED_TEXT = models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"})

Steps = Sequence[tuple[float, str]]
Query = tuple[str, str]  # an expression and the legend of its series
Lines = Sequence[Sequence[Builder[models.Panel]]]
Mappings = list[models.ValueMapping]
AnyPanel = TypeVar(
    "AnyPanel",
    stat.Panel,
    timeseries.Panel,
    bargauge.Panel,
    statetimeline.Panel,
    heatmap.Panel,
    table.Panel,
)


def dashboard(
    uid: str,
    title: str,
    description: str,
    rows: Mapping[str, Lines],
    variables: Sequence[Builder[models.VariableModel]] = (),
) -> models.Dashboard:
    """A dashboard of titled rows; the panels of each line share its width."""
    links = (
        builders.DashboardLink("Leadline")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )
    # In sight, and not in a menu, which is all that the library knows.
    links.build().placement = None  # type: ignore[assignment]  # its type has only the menu
    builder = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(builders.DatasourceVariable("datasource").type("prometheus").label("Source"))
        .link(links)
    )
    for variable in variables:
        builder.with_variable(variable)
    number = 0
    for heading, lines in rows.items():
        builder.with_row(builders.Row(heading).id(number := number + 1))
        for line in lines:
            for panel in line:
                made = panel.build()
                made.id_val = (number := number + 1)
                height = 4 if made.type_val == "stat" else 8
                made.grid_pos = models.GridPos(w=WIDTH // len(line), h=height)
                builder.with_panel(panel)
    built = builder.build()
    built.schema_version = SCHEMA_VERSION
    return built


def a_minute(by: str, counter: str, *, of_all: str = "sum") -> Query:
    """How often a minute, by a label. of_all: what several controllers count is the same with max,
    and with sum each counts its own: what only the leader does rests at the others."""
    return f"60 * {of_all} by ({by}) (rate(leadline_{counter}[$__rate_interval]))", f"{{{{{by}}}}}"


def now(
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = (),
    none: str = "unknown",
) -> stat.Panel:
    """The newest value of each series, as large numbers. none: the text where there is none."""
    panel = (
        _titled(stat.Panel(), title, description)
        .unit(unit)
        .no_value(none)
        .thresholds(_thresholds(steps, GOOD if steps else NEUTRAL))
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(_newest())
        .targets(_targets(queries, instant=True))
    )
    return panel.text_mode(BigValueTextMode.VALUE_AND_NAME) if len(queries) > 1 else panel


def names(title: str, description: str, query: Query, none: str = "none") -> stat.Panel:
    """The legends of the series that there are now, without their values."""
    return now(title, description, query, none=none).text_mode(BigValueTextMode.NAME)


def over_time(
    title: str, description: str, unit: str, *queries: Query, steps: Steps = ()
) -> timeseries.Panel:
    """Lines over time. steps: thresholds, as dashed lines."""
    panel = (
        _titled(timeseries.Panel(), title, description)
        .unit(unit)
        .axis_soft_min(0)
        .fill_opacity(10)
        .show_points(VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
        .targets(_targets(queries))
    )
    if steps:
        dashed = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        panel.thresholds(_thresholds(steps)).thresholds_style(dashed)
    return panel


def stacked(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Series over time that add up to a whole."""
    panel = over_time(title, description, unit, *queries).fill_opacity(30)
    return panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))


def ranking(
    title: str, description: str, unit: str, query: Query, steps: Steps = (), base: str = GOOD
) -> bargauge.Panel:
    """A bar for each series now, in the query's order. base: the colour below all steps."""
    return (
        _titled(bargauge.Panel(), title, description)
        .unit(unit)
        .min(0)
        .no_value("none")
        .thresholds(_thresholds(steps, base))
        .orientation(VizOrientation.HORIZONTAL)
        .display_mode(BarGaugeDisplayMode.GRADIENT)
        .reduce_options(_newest())
        .targets(_targets([query], instant=True))
    )


def states(
    title: str, description: str, mappings: Mappings, *queries: Query
) -> statetimeline.Panel:
    """When each series had which of a few values."""
    return (
        _titled(statetimeline.Panel(), title, description)
        .mappings(mappings)
        .no_value("unknown")
        .show_value(VisibilityMode.NEVER)
        .row_height(0.8)
        .targets(_targets(queries))
    )


def buckets(title: str, description: str, expression: str) -> heatmap.Panel:
    """How many observations of a histogram of seconds fell into which bucket, by `le`."""
    colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges")
    return (
        _titled(heatmap.Panel(), title, description)
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(SECONDS))
        .color(colours.steps(64))
        .targets(_targets([(expression, "{{le}}")], form=PromQueryFormat.HEATMAP))
    )


def rows(
    title: str, description: str, key: tuple[str, str], columns: Mapping[str, tuple[str, str]]
) -> table.Panel:
    """A table of what is known now. key: the label that a row is for, and its column's name.
    columns: name -> unit and expression."""
    label, heading = key
    fields = {label: heading}
    # Grafana calls the values so where there are several queries.
    several = len(columns) > 1
    fields |= {
        f"Value #{ascii_uppercase[at]}" if several else "Value": name
        for at, name in enumerate(columns)
    }
    organize = {
        "excludeByName": {"Time": True},
        "renameByName": fields,
        "indexByName": {field: at for at, field in enumerate(fields)},
    }
    queries = [(expression, "") for _, expression in columns.values()]
    panel = (
        _titled(table.Panel(), title, description)
        .targets(_targets(queries, instant=True, form=PromQueryFormat.TABLE))
        .with_transformation(models.DataTransformerConfig("merge", options={}))
        .with_transformation(models.DataTransformerConfig("organize", options=organize))
    )
    for name, (unit, _) in columns.items():
        panel.override_by_name(name, [models.DynamicConfigValue("unit", unit)])
    return panel


def words(zero: tuple[str, str], one: tuple[str, str]) -> Mappings:
    """Text and colour in place of the values 0 and 1."""
    results = {
        value: models.ValueMappingResult(text=text, color=color)
        for value, (text, color) in (("0", zero), ("1", one))
    }
    return [models.ValueMap(results)]


def words_in(panel: table.Panel, column: str, mappings: Mappings) -> None:
    """Show words in place of a column's values, in their colours."""
    config = models.DynamicConfigValue("mappings", mappings)
    panel.override_by_name(column, [config, _COLOURED_TEXT])


def colours_in(panel: table.Panel, column: str, steps: Steps) -> None:
    """Colour a column's values from these on."""
    config = models.DynamicConfigValue("thresholds", _thresholds(steps).build())
    panel.override_by_name(column, [config, _COLOURED_TEXT])


def link_in(panel: table.Panel, column: str, url: str) -> None:
    """Let the cells of a column lead to a board's dashboard."""
    link = {"title": "Show the board", "url": url}
    panel.override_by_name(column, [models.DynamicConfigValue("links", [link])])


def _titled(panel: AnyPanel, title: str, description: str) -> AnyPanel:
    return panel.title(title).description(description).datasource(DATASOURCE)


def _thresholds(steps: Steps, base: str = GOOD) -> builders.ThresholdsConfig:
    every = [models.Threshold(None, base), *(models.Threshold(*step) for step in steps)]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(every)


def _newest() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _targets(
    queries: Sequence[Query],
    *,
    instant: bool = False,
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> list[Builder[Dataquery]]:
    targets: list[Builder[Dataquery]] = []
    for ref_id, (expression, legend) in zip(ascii_uppercase, queries, strict=False):
        target = prometheus.Dataquery().ref_id(ref_id).datasource(DATASOURCE)
        target = target.expr(expression).format(form).legend_format(legend)
        targets.append(target.instant() if instant else target.range())
    return targets
