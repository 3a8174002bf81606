"""The files of what was learnt: a workload with comments, its evidence, and a profile."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from metrics.learning.curve import profile_points
from metrics.learning.document import Learned, LearnedPart, as_document, span_words
from metrics.learning.fit import Figure
from metrics.learning.parts import MEAN, NOW, PEAK, PEAK_STEP_S
from metrics.units import iso_utc

_COLUMN = 48
_WIDTH = 100
_STEPS_MIN = 12
"""Steps of a curve from which on it makes a profile."""


def evidence_file(workload: Path) -> Path:
    """The file beside a workload that has the evidence for each figure."""
    return workload.with_name(f"{workload.stem}.learned.json")


def profile_file(workload: Path) -> Path:
    """The file beside a workload that has the curve, for `redline traffic --profile`."""
    return workload.with_name(f"{workload.stem}.profile.yaml")


def evidence_text(learned: Learned) -> str:
    """The text of the file with the evidence."""
    return json.dumps(as_document(learned), indent=1, ensure_ascii=False) + "\n"


def profile_text(learned: Learned) -> str | None:
    """The text of the profile; None for a curve that is too short for one."""
    points = profile_points(learned.curve, learned.records_per_s)
    if len(points) <= _STEPS_MIN:
        return None
    begin = iso_utc(learned.curve.times_s[0])
    lines = [
        f"# The rate over time of {learned.cluster} from {begin}; 1 is the rate of scale 1.",
        "# Written by redline learn.",
        f"description: learnt from {learned.cluster}",
        "points:",
        *(f"  - [{at_s:.6g}, {share:.4g}]" for at_s, share in points),
    ]
    return "\n".join(lines) + "\n"


def workload_text(learned: Learned, evidence: str) -> str:
    """The text of the workload: one kind of traffic, or a mix of parts.

    Args:
        evidence: name of the file with the evidence.
    """
    top = CommentedMap()
    top["description"] = f"learnt from {learned.cluster} on {iso_utc(learned.at_s)[:10]}"
    if len(learned.parts) == 1:
        (only,) = learned.parts
        top["notes"] = [f"scale 1 is {int(only.keys.producers.value):,} producers"]
        _fill(top, only)
    else:
        mix = CommentedMap()
        for each in learned.parts:
            own = CommentedMap()
            producers = each.keys.producers
            own["producers"] = int(producers.value)
            _comment(own, "producers", producers)
            _fill(own, each, is_part=True)
            mix[each.part.name] = own
        top["mix"] = mix
    top["trial"] = CommentedMap(learned.trial)
    head = [
        "Written by redline learn: the traffic of production, as a workload. At the end of a line",
        "stands how its figure is known: seen, fitted or assumed, with its range;",
        f"{evidence} has the evidence. Scale 1 is {_moment_words(learned)}.",
    ]
    if len(learned.parts) == 1:
        head.append(_producers_words(learned.parts[0]))
    top.yaml_set_start_comment("\n".join(head))
    writer = YAML()
    writer.width = _WIDTH * 10
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(top, stream)
    return stream.getvalue()


def _moment_words(learned: Learned) -> str:
    today = learned.curve.today
    span = span_words(today)
    peak = "the busiest hour of the last day"
    if today.step_s < PEAK_STEP_S:
        peak = f"the mean of {span}, too short a time for a peak"
    words = {PEAK: peak, MEAN: f"the mean of {span}", NOW: "the rate of the time that was read"}
    moment = learned.moment if today.step_s else NOW
    return f"{words[moment]}: {learned.records_per_s:,.4g} messages/s"


def _producers_words(learned: LearnedPart) -> str:
    producers = learned.keys.producers
    return (
        f"It has {int(producers.value):,} producers like this one ({_source(producers)}); a search "
        "finds how many the cluster sustains."
    )


def _fill(place: CommentedMap, learned: LearnedPart, *, is_part: bool = False) -> None:
    """Add the keys of a part to a map, each with its source as a comment.

    Args:
        is_part: whether the map is a part of a mix, which has one message size, not a list.
    """
    for key in learned.keys.keys:
        *above, name = _split(key.path)
        inner = place
        for part in above:
            if part not in inner:
                inner[part] = CommentedMap()
            inner = inner[part]
        is_size = is_part and key.path == "message_bytes"
        inner[name] = int(learned.message_bytes) if is_size else _value(key.value)
        _comment(inner, name, key.figure)


def _split(path: str) -> list[str]:
    """The parts of a path; a topic's property keeps its dots."""
    head = "topic.config."
    return ["topic", "config", path[len(head) :]] if path.startswith(head) else path.split(".")


def _value(value: object) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = CommentedSeq(value)
        found.fa.set_flow_style()
        return found
    return value


def _comment(place: CommentedMap, key: str, figure: Figure) -> None:
    place.yaml_add_eol_comment(_source(figure), key, column=_COLUMN)


def _source(figure: Figure) -> str:
    """The source of a figure in one line, with its range."""
    low, high = figure.low, figure.high
    span = ""
    if low is not None and high is not None and low < high:
        span = f", {low:,.4g} to {high:,.4g}"
    evidence = " ".join(figure.evidence.split())
    return f"{figure.source}{span}: {evidence}"
