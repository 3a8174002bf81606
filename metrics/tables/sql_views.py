"""SQL views, created beside the tables if these are in a catalog's schema.

Their columns have full names where those of the tables are short: `message_bytes`, `producers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from metrics.trial.state import ALL_BROKERS

_LATEST_LIMITS = f"""
SELECT run_id, at AS measured_at, cluster, workload, goal, bpm AS message_bytes,
  axis AS searched_along, load_sustained AS load, load_low, load_high,
  np_sustained AS producers, mps AS messages_per_s,
  mb_per_s, mb_per_s_low, mb_per_s_high, mb_per_s_per_broker,
  latency_p50_ms, latency_p99_ms, latency_p999_ms, limited_by, evidence, doubtful, pattern
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY cluster, workload, goal, axis, bpm, to_json(pattern) ORDER BY at DESC) AS newest
  FROM {{boundaries}}
  WHERE gave_up IS NULL AND experiment IS NULL
    AND coalesce(state, '{ALL_BROKERS}') = '{ALL_BROKERS}'
)
WHERE newest = 1
"""

_NIGHTS = """
SELECT suite, night, case, at AS measured_at, outcome, text, change, change_low, change_high,
  p_value, measure, value, mb_per_s_per_broker, kind, bpm AS message_bytes, np AS producers,
  limited_by, cluster, workload, goal, run_id
FROM (
  SELECT *, row_number() OVER (PARTITION BY run_id, case ORDER BY event) AS newest
  FROM {cases}
)
WHERE newest = 1
"""
"""The order by `event` puts `judged` before `measured`."""

_EFFECTS = """
SELECT experiment, sweep_id, case, any_value(settings) AS settings, message_bytes, goal,
  count(*) AS repeats, median(mb_per_s) AS mb_per_s, min(mb_per_s) AS mb_per_s_lowest,
  max(mb_per_s) AS mb_per_s_highest,
  median(mb_per_s) / any_value(mb_per_s_of_all) - 1 AS change_to_median_of_all
FROM (
  SELECT b.experiment, r.sweep_id, b.case, r.settings, b.bpm AS message_bytes, b.goal, b.mb_per_s,
    median(b.mb_per_s) OVER (PARTITION BY r.sweep_id, b.bpm, b.goal) AS mb_per_s_of_all
  FROM {boundaries} b
  JOIN (
    SELECT run_id, any_value(sweep_id) AS sweep_id, any_value(settings) AS settings FROM {runs}
    WHERE event = 'started' GROUP BY run_id
  ) r ON b.run_id = r.run_id
  WHERE b.experiment IS NOT NULL AND b.gave_up IS NULL
)
GROUP BY experiment, sweep_id, case, message_bytes, goal
"""

VIEWS: Mapping[str, tuple[str, str]] = {
    "latest_limits": (
        "The newest limit of each cluster, workload, goal, message size and traffic pattern",
        _LATEST_LIMITS,
    ),
    "nights": ("The outcome of each case of each night", _NIGHTS),
    "effects": (
        "Limits of each case of an experiment and its sweep; sweep.json has the intervals",
        _EFFECTS,
    ),
}
"""Name → its description, and its query with the tables' names in braces."""
