"""A comparison of a mix in turns: both sides get the same scale per broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.campaigns.campaign import Turn
from jobs.compare import compare
from jobs.features.compare.answer import (
    CaseComparer,
    ComparedSize,
    Effort,
    SideFacts,
    answer_of,
    load_of_cluster,
    write_answer,
)
from jobs.features.compare.comparison_run import ComparisonRun, bound_table, effects_table, sentence
from jobs.features.compare.sides import load_sides
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.effects import Conclusion, Side, achieved_share
from metrics.traffic.axes import SCALE
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import client
from tests.support.mixes import MIX, WHOLE
from tests.support.rows import trial

BROKERS = 3
WINDOW_S = 10.0


class MixedSides:
    """Two sides of three brokers that take so many times the mix.

    Args:
        capacity: side → how many times the mix it takes.
        orders: share of the orders that saturated brokers take, relative to the other parts.
    """

    def __init__(self, capacity: dict[Side, float], orders: float = 1.0) -> None:
        self._capacity, self._orders = capacity, orders
        self.loads: list[int] = []

    def __call__(self, side: Side, load_per_broker: float, reason: str) -> Trial:
        load = load_of_cluster(load_per_broker, BROKERS)
        self.loads.append(load)
        pattern = SCALE.apply(WHOLE, load)
        share = min(1.0, 100 * self._capacity[side] / load)
        parts = {}
        for own in pattern.parts:
            taken = share * (self._orders if own.part == "orders" and share < 1 else 1.0)
            offered = round(own.records_per_s * WINDOW_S)
            size = own.message_bytes
            acked = round(taken * offered)
            parts[own.part] = client(
                offered_records=offered, acked_records=acked, offered_bytes=offered * size,
                acked_bytes=acked * size,
            )  # fmt: skip
        sums = {
            name: sum(getattr(each.counts, name) for each in parts.values())
            for name in ("offered_records", "acked_records", "offered_bytes", "acked_bytes")
        }
        whole = replace(client(**sums), parts=parts)
        verdict = Verdict.SUSTAINED if share >= 0.99 else Verdict.OVERLOADED
        judged = Judgement(verdict, (), {}, Resource.REQUEST_HANDLERS, "request handlers: busy")
        return trial(len(self.loads), client=whole, pattern=pattern, judgements={"default": judged})


def measured(a: float, b: float, **changes: Any) -> tuple[ComparedSize, MixedSides]:
    case = ComparedSize(WHOLE.message_bytes, is_mix=True)
    sides = MixedSides({Side.A: a, Side.B: b}, **changes)
    first, most = 128 / BROKERS, 20_000 / BROKERS
    CaseComparer(sides, Effort(4, 3), first, most, words=SCALE.words).measure(case)
    return case, sides


def test_the_share_of_a_mix_is_that_of_its_payload() -> None:
    """Of the orders, which are most of the payload, half is taken, and all of the clicks."""
    found = MixedSides({Side.A: 1.0}, orders=0.5)(Side.A, 200 / BROKERS, "")
    payload = (0.25 * 2.5 + 0.5 * 0.1 + 0.5 * 0.2) / 2.8
    assert achieved_share(found) == pytest.approx(payload, rel=0.01)


def test_a_loss_is_found_and_named_for_the_mix(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    case, sides = measured(2.0, 1.5)
    assert (sides.loads[0], case.notes) == (128, [])
    assert case.load == pytest.approx(1.5 * 200 / BROKERS, rel=0.02)
    assert case.steady_load == pytest.approx(0.6 * 150 / BROKERS, rel=0.02)
    for pair in (*case.saturated, *case.steady):
        assert pair.a.pattern.load == pair.b.pattern.load
    facts = {side: SideFacts(side.value, f"id-{side.value}", "c", 3, {}) for side in Side}
    answer = answer_of(facts, [case], 0.05)
    (found,) = answer.cases
    assert found.conclusion is Conclusion.REGRESSION
    assert found.capacity.effect is not None
    assert found.capacity.effect.ratio == pytest.approx(0.75, abs=0.01)
    assert sentence(found, 0.05) == snapshot
    assert effects_table(answer).rows[0][0] == bound_table(answer).rows[0][0] == "the mix"
    write_answer(answer, {"compare_id": "id"}, tmp_path / "compare.json")
    document = json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))
    assert document["cases"][0]["load_per_broker"] == pytest.approx(100, rel=0.02)


def test_parts_that_are_taken_in_other_proportions_are_noted(snapshot: SnapshotAssertion) -> None:
    case, _ = measured(2.0, 1.5, orders=0.7)
    assert len(case.notes) == 2
    assert "side A" in case.notes[0] and "of orders" in case.notes[0]
    assert case.notes == snapshot


def test_a_load_without_end_is_stated_as_a_scale(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(NoConclusionError) as error:
        measured(1e9, 1e9)
    assert str(error.value) == snapshot


# --- the sides --------------------------------------------------------------------------


def test_the_sides_of_a_mix_differ_in_options_of_its_parts() -> None:
    specs = {Side.A: "testbed", Side.B: "workload.mix.orders.producer.linger_ms=5"}
    made = load_sides(specs, "testbed", MIX, "default", ())
    assert made[Side.B].config.workload.parts[0].producer.linger_ms == 5
    assert made[Side.B].settings["workload.mix.orders.producer.linger_ms"] == "5.0"
    assert all(setup.config.axis is SCALE for setup in made.values())
    body = ComparisonRun(made, Effort(4, 3), 0.05)
    (turns,) = body.schedule()
    assert [body.title(each) for each in turns] == ["the mix"]
    assert body.forecast(turns[0].case).trials_estimated == Effort(4, 3).trials
    assert isinstance(turns[0], Turn)


def test_what_determines_the_load_is_the_same_on_both_sides() -> None:
    settings = (
        "orders.producers=50", "clicks.message_bytes=99", "clicks.producer.rate_bytes_per_s=30000",
        "clicks.producer={}", "clicks={}",
    )  # fmt: skip
    for setting in settings:
        specs = {Side.A: "testbed", Side.B: f"workload.mix.{setting}"}
        with pytest.raises(ConfigError, match="expected the same value on both sides; use --s"):
            load_sides(specs, "testbed", MIX, "default", ())


def test_one_part_alone_is_not_compared_in_turns(snapshot: SnapshotAssertion) -> None:
    specs = dict.fromkeys(Side, "testbed")
    with pytest.raises(ConfigError) as error:
        load_sides(specs, "testbed", MIX, "default", ("goal.search.axis=scale.orders",))
    assert str(error.value) == snapshot


def test_a_dry_run_shows_the_plan_of_a_mix() -> None:
    options = ["--a", "kafka=3.9.2", "--b", "kafka=4.3.1", "--workload", MIX, "--dry-run"]
    done = click.testing.CliRunner().invoke(compare, options)
    assert done.exit_code == 0, done.output
    assert "orders: 40 producers" in done.output
