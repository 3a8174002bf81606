"""The settings of a case as flat texts; nights with different settings are not compared."""

from __future__ import annotations

from jobs.config import Configuration, Goal, Workload, describe
from jobs.config.fields import all_keys, default_at
from jobs.config.suite import LIMIT, Case
from metrics.traffic.axes import SCALE

_OF_NO_TRIAL = ("name", "description", "message_bytes", "np")
_OF_NO_VERDICT = ("name", "description", "guards.", "search.budget.")
_OF_SEARCHES = ("search.",)


def settings_of(
    config: Configuration, case: Case, load: int, source: str, cluster_id: str
) -> dict[str, str]:
    """The settings of a case.

    Args:
        config: the configuration of the case.
        load: the fixed load on the goal's axis; a limit is an answer and no setting.
        source: name of the metrics' source.
        cluster_id: the cluster's id, which is omitted where each run starts new brokers.
    """
    skipped = _OF_NO_VERDICT if case.kind == LIMIT else (*_OF_NO_VERDICT, *_OF_SEARCHES)
    found = {
        "case.bpm": str(config.workload.message_bytes[0]),
        "metrics.source": source,
        **_texts("workload", describe(config.workload), _OF_NO_TRIAL),
        **_texts("goal", describe(config.goal), skipped),
    }
    if case.kind != LIMIT:
        named = {"np": str(load)} if case.mix is None else {"scale": f"{SCALE.shown(load):g}"}
        found |= {f"case.{name}": value for name, value in named.items()}
        found["case.compares"] = case.compares
    if case.share is not None:
        found["case.share"] = f"{case.share:g}"
    if not config.cluster.starts_brokers:
        found["cluster.id"] = cluster_id
    return found


def _texts(kind: str, keys: dict[str, object], skipped: tuple[str, ...]) -> dict[str, str]:
    return {
        f"{kind}.{key}": str(value)
        for key, value in keys.items()
        if not any(key == each or (each.endswith(".") and key.startswith(each)) for each in skipped)
    }


def default_settings() -> dict[str, str]:
    """Setting → its default, for each key of a workload or a goal that has one."""
    found = {
        f"{kind}.{'.'.join(path)}": default_at(model, path)
        for kind, model in (("workload", Workload), ("goal", Goal))
        for path in all_keys(model)
    }
    return {name: str(value) for name, value in found.items() if value is not None}
