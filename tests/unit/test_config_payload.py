"""Payloads, arrivals and ramp-ups are checked before any load, and reach the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cluster.topic_plan import largest_batch_bytes
from jobs.config import Workload, load_workload
from metrics.common.errors import ConfigError
from metrics.traffic.sizes import Sizes


def _workload(*overrides: str) -> Workload:
    return load_workload("demo", [f"workload.{each}" for each in overrides])


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["producer.compression=zip"], ['"zip"', "none, gzip, snappy, lz4 or zstd"]),
        (["producer.rate_bytes_per_s=0"], ["above 0"]),
        (["payload.kind=mixed"], ["0 of compressibility and wanted_ratio", "exactly one"]),
        (
            ["payload.kind=mixed", "payload.compressibility=0.5", "payload.wanted_ratio=2"],
            ["2 of compressibility and wanted_ratio"],
        ),
        (["payload.compressibility=0.5"], ["kind is random", "none otherwise"]),
        (["payload.kind=messages"], ["messages_file is missing", "add it"]),
        (["payload.messages_file=/x"], ["messages_file is given", "leave it out"]),
        (["payload.sizes=messages"], ["sizes is messages and kind random"]),
        (["payload.sizes=lognormal"], ["size_spread is missing", "sizes uniform or lognormal"]),
        (["payload.size_spread=0.5"], ["size_spread is given"]),
        (["payload.sizes=uniform", "payload.size_spread=1.5"], ["1.5", "up to 1"]),
        (["payload.sizes=histogram"], ["histogram_file is missing"]),
        (["payload.key_count=5"], ["key_count is 5 and key_bytes 0"]),
        (["payload.header_bytes=5"], ["header_bytes is 5 and headers 0"]),
        (["payload.key_bytes=8"], ["partitioner_ignore_keys false", "sticky partition"]),
        (
            ["payload.key_bytes=200", "producer.partitioner_ignore_keys=true"],
            ["key_bytes is 200 and the smallest message 100 B"],
        ),
        (
            ["payload.sizes=lognormal", "payload.size_spread=3", "payload.pool_bytes=100000"],
            ["pool_bytes is 100000 and the largest message"],
        ),
        (["trial.ramp_up_s=3"], ["ramp_up_s is 3 and warmup_s 2"]),
        (["producer.arrivals=poisson"], ["early_end_error_rate 0.01; expected 0"]),
        (
            ["producer.arrivals=bursts", "trial.early_end_error_rate=0", "producer.burst_off_s=2"],
            ["measure_s is 8", "whole bursts", "set measure_s to 9"],
        ),
    ],
)
def test_combinations_without_effect_are_refused(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _workload(*overrides)
    for part in parts:
        assert part in str(caught.value)


def test_everything_reaches_the_engine() -> None:
    workload = _workload(
        "producer.compression=zstd",
        "producer.arrivals=bursts",
        "producer.burst_on_s=0.5",
        "producer.burst_off_s=1.5",
        "producer.partitioner_ignore_keys=true",
        "payload.kind=mixed",
        "payload.wanted_ratio=3",
        "payload.sizes=uniform",
        "payload.size_spread=0.25",
        "payload.key_bytes=8",
        "payload.key_count=100",
        "payload.headers=2",
        "payload.header_bytes=16",
        "payload.seed=9",
        "trial.early_end_error_rate=0",
    )
    pattern = workload.pattern(1_000).producer
    options, payload = pattern.options, pattern.payload
    assert (options.compression, options.arrivals, payload.seed) == ("zstd", "bursts", 9)
    assert (options.burst_on_s, options.burst_off_s) == (0.5, 1.5)
    assert options.partitioner_ignore_keys
    assert (payload.kind, payload.wanted_ratio) == ("mixed", 3.0)
    assert (payload.key_bytes, payload.key_count) == (8, 100)
    assert (payload.headers, payload.header_bytes) == (2, 16)
    assert payload.distribution == Sizes("uniform", 0.25)
    again = workload.pattern(1_000).producer
    assert (again, hash(again)) == (pattern, hash(pattern)), "the key of the kept pools"


def _histogram(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / f"sizes-{abs(hash(text))}.txt"
    path.write_text(text, encoding="utf-8")
    return ["payload.sizes=histogram", f"payload.histogram_file={path}"]


def test_a_histogram_is_read_from_lines_of_size_and_weight(tmp_path: Path) -> None:
    text = "# size weight\n100 3\n\n300, 1  # rare\n"
    sizes = _workload(*_histogram(tmp_path, text)).payload.distribution
    assert sizes.histogram == ((100, 3.0), (300, 1.0))
    assert sizes.largest(1_000) == 2_000


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "has 0 sizes"),
        ("# nothing\n", "has 0 sizes"),
        ("100\n", "line 1 is 100; expected a size"),
        ("100 3\n0 1\n", "line 2 is 0 1"),
        ("100 -1\n", "line 1 is 100 -1"),
        ("100 x\n", "line 1 is 100 x"),
        ("100 nan\n", "line 1 is 100 nan"),
        ("100 1 1\n", "line 1 is 100 1 1"),
        ("100000000 1\n", "line 1 is 100000000 1"),
    ],
)
def test_a_wrong_histogram_is_refused_with_its_line(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _workload(*_histogram(tmp_path, text))
    assert part in str(caught.value)


def test_a_missing_histogram_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"histogram_file /nowhere cannot be read"):
        _workload("payload.sizes=histogram", "payload.histogram_file=/nowhere")


def test_the_largest_message_decides_the_size_limit_of_the_topic() -> None:
    def largest(message_bytes: int, *overrides: str) -> int:
        return largest_batch_bytes(_workload(*overrides).pattern(message_bytes).producer)

    assert largest(10_000) == 10_072
    varied = largest(10_000, "payload.sizes=uniform", "payload.size_spread=1")
    assert varied == pytest.approx(20_071, abs=3)
    assert largest(100_000, "producer.compression=zstd", "payload.kind=repeated") == 16_384
