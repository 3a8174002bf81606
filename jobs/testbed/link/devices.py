"""The network namespaces and devices of a link, made and configured by iproute2.

The namespaces have no names, so they and their devices exist only while a process is in them or
holds them open. The kernel removes all of them when the testbed's processes end.

```
 this machine            brokers' namespace                  generator's namespace
 CONTROL  (root) ─ veth ─ (control)  BROKERS  (link0) ─ delay line ─ (link0)  GENERATOR
```

Brokers listen on one address only. This machine reaches it over the veth, and the generator's
namespace over the link, so the driver of a run and its monitoring do not load the link.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.config.link import Link
from jobs.engine.network.namespaces import OWN, enter, new_namespace
from metrics.common.errors import ConfigError

TUN = "/dev/net/tun"
DEVICE = "link0"
"""Name of the TUN device in both namespaces."""
CONTROL = "control"
"""Name of the brokers' end of the veth to this machine."""

NETWORK = ipaddress.IPv4Network("198.18.0.0/15")
"""Addresses for benchmarks of networks (RFC 2544), which no real hosts have."""
_BLOCK = 4
_TRIES = 20
_TIMEOUT_S = 20.0

ORPHAN_RETRIES = "4"
"""Retries for sockets whose process has ended. With the kernel's default, the sockets of killed
brokers would keep their namespace for two minutes, as the other end of the link does not answer."""

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SYSCTLS = Path("/proc/sys/net/ipv4")
_IPV6 = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
_CLASS = Path("/sys/class/net")


class LinkError(Exception):
    """The link could not be made; the message is the cause."""


@dataclass(frozen=True)
class LinkAddresses:
    """IPv4 addresses of a link.

    Attributes:
        brokers: address on which the brokers listen.
        control: address of this machine towards the brokers.
        generator: address of the other end of the link.
    """

    brokers: str
    control: str
    generator: str

    @classmethod
    def block(cls, number: int) -> LinkAddresses:
        """The addresses of a block of four; blocks do not overlap."""
        first = NETWORK[number * _BLOCK]
        return cls(*(f"{first + each}" for each in (1, 2, 3)))


def link_problem(link: Link) -> str | None:
    """The reason for which this user cannot make the link here; None where it is possible."""
    wanted = {"ip": True, "tc": link.rate is not None}
    lacking = [f"no {name} of iproute2" for name, is_wanted in wanted.items()
               if is_wanted and shutil.which(name) is None]  # fmt: skip
    if sys.platform != "linux":
        lacking = ["no Linux"]
    elif os.geteuid() != 0:
        lacking.insert(0, "no root")
    else:
        lacking += _lacking_rights()
    if not lacking:
        return None
    return (
        f"a link needs Linux, root and iproute2, to make network namespaces and devices, and here "
        f"there is {' and '.join(lacking)}; expected all of them; leave the link out to run "
        "without it"
    )


def require_link(link: Link | None) -> None:
    """Refuse a link that is not possible on this machine.

    Raises:
        ConfigError: a requirement is missing.
    """
    problem = None if link is None else link_problem(link)
    if problem is not None:
        raise ConfigError(problem)


def _lacking_rights() -> list[str]:
    """The privileges that root lacks, as in a container without the capability."""
    found: list[str] = []

    def look() -> None:
        try:
            os.close(new_namespace())
        except OSError as error:
            found.append(f"no right to make a network namespace ({error.strerror})")

    # A thread of its own, as it stays in the new namespace until it ends.
    looking = threading.Thread(target=look)
    looking.start()
    looking.join()
    if not os.access(TUN, os.R_OK | os.W_OK):
        found.append(f"no {TUN}")
    return found


def device_name(testbed_id: str) -> str:
    """The name of this machine's end of the veth, with the random part of the testbed's id."""
    return f"redl{testbed_id[-8:]}"


def remove_device(testbed_id: str) -> None:
    """Remove the testbed's veth from this machine's namespace after its processes have ended."""
    name = device_name(testbed_id)
    if (_CLASS / name).exists():
        with suppress(LinkError):  # the kernel may have removed it
            _run(["ip", "link", "delete", name])


class LinkDevices:
    """Both namespaces with their devices, made at once and held until `close`; for one thread.

    Attributes:
        addresses: addresses of the ends.
        brokers, generator: descriptors of the namespaces.
        tuns: descriptors of the TUN devices, the brokers' first.
    """

    def __init__(self, link: Link, testbed_id: str, rng: random.Random | None = None) -> None:
        self._link = link
        self._id = testbed_id
        self._held: list[int] = []
        try:
            self.brokers, self.generator = self._namespace(), self._namespace()
            self.tuns = (self._tun(self.brokers), self._tun(self.generator))
            self._make_control()
            self.addresses = self._address(rng or random.SystemRandom())
            self._set_up()
        except (OSError, LinkError) as error:
            self.close()
            raise LinkError(f"the link cannot be made: {error}") from error

    def close(self) -> None:
        """Close all descriptors; the namespaces end with the last process in them."""
        while self._held:
            os.close(self._held.pop())
        remove_device(self._id)

    def _namespace(self) -> int:
        namespace = self._hold(new_namespace())
        with _within(namespace):
            if _IPV6.exists():  # IPv6 would add packets of its own
                _IPV6.write_text("1", encoding="ascii")
        return namespace

    def _hold(self, descriptor: int) -> int:
        self._held.append(descriptor)
        return descriptor

    def _tun(self, namespace: int) -> int:
        with _within(namespace):
            tun = self._hold(os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            flags = _IFF_TUN | _IFF_NO_PI
            fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), flags))
        return tun

    def _make_control(self) -> None:
        name, there = device_name(self._id), f"/proc/{os.getpid()}/fd/{self.brokers}"
        veth = ["type", "veth", "peer", "name", CONTROL, "netns", there]
        _run(["ip", "link", "add", "name", name, *veth])

    def _address(self, rng: random.Random) -> LinkAddresses:
        """Choose addresses that are free; the kernel refuses a second route to the same ones."""
        name, blocks = device_name(self._id), NETWORK.num_addresses // _BLOCK
        refusal: object = ""
        for _ in range(_TRIES):
            chosen = LinkAddresses.block(rng.randrange(blocks))
            try:
                _run(["ip", "address", "add", f"{chosen.control}/32", "dev", name])
                _run(["ip", "link", "set", name, "up"])
                route = [f"{chosen.brokers}/32", "dev", name, "src", chosen.control]
                _run(["ip", "route", "add", *route])
            except LinkError as error:
                refusal = error
                _run(["ip", "address", "flush", "dev", name])
            else:
                return chosen
        raise LinkError(f"{_TRIES} choices of addresses in {NETWORK} were refused; {refusal}")

    def _set_up(self) -> None:
        ends, mtu = self.addresses, self._link.mtu
        device = f"link set {DEVICE} mtu {mtu} txqueuelen {self._link.device_packets} up"
        _batch(
            self.brokers,
            "link set lo up",
            f"address add {ends.brokers}/32 dev lo",
            f"link set {CONTROL} up",
            f"route add {ends.control}/32 dev {CONTROL} src {ends.brokers}",
            device,
            f"route add {ends.generator}/32 dev {DEVICE} src {ends.brokers}",
        )
        _batch(
            self.generator,
            "link set lo up",
            f"address add {ends.generator}/32 dev lo",
            device,
            f"route add {ends.brokers}/32 dev {DEVICE} src {ends.generator}",
        )
        for end, namespace in (("brokers", self.brokers), ("generator", self.generator)):
            self._bound_rate(namespace)
            with _within(namespace):
                (_SYSCTLS / "tcp_orphan_retries").write_text(ORPHAN_RETRIES, encoding="ascii")
            for name in ("tcp_rmem", "tcp_wmem"):
                maximum = getattr(self._link, f"{end}_{name}_max")
                if maximum is not None:
                    with _within(namespace):
                        set_maximum(_SYSCTLS / name, maximum)

    def _bound_rate(self, namespace: int) -> None:
        rate = self._link.rate_bytes_per_s
        if rate is None:
            return
        bucket = ["burst", f"{self._link.rate_burst_bytes}b"]
        bucket += ["limit", f"{self._link.rate_queue_bytes}b"]
        shape = ["tbf", "rate", f"{round(rate * 8)}bit", *bucket]
        _run(["tc", "qdisc", "add", "dev", DEVICE, "root", *shape], namespace)


def set_maximum(path: Path, maximum: int) -> None:
    """Set the third number of `net.ipv4.tcp_rmem` or `tcp_wmem`, and limit the others to it."""
    least, usual, _ = map(int, path.read_text(encoding="ascii").split())
    numbers = (min(least, maximum), min(usual, maximum), maximum)
    path.write_text(" ".join(map(str, numbers)), encoding="ascii")


@contextmanager
def _within(namespace: int) -> Iterator[None]:
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def _batch(namespace: int, *commands: str) -> None:
    _run(["ip", "-batch", "-"], namespace, "".join(f"{each}\n" for each in commands))


def _run(command: Sequence[str], namespace: int | None = None, stdin: str = "") -> None:
    """Run a command of iproute2, optionally in a namespace.

    Raises:
        LinkError: it failed; the message contains its output.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=None if namespace is None else lambda: enter(namespace),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LinkError(f"`{' '.join(command)}` failed ({error})") from error
    if done.returncode != 0:
        said = " ".join(done.stdout.split())
        raise LinkError(f"`{' '.join(command)}` said: {said}")
