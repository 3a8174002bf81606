"""Reading the rule sets of conf/prometheus, which name an exporter's series as ours."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from jobs.config.fields import nearest
from jobs.config.source import parse_map
from metrics.sources.rules import RuleSet, rule_set
from search.errors import ConfigError

SUFFIX = ".yaml"


def rule_names() -> tuple[str, ...]:
    """Names of the rule sets that come with the project."""
    entries = (Path(entry.name) for entry in (files("conf") / "prometheus").iterdir())
    return tuple(sorted(entry.stem for entry in entries if entry.suffix == SUFFIX))


def load_rules(name_or_path: str) -> RuleSet:
    """Read a rule set: a file of conf/prometheus by its name without .yaml, or a path.

    Raises:
        ConfigError: when it cannot be read or is wrong; says where and what to do.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix in (SUFFIX, ".yml") or len(path.parts) > 1:
        label, text = str(path), _read(path)
    else:
        label, text = f"conf/prometheus/{name_or_path}{SUFFIX}", _read_own(name_or_path)
    data = parse_map(text, label).data
    readings = data.get("readings")
    if set(data) != {"readings"} or not isinstance(readings, dict):
        raise ConfigError(
            f"{label} has {', '.join(map(str, data)) or 'nothing'} at its top; expected the one "
            f"key readings with a map of readings to series; see the files of conf/prometheus"
        )
    return rule_set(label, readings)


def _read_own(name: str) -> str:
    known = rule_names()
    if name in known:
        return (files("conf") / "prometheus" / f"{name}{SUFFIX}").read_text(encoding="utf-8")
    close = nearest(name, known)
    meant = f"the nearest is {close}; " if close else ""
    raise ConfigError(
        f'metrics.prometheus.rules "{name}" names no file of conf/prometheus; {meant}'
        f"expected one of {', '.join(known)}, or the path of a YAML file"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"metrics.prometheus.rules {path} cannot be read ({error}); expected a YAML file, or "
            f"one of {', '.join(rule_names())}; correct the path"
        ) from None
