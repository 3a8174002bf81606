"""The words that a report uses, as docs/glossary.md has them."""

from __future__ import annotations

WORDS = {
    "producers": "identical ones, each at the same fixed rate; their number, np in tables and "
    "JSON, is what a run searches",
    "offered": "the rate that the schedule asks for",
    "achieved": "the rate that was acknowledged",
    "trial": "one iteration: prepare, warm up, measure, recover",
    "window": "the measured part of a trial; rates and idle fractions are counter differences "
    "over exactly this time",
    "verdict": "what a trial says: SUSTAINED, OVERLOADED or INVALID, with its reasons",
    "INVALID": "the trial is no answer, for example because the generator missed its rate or "
    "metrics are missing; it is measured again and never read as an overload",
    "bracket": "the most producers that were sustained and the fewest above them that "
    "were too many",
    "interval": "where the limit lies with 90 % confidence, from all trials; stands beside every "
    "bracket",
    "doubtful": "a limit whose interval is wider than the goal takes for an answer",
    "boundary point": "a bracket no wider than the resolution; its value is the sustained side",
    "boundary line": "the boundary points over a range of message sizes",
    "resource": "what bound the brokers: request handlers, network threads, CPU, heap, disk, "
    "network, replication or quota, or the connections to them",
    "MB": "10⁶ bytes of payload",
}
"""Word → meaning; a test holds them against the glossary."""
