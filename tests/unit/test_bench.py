"""The clients' benchmark: what it measures, compares and prints."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import psutil
import pytest

from tests.bench.clients import Choice
from tests.bench.commits import checkout, with_code_of
from tests.bench.contest import Contest, Entry, Way, port_of
from tests.bench.cpu import cpu_s
from tests.bench.java import consumer_command, messages_of, producer_command
from tests.bench.log_batches import batches_between
from tests.bench.meter import (
    BenchError,
    Repeat,
    Window,
    by_lines,
    by_offsets,
    last_words,
    own_line,
    started,
)
from tests.bench.requests import is_possible, records_per_request
from tests.bench.rows import (
    JAVA,
    KERNEL,
    SOCKET,
    changes_of,
    ratio_of,
    rows_of,
    sentences_of,
    table_of,
    unsure_of,
)
from tests.bench.task import Task
from tests.support.processes import PATIENCE_S, becomes

pytestmark = pytest.mark.long  # a tool of developers

PLAIN = Way(("127.0.0.1:1",))


def _contest() -> Contest:
    return Contest(lambda _topic: {0: 0}, lambda *_: 0, [], PLAIN, None, 0.2)


def _repeats(*values: float) -> dict[int, Repeat]:
    return {turn: Repeat(int(value * 1e6), 1.0, 2.0) for turn, value in enumerate(values)}


def test_a_row_holds_the_median_its_spread_and_the_ratio_to_java() -> None:
    found = {
        ("producer", "wire", "", 100): _repeats(900, 1_000, 1_500),
        ("producer", "wire", "TLS", 100): _repeats(400),
        ("producer", JAVA, "", 100): _repeats(50, 40, 60),
        ("producer", JAVA, "TLS", 100): _repeats(20),
        ("consumer", "wire", "", 100): _repeats(7),
        ("consumer", "librdkafka", "", 100): {},
    }
    plain, tls, java, _java_tls, alone = rows_of(found)
    assert (plain.mb_per_cpu_s, plain.spread, plain.mb_per_s) == (1_000, 0.6, 500)
    assert plain.repeats == (900, 1_000, 1_500)
    assert plain.ratio_to_java == pytest.approx((900 * 1_000 * 1_500 / (50 * 40 * 60)) ** (1 / 3))
    assert plain.ratio_low and plain.ratio_to_java and plain.ratio_high
    assert plain.ratio_low < plain.ratio_to_java < plain.ratio_high
    assert (tls.ratio_to_java, tls.ratio_low) == (20, None), "one turn has no interval"
    assert (java.ratio_to_java, alone.ratio_to_java) == (1, None)
    assert set(plain.to_dict()) >= {"role", "client", "bpm", "mb_per_cpu_s", "ratio_to_java"}
    table = table_of([plain, tls])
    assert table.rows[1][:7] == ("producer", "wire, TLS", "100 B", "1", "400", "0%", "20.0")
    assert table.rows[0][6].startswith("22.4 (")


def test_the_aims_are_printed_with_the_measured_ratios() -> None:
    found = {
        ("producer", "wire", "", 1_000): _repeats(2_000, 2_000, 2_000, 2_000),
        ("producer", JAVA, "", 1_000): _repeats(80, 80, 80),
        ("producer", "librdkafka", "", 1_000): _repeats(400, 200, 800),
        ("consumer", "wire", "", 1_000): _repeats(700),
        ("consumer", SOCKET, "", 1_000): _repeats(1_000),
    }
    assert sentences_of(found) == [
        "producer at 1,000 B: 25.00 (25.00 to 25.00) x java in 3 turns; the aim of 20 is reached",
        "producer at 1,000 B: 5.00 (0.89 to 27.97) x librdkafka in 3 turns; the aim of 7 is missed",
    ]


def test_clients_take_more_turns_until_the_ratio_of_an_aim_is_sure() -> None:
    own, java, librdkafka = (("producer", name, "", 1_000) for name in ("wire", JAVA, "librdkafka"))
    found = {
        own: _repeats(2_000, 2_000, 2_000),
        java: _repeats(80, 80, 80),
        librdkafka: _repeats(400, 200, 800),
    }
    assert unsure_of(found) == [own, librdkafka]
    found[librdkafka] = _repeats(400, 410, 400)
    assert unsure_of(found) == []
    found[java] = _repeats(80, 80)
    assert unsure_of(found) == [own, java], "two turns are never sure"
    other = {turn: each for turn, each in _repeats(10, 99, 30, 40).items() if turn != 1}
    ratio = ratio_of(_repeats(100, 200, 300, 400), other)
    assert ratio is not None
    assert (ratio.count, ratio.ratio) == pytest.approx((3, 10)), "without the turn that failed"


def test_cpu_time_is_that_of_the_other_process() -> None:
    loop = (
        "import time\nwhile time.process_time() < 0.3: pass\n"
        "print(time.process_time(), flush=True)\ninput()\n"
        "print(time.process_time(), flush=True)\ninput()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", loop], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        said_before_s = float(process.stdout.readline())
        read_s = cpu_s(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert 0.3 <= said_before_s <= read_s <= float(process.stdout.readline())
        process.kill()
    before_s = time.process_time()
    read_s = cpu_s(os.getpid())
    assert before_s <= read_s <= time.process_time()


def _speaker(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys, time\ninput()\n{code}"]


def test_lines_after_the_warm_up_are_measured() -> None:
    code = (
        "for n in range(40):\n"
        '    print(\'{"bytes": %d, "cpu_s": %f}\' % (n * 1000, n * 0.01), flush=True)\n'
    )
    times_s = count(0.0, 0.25)  # a line every quarter of a second
    with started(_speaker(code), "") as (process, _):
        repeat = by_lines(process, own_line, Window(1.0, 2.5), lambda: next(times_s))
    assert (repeat.payload_bytes, repeat.seconds) == (10_000, 2.5)
    assert repeat.mb_per_cpu_s == pytest.approx(0.1)
    with started(_speaker(code), "") as (process, _):
        repeat = by_lines(process, own_line, Window(60.0, 60.0, warm_bytes=20_000))
    assert repeat.payload_bytes == 19_000, "a client that is half done before it is warm"


def test_a_client_that_writes_nothing_is_an_error_and_its_error_text_is_kept() -> None:
    with started(_speaker("sys.exit('no broker')"), "") as (process, errors):
        with pytest.raises(BenchError, match="fewer than two progress lines"):
            by_lines(process, own_line, Window(0.0, 0.2))
        process.wait()
        errors.seek(0)
        assert "no broker" in errors.read()
        with pytest.raises(BenchError, match="it wrote nothing"):
            by_offsets(process, lambda: 0, Window(0.1, 0.1))


def test_a_producer_is_measured_by_the_growth_of_its_topic() -> None:
    now_s, used_s = 0.0, list[float]()

    def written() -> int:
        return int(max(0.0, now_s - 0.2) * 1e6)

    with started(_speaker("while True: pass"), "") as (process, _):

        def sleep(seconds: float) -> None:
            nonlocal now_s
            before_s = cpu_s(process.pid)
            assert becomes(lambda: cpu_s(process.pid) > before_s)
            used_s.append(cpu_s(process.pid) - before_s)
            now_s += seconds

        repeat = by_offsets(process, written, Window(0.1, 0.25), lambda: now_s, sleep)
    assert repeat.seconds == pytest.approx(0.25)
    assert repeat.payload_bytes == pytest.approx(250_000, abs=1)
    assert repeat.cpu_s >= used_s[-1] > 0.0, "all that it used between the two looks"


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_the_plain_socket_runs_without_a_broker(role: str) -> None:
    assert _contest().run(Entry(role, SOCKET), Task("t", 1_000)).mb_per_cpu_s > 100


def test_a_child_that_cannot_connect_is_an_error_with_the_reason() -> None:
    contest = _contest()
    with pytest.raises(BenchError, match=r"producer wire: it wrote nothing\. .*127\.0\.0\.1:1"):
        contest.run(Entry("producer", "wire"), Task("t", 1_000))
    with pytest.raises(BenchError, match="no TLS listener"):
        contest.run(Entry("producer", "wire", "TLS", is_tls=True), Task("t", 1_000))


def test_java_gets_the_same_options_and_its_lines_are_understood() -> None:
    connection = {
        "security_protocol": "SSL", "ssl_cafile": "/ca.pem", "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/c.pem", "ssl_check_hostname": True,
    }  # fmt: skip
    task = Task(
        "t", 100, "producer", JAVA, ("h:1",), options={"enable_idempotence": True, "acks": "all"},
        connection=connection, jars=("/a.jar", "/b.jar"),
    )  # fmt: skip
    command = producer_command(task)
    assert {"batch.size=262144", "enable.idempotence=true", "acks=all"} <= set(command)
    assert {"security.protocol=SSL", "ssl.keystore.type=PEM"} <= set(command)
    assert "/a.jar:/b.jar" in command
    assert "enable.idempotence=false" in producer_command(Task("t", 100))
    assert "5" in consumer_command(Task("t", 100, bytes_max=500))
    line = "2026-01-01 10:00:00:000, 0, 95.3674, 953.6743, 100000, 1000000.0000, 0, 100, 1.0, 1.0\n"
    assert messages_of(line) == 100_000
    assert messages_of("WARNING: something") is None
    with pytest.raises(BenchError, match="expected its port"):
        port_of("")


def test_a_hanging_client_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.meter.START_DEADLINE_S", 0.2)
    with started(_speaker("time.sleep(600)"), "") as (process, _):
        with pytest.raises(BenchError, match="fewer than two progress lines"):
            by_lines(process, own_line, Window(0.1, 0.1))
        assert process.wait(PATIENCE_S) != 0
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer) and t.is_alive()]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_a_client_ends_with_its_parent_even_when_that_is_killed() -> None:
    child = "from tests.bench.task import die_with_parent as d; d(); import time; time.sleep(600)"
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        client = psutil.Process(int(process.stdout.readline()))
        # Once its modules are loaded and it sleeps, it has made its request to the kernel.
        assert becomes(lambda: client.num_threads() >= 1 and _sleeps(client))
        process.kill()
    assert becomes(lambda: not client.is_running())


def _sleeps(process: psutil.Process) -> bool:
    """Whether the process has loaded the child's module and waits."""
    maps = {Path(each.path).name for each in process.memory_maps()}
    return any("ctypes" in name for name in maps) and process.status() == psutil.STATUS_SLEEPING


@pytest.mark.skipif(not is_possible(), reason="needs a C compiler, and Linux")
def test_the_c_loop_sends_requests_at_their_rate_and_counts_them() -> None:
    repeat = _contest().run(
        Entry("producer", KERNEL, "as in t", pace={"producers": 10, "records_per_s": 700}),
        Task("t", 1_000, linger_ms=9.0),
    )
    assert repeat.payload_bytes / repeat.batches == 7_000, "7 records are due in 9 ms"
    assert repeat.batches / repeat.seconds == pytest.approx(1_000, rel=0.2)
    assert repeat.us_per_batch is not None
    assert 1 < repeat.us_per_batch < 1_000


def test_a_request_of_the_c_loop_is_at_most_a_batch() -> None:
    task = Task("t", 1_000, batch_bytes=16_384, linger_ms=25.0, records_per_s=250)
    assert records_per_request(task) == 7
    assert records_per_request(replace(task, linger_ms=1_000.0)) == 16
    assert records_per_request(replace(task, message_bytes=100_000)) == 1


def test_batches_are_counted_in_the_logs_by_their_offsets(tmp_path: Path) -> None:
    def log(partition: int, *segments: tuple[int, list[int]]) -> None:
        folder = tmp_path / f"t-{partition}"
        folder.mkdir()
        for first, counts in segments:
            data, base = b"", first
            for records in counts:
                data += struct.pack(">qi", base, 50) + bytes(50)
                base += records
            (folder / f"{first:020d}.log").write_bytes(data)

    log(0, (0, [7, 7]), (14, [7, 3]), (24, [1]))
    log(1, (0, [5]))
    assert batches_between([tmp_path], "t", {0: 0, 1: 0}, {0: 25, 1: 5}) == 6
    assert batches_between([tmp_path], "t", {0: 7, 1: 5}, {0: 21, 1: 5}) == 2
    (tmp_path / "t-1" / "00000000000000000005.log").write_bytes(bytes(100))
    assert batches_between([tmp_path], "t", {0: 25, 1: 0}, {0: 25, 1: 5}) == 1, "not written yet"


def test_rows_state_the_time_the_size_and_the_lateness_of_a_batch() -> None:
    repeats = {
        turn: Repeat(7_000_000, 0.001 * us, 1.0, 1_000, late_ms)
        for turn, (us, late_ms) in enumerate(((80, 1.5), (90, 2.0), (70, 9.0)))
    }
    (row,) = rows_of({("producer", "wire", "as in t", 1_000): repeats})
    assert (row.us_per_batch, row.kb_per_batch, row.late_p99_ms) == pytest.approx((80, 7, 2))
    assert table_of([row]).rows[0][-3:] == ("80", "7.0", "2.0 ms")
    (plain,) = rows_of({("producer", "wire", "", 1_000): _repeats(1)})
    assert (plain.us_per_batch, plain.kb_per_batch, plain.late_p99_ms) == (None, None, None)
    assert table_of([plain]).rows[0][-3:] == ("", "", "")


def test_the_engine_is_compared_with_that_of_a_commit_in_turns() -> None:
    entries = [Entry("producer", name, "as in t") for name in ("wire", JAVA)]
    choice = Choice([1_000], ["wire", JAVA], ["producer"], ["in t"], True, "0123abcd")
    now, older, java = (entry.key(1_000) for entry in choice.of(entries))
    assert (now[1], older[1], java[1]) == ("wire", "wire of 0123abcd", JAVA)
    assert choice.plain(1_000) == [], "only the chosen variants"
    assert replace(choice, commit="").of(entries) == entries
    assert replace(choice, variants=["TLS"]).of(entries) == []
    assert replace(choice, variants=[], clients=[JAVA]).plain(1_000) == [Entry("producer", JAVA)]
    found = {now: _repeats(200, 300, 400), older: _repeats(100, 150, 200), java: _repeats(1, 1, 1)}
    (sentence,) = changes_of(found, "0123abcd")
    assert sentence.startswith("producer, as in t at 1,000 B: 2.00 (2.00 to 2.00) x wire of 0123")


def test_the_code_of_a_commit_comes_before_that_of_today(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        command = ["git", *own, *arguments]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    for package in ("jobs", "metrics", "search", "conf", "tests/support", "tests/bench"):
        module = tmp_path / package / "of_then.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("THEN = True\n")
    (tmp_path / "jobs" / "__init__.py").touch()
    git("add", ".")
    git("commit", "-q", "-m", "then")
    folder = checkout("HEAD", tmp_path)
    assert folder.name == git("rev-parse", "HEAD")
    assert checkout(folder.name[:10], tmp_path) == folder
    assert not (folder / "tests" / "bench").exists(), "the benchmark is that of today"
    code = "import jobs.of_then, tests.support.of_then, tests.bench.task; print(jobs.__path__[0])"
    command = [sys.executable, "-c", code]
    said = subprocess.check_output(command, text=True, **with_code_of(folder))
    assert said.strip() == str(folder / "jobs")
    with pytest.raises(BenchError, match="has no such commit"):
        checkout("0123abcd", tmp_path)


def test_the_last_line_of_a_client_has_its_figures() -> None:
    with started(_speaker("print('{}'); print('{\"late_p99_ms\": 1.5}')"), "") as (process, _):
        assert last_words(process) == {"late_p99_ms": 1.5}
    for code in ("pass", "print('{}'); sys.exit(3)"):
        with (
            started(_speaker(code), "") as (process, _),
            pytest.raises(BenchError, match=r"exit code [03] and without its figures"),
        ):
            last_words(process)
