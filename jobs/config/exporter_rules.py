"""Reading rule sets of conf/prometheus, which map the series of an exporter to readings."""

from __future__ import annotations

from jobs.config.files import read_conf
from jobs.config.source import parse_map
from metrics.common.errors import ConfigError
from metrics.sources.rules import RuleSet, rule_set


def load_rules(name_or_path: str) -> RuleSet:
    """Read a rule set: a file of conf/prometheus by its name without .yaml, or a path.

    Raises:
        ConfigError: the file cannot be read, or is wrong; the message has the place and the remedy.
    """
    file = read_conf("prometheus", name_or_path, "metrics.prometheus.rules")
    data = parse_map(file.text, file.label).data
    readings = data.get("readings")
    if set(data) != {"readings"} or not isinstance(readings, dict):
        raise ConfigError(
            f"{file.label} has {', '.join(map(str, data)) or 'nothing'} at its top; expected the "
            "one key readings with a map of readings to series; see the files of conf/prometheus"
        )
    return rule_set(file.label, readings)
