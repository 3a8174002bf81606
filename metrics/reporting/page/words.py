"""The words that a report explains, as in docs/glossary.md."""

from __future__ import annotations

WORDS = {
    "producers": "identical clients that send records, each at the same fixed rate; a run "
    "searches for their number, which is np in tables and JSON",
    "offered": "the rate of the schedule",
    "achieved": "the rate that was acknowledged",
    "trial": "one iteration: prepare, warm up, measure, recover",
    "window": "the measured part of a trial; rates and idle fractions are counter differences "
    "over exactly this time",
    "verdict": "the result of a trial: SUSTAINED, OVERLOADED or INVALID, with its reasons",
    "INVALID": "the trial cannot be judged, for example because the generator missed its rate or "
    "metrics are missing; it is measured again and never counts as an overload",
    "bracket": "the highest number of producers that was sustained, and the lowest number above "
    "it that was not",
    "interval": "the range in which the limit lies with 90 % confidence, computed from all trials",
    "doubtful": "a limit whose interval is wider than the goal accepts",
    "boundary point": "a bracket no wider than the resolution; its value is the sustained side",
    "boundary line": "the boundary points over a range of message sizes",
    "resource": "what can limit the brokers: request handlers, network threads, CPU, heap, disk, "
    "network, replication or quota, or the connections to them",
    "MB": "10⁶ bytes of payload",
}
"""Word → meaning; a test compares them with the glossary."""
