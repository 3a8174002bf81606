"""The parts of a mix in each trial, and the row of their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Column, Flat
from metrics.traffic.consumers import ConsumerOptions
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from metrics.traffic.producer import ProducerPattern
from metrics.trial.client import ClientWindow
from metrics.trial.judgement import Reason, part_label
from metrics.trial.trial import Trial


@dataclass(frozen=True)
class PartRow:
    """One part of a mix in one trial.

    Attributes:
        run_id: id of the run.
        trial: number of the trial within the run.
        part: name of the part.
        scale: how many times its traffic at scale 1 was offered [ratio].
        producers: number of its producers, which the scale rounds; their rates make up for it.
        producer: traffic of each of its producers.
        topic: options of its topics.
        consumers: its consumer groups.
        client: the account of its clients.
        reasons: the reasons of the trial's verdict that are about this part.
    """

    run_id: str
    trial: int
    part: str
    scale: float
    producers: Annotated[int, Column("np")]
    producer: Annotated[ProducerPattern, Flat()]
    topic: Annotated[TopicOptions, Flat("topic_")]
    consumers: Annotated[ConsumerOptions, Flat("consumer_")]
    client: Annotated[ClientWindow, Flat()]
    reasons: tuple[Reason, ...] = ()


def part_rows(trial: Trial) -> list[PartRow]:
    """The rows of a trial's parts that reported; empty where it offered no mix."""
    accounts = trial.evidence.client.parts
    return [
        PartRow(
            trial.run_id,
            trial.number,
            part.part,
            offered_scale(part),
            part.producers,
            part.producer,
            part.topic,
            part.consumers,
            accounts[part.part],
            tuple(each for each in trial.reasons if each.text.startswith(part_label(part.part))),
        )
        for part in trial.pattern.parts
        if part.part in accounts
    ]


def offered_scale(part: TrafficPattern) -> float:
    """How many times its traffic at scale 1 a part offers [ratio]."""
    base = part.at_scale_1 or part
    return part.records_per_s / base.records_per_s
