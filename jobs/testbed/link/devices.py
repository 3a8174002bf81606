"""The namespaces and devices of a link, made and told what to do by iproute2.

Namespaces have no name: they last as long as a process is in them or holds them open, and the
devices in them no longer. So the kernel removes all of it when the testbed's processes end.

```
 this machine            brokers' namespace                  generator's namespace
 CONTROL  (root) ─ veth ─ (control)  BROKERS  (link0) ─ delay line ─ (link0)  GENERATOR
```

Brokers listen on one address only. Here it is reached over the veth, from the generator's
namespace over the link, so what drives and watches a run does not load the link.
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
"""The TUN device at either end, in its namespace."""
CONTROL = "control"
"""The brokers' end of the veth to this machine."""

NETWORK = ipaddress.IPv4Network("198.18.0.0/15")
"""For benchmarks of networks (RFC 2544), so nobody's hosts have these addresses."""
_BLOCK = 4
_TRIES = 20
_TIMEOUT_S = 20.0

ORPHAN_RETRIES = "4"
"""Of sockets whose process has ended: with the kernel's own number, those of killed brokers would
keep their namespace for two minutes, as nobody at the other end of the link answers any more."""

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SYSCTLS = Path("/proc/sys/net/ipv4")
_IPV6 = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
_CLASS = Path("/sys/class/net")


class LinkError(Exception):
    """The link could not be made; says why."""


@dataclass(frozen=True)
class LinkAddresses:
    """IPv4 addresses of a link.

    Attributes:
        brokers: on which the brokers listen.
        control: of this machine, towards the brokers.
        generator: of the other end of the link.
    """

    brokers: str
    control: str
    generator: str

    @classmethod
    def block(cls, number: int) -> LinkAddresses:
        """Those of a block of four; blocks do not overlap."""
        first = NETWORK[number * _BLOCK]
        return cls(*(f"{first + each}" for each in (1, 2, 3)))


def link_problem(link: Link) -> str | None:
    """Why this machine or this user cannot have such a link, in a sentence; None where it can."""
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
        f"there is {' and '.join(lacking)}; expected all of them; leave the link out, and "
        "everything else works"
    )


def require_link(link: Link | None) -> None:
    """Refuse a link that cannot be had here.

    Raises:
        ConfigError: with what is missing.
    """
    problem = None if link is None else link_problem(link)
    if problem is not None:
        raise ConfigError(problem)


def _lacking_rights() -> list[str]:
    """What root may not do here, as in a container that was not given the capability."""
    found: list[str] = []

    def look() -> None:
        try:
            os.close(new_namespace())
        except OSError as error:
            found.append(f"no right to make a network namespace ({error.strerror})")

    # Only this thread moves for a moment, and it ends.
    looking = threading.Thread(target=look)
    looking.start()
    looking.join()
    if not os.access(TUN, os.R_OK | os.W_OK):
        found.append(f"no {TUN}")
    return found


def device_name(testbed_id: str) -> str:
    """This machine's end of the veth; the random part of the id tells whose it is."""
    return f"redl{testbed_id[-8:]}"


def remove_device(testbed_id: str) -> None:
    """Remove what a testbed left in this machine's own namespace; its processes have ended."""
    name = device_name(testbed_id)
    if (_CLASS / name).exists():
        with suppress(LinkError):  # the kernel may have been faster
            _run(["ip", "link", "delete", name])


class LinkDevices:
    """Both namespaces with their devices; made, and held until closed. One thread only.

    Attributes:
        addresses: who has which.
        brokers, generator: descriptors of the namespaces.
        tuns: descriptors of the devices, the brokers' first.
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
        """Let go of everything; without processes in them the namespaces end."""
        while self._held:
            os.close(self._held.pop())
        remove_device(self._id)

    def _namespace(self) -> int:
        namespace = self._hold(new_namespace())
        with _within(namespace):
            if _IPV6.exists():  # else its own messages would be among the packets
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
        """Addresses that nobody has: a route to the same ones would be refused."""
        name, blocks = device_name(self._id), NETWORK.num_addresses // _BLOCK
        said: object = ""
        for _ in range(_TRIES):
            chosen = LinkAddresses.block(rng.randrange(blocks))
            try:
                _run(["ip", "address", "add", f"{chosen.control}/32", "dev", name])
                _run(["ip", "link", "set", name, "up"])
                route = [f"{chosen.brokers}/32", "dev", name, "src", chosen.control]
                _run(["ip", "route", "add", *route])
            except LinkError as error:
                said = error
                _run(["ip", "address", "flush", "dev", name])
            else:
                return chosen
        raise LinkError(f"{_TRIES} choices of addresses in {NETWORK} were refused; {said}")

    def _set_up(self) -> None:
        who, mtu = self.addresses, self._link.mtu
        device = f"link set {DEVICE} mtu {mtu} txqueuelen {self._link.device_packets} up"
        _batch(
            self.brokers,
            "link set lo up",
            f"address add {who.brokers}/32 dev lo",
            f"link set {CONTROL} up",
            f"route add {who.control}/32 dev {CONTROL} src {who.brokers}",
            device,
            f"route add {who.generator}/32 dev {DEVICE} src {who.brokers}",
        )
        _batch(
            self.generator,
            "link set lo up",
            f"address add {who.generator}/32 dev lo",
            device,
            f"route add {who.brokers}/32 dev {DEVICE} src {who.generator}",
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
    """Write the third number of `net.ipv4.tcp_rmem` or `tcp_wmem`; the others stay below it."""
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


def _run(command: Sequence[str], namespace: int | None = None, told: str = "") -> None:
    """Run a command of iproute2, in a namespace.

    Raises:
        LinkError: it failed; says what it said.
    """
    try:
        done = subprocess.run(
            command,
            input=told,
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
