"""The brokers' ends of connections, from what `ss` writes."""

from __future__ import annotations

import os
import shutil

import pytest

from jobs.trials import broker_sockets as module
from jobs.trials.broker_sockets import (
    BrokerSockets,
    SocketEntry,
    client_ends,
    parse_ss,
    ss_commands,
)
from metrics.traffic.pattern import Phases

# ss of iproute2 6.1 on Linux 6.18; the second line is of a dual-stack socket on a slow link.
TEXT = """\
0      0               127.0.0.1:27302          127.0.0.1:56474 users:(("java",pid=3934,fd=79)) skmem:(r0,rb204800,t0,tb204800,f0,w0,o0,bl0,d0) bbr wscale:10,1 rto:204 rtt:0.157/0.264 ato:40 mss:32768 pmtu:65535 rcvmss:536 advmss:65483 cwnd:18 bytes_sent:1274 bytes_acked:1274 bytes_received:1701 segs_out:39 segs_in:75 bbr:(bw:26214390624bps,mrtt:0.01,pacing_gain:2.88672,cwnd_gain:2.88672) send 30054726115bps lastsnd:1896 lastrcv:1912 lastack:1896 busy:104ms reordering:18 rcv_space:65483 rcv_ssthresh:101856 minrtt:0.01 snd_wnd:65536
0      0      [::ffff:10.9.0.2]:9092   [::ffff:10.9.0.1]:40112 users:(("java",pid=3934,fd=80)) skmem:(r4352,rb321844,t0,tb4194304,f0,w2304,o0,bl0,d0) bbr wscale:10,10 rto:224 rtt:50.373/22.853 ato:40 mss:1448 cwnd:20 bytes_sent:29770 bytes_retrans:222 bytes_acked:29548 bytes_received:756625 unacked:4 retrans:0/6 busy:9256ms rwnd_limited:9000ms(97.2%) sndbuf_limited:4ms(0.0%) rcv_space:72776 minrtt:50.008
0      0               127.0.0.1:33333          127.0.0.1:27302 users:(("java",pid=3935,fd=12)) skmem:(r0,rb131072,t0,tb4194304,f0,w0,o0,bl0,d0) cubic mss:1448 cwnd:10 rtt:0.2/0.1
"""  # noqa: E501


def test_a_line_is_a_socket() -> None:
    near, far, follower = parse_ss(TEXT)
    assert (near.local, near.peer, near.pids) == (
        "127.0.0.1:27302",
        "127.0.0.1:56474",
        frozenset({3934}),
    )
    assert (near.info.rtt_us, near.info.rtt_min_us, near.info.received_bytes) == (157, 10, 1_701)
    assert near.memory is not None
    assert near.memory.receive_buffer_bytes == 204_800
    assert (far.local, far.peer) == ("10.9.0.2:9092", "10.9.0.1:40112")
    assert far.memory is not None
    assert far.memory == (321_844, 4_194_304, 4_352 + 2_304)
    assert (far.info.in_flight_bytes, far.info.cwnd_bytes) == (4 * 1_448, 20 * 1_448)
    assert (far.info.busy_us, far.info.receiver_limited_us) == (9_256_000, 9_000_000)
    assert (far.info.retransmitted_bytes, far.info.sent_bytes) == (222, 29_770)
    assert far.info.rtt_min_us == 50_008
    assert follower.info.rtt_min_us is None
    assert parse_ss("nonsense\n\n") == []


def test_connections_between_brokers_do_not_count() -> None:
    text = TEXT + TEXT.splitlines()[0].replace("56474", "33333")
    ends = client_ends(parse_ss(text), {1: 3934, 2: 3935}, {1: ":27302", 2: ":27303"})
    assert [(broker, each.peer) for broker, each in ends] == [(1, "127.0.0.1:56474")]


class Shown:
    """Sockets that a test shows at times of its own."""

    def __init__(self, address: tuple[str, int], *sockets: SocketEntry) -> None:
        self.now, self.sockets = 1_000.0, list(sockets)
        self.seen = BrokerSockets(
            {1: 3934}, {1: address}, list_sockets=lambda: list(self.sockets),
            clock=lambda: self.now,
        )  # fmt: skip

    def look(self, at_s: float, *sockets: SocketEntry, windows: int = 1) -> float | None:
        self.now, self.sockets = at_s, list(sockets) or self.sockets
        return self.seen.count_if_due(1_000.0, PHASES, windows)


PHASES = Phases(warmup_s=2.0, measure_s=4.0)


def received(so_far: int) -> SocketEntry:
    return parse_ss(TEXT.replace("received:1701", f"received:{so_far}"))[0]


def test_growth_within_the_window_counts() -> None:
    shown = Shown(("127.0.0.1", 27302), received(1_701))
    assert shown.seen.count_if_due(None, PHASES) is not None
    assert shown.look(1_000.0) is not None
    assert shown.look(1_002.0) == 1.0
    assert shown.look(1_005.5, received(9_701)) == pytest.approx(0.4), "once more before its end"
    assert shown.look(1_006.1) is None
    (found,) = shown.seen.window_counts().values()
    assert (found.connections, found.watched, found.looks) == (1, 1, 2)
    assert (found.received_bytes, found.sent_bytes) == (8_000, 0)
    assert found.receive_buffer_bytes == 204_800
    # A connection that came within the window counts from its beginning.
    near, far, _ = parse_ss(TEXT)
    shown = Shown(("10.9.0.2", 9092), near)
    shown.look(1_002.0)
    shown.look(1_003.0, far)
    assert shown.seen.window_counts()[1].received_bytes == 756_625


def test_windows_in_a_row_have_counts_of_their_own() -> None:
    shown = Shown(("127.0.0.1", 27302))

    def look(at_s: float, so_far: int) -> float | None:
        return shown.look(at_s, received(so_far), windows=3)

    look(1_002.0, 1_000)
    look(1_005.9, 5_000)
    assert look(1_006.1, 5_100) == 1.0, "the first look of the second window"
    assert shown.seen.window_counts(0)[1].received_bytes == 4_000
    look(1_009.9, 9_100)
    # These counts are requested before a look after the end of the window.
    assert shown.seen.window_counts(1)[1].received_bytes == 4_000
    look(1_010.1, 9_200)
    look(1_013.8, 10_200)
    assert look(1_014.1, 10_300) is None
    last = shown.seen.window_counts(2)[1]
    assert (last.received_bytes, last.looks, last.connections) == (1_000, 2, 1)


def test_a_namespace_has_one_command_and_its_own_is_not_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spaces = {"self": "net:[1]", "10": "net:[1]", "11": "net:[1]", "20": "net:[2]", "21": "net:[2]"}
    monkeypatch.setattr(module, "_namespace", spaces.get)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    commands = ss_commands([10, 11, 20, 21, 99])
    assert [each[0] for each in commands] == ["ss", "nsenter"]
    assert commands[1][:4] == ("nsenter", "-t", "21", "-n")
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert [each[0] for each in ss_commands([10, 20])] == ["ss"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert ss_commands([10, 20]) == []
    looking = BrokerSockets({1: os.getpid()}, {1: ("127.0.0.1", 9092)})
    with looking.watch(None):  # type: ignore[arg-type]
        pass
    assert looking.window_counts() == {}, "without ss, no socket is watched and no error occurs"
