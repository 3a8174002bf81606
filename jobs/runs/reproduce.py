"""The command that repeats a run, from its recorded configuration."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from jobs.config import available, describe, load_cluster, load_goal, load_workload
from metrics.common.errors import ConfigError
from metrics.reporting.page.model import Command

Settings = Mapping[str, Mapping[str, Any]]

_LOADERS: Mapping[str, Callable[[str], BaseModel]] = {
    "cluster": load_cluster,
    "workload": load_workload,
    "goal": load_goal,
}
_NAMING = ("name", "description")  # they describe the file, and change no measurement


def command_of(settings: Settings, held: Sequence[tuple[int, int]] = ()) -> Command | None:
    """The command that repeats a run; None without a recorded configuration or a single command.

    Differences from the files of conf/ become `--set`. A file outside the project becomes
    NAME.yaml with a note, as its keys are in the report. Secrets are references in the settings
    and stay references.

    Args:
        settings: kind → key → value as `jobs.runs.resumption.config_text` records them.
        held: message size and load of each trial of a run with a fixed load.
    """
    if not settings or len(set(held)) > 1:
        return None
    names = {kind: str(settings[kind].get("name", kind)) for kind in _LOADERS if kind in settings}
    goals = [names.get("goal", ""), *(kind[5:] for kind in settings if kind.startswith("goal "))]
    lines, notes = [f"redline {'traffic' if held else 'find-limit'}"], list[str]()
    for kind, name in names.items():
        own = _own(kind, name, settings[kind])
        value = ",".join(goals) if kind == "goal" else name
        lines.append(f"--{kind} {shlex.quote(value if own is not None else f'{value}.yaml')}")
        if own is None:
            notes.append(
                f"The file of the {kind} {name} is not part of kafka-redline: name your own file, "
                "with the keys below."
            )
            continue
        lines += [f"--set {shlex.quote(each)}" for each in _overrides(kind, own, settings[kind])]
    if held:
        message_bytes, load = held[0]
        lines.append(f"--message-bytes {message_bytes} --np {load} --trials {len(held)}")
    return Command(tuple(lines), tuple(notes))


def _own(kind: str, name: str, recorded: Mapping[str, Any]) -> dict[str, Any] | None:
    """The file of conf/ with this name, in recorded form; None where the run had another file."""
    if name not in available(kind):
        return None
    try:
        read = describe(_LOADERS[kind](name))
    except ConfigError:  # the file changed and no longer loads; its keys are in the report
        return None
    plain: dict[str, Any] = json.loads(json.dumps(read, default=str))
    return plain if plain.get("description") == recorded.get("description") else None


def _overrides(kind: str, own: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    """The overrides, such as `workload.producer.acks=all`, of keys that differ from the file."""
    for key in sorted({*own, *recorded} - {*_NAMING}):
        before, after = own.get(key), recorded.get(key)
        if isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
            for name in sorted(after):
                if before.get(name) != after[name]:
                    yield f"{kind}.{key}.{name}={_yaml(after[name])}"
        elif before != after:
            yield f"{kind}.{key}={_yaml(after)}"


def _yaml(value: Any) -> str:
    """A value in the form of an option; JSON is valid YAML."""
    return value if isinstance(value, str) and value.isalpha() else json.dumps(value)
