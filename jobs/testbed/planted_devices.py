"""The devices of planted disks. The module also creates the devices and the network namespaces of
an emulated link.

A planted disk is a file that a broker uses as a disk, with a configured write rate. Kernel
documentation: admin-guide/cgroup-v1/blkio-controller (`blkio.throttle.write_bps_device`) and
ABI/testing/sysfs-class-bdi (`max_bytes`, `strict_limit`).

```
log dirs ─ ext4 ─ loop device ─ loop device with a write rate ─ disk.img, a file
```

The kernel throttles writes before a request starts, so the throttled device is never busy. The loop
device under ext4 waits for the throttled device. The loop device under ext4 therefore has the busy
time and the queue of a slow disk.

iproute2 creates the network namespaces and devices of a link. The namespaces have no names: a
namespace and its devices exist only while a process runs in the namespace or has the namespace's
file open. The kernel removes the namespaces once the testbed's processes have ended.

```
 this machine            brokers' namespace                  generator's namespace
 CONTROL  (root) ─ veth ─ (control)  BROKERS  (link0) ─ delay line ─ (link0)  GENERATOR
```

Brokers listen on only one address. This machine reaches the brokers' address over the veth, and the
generator's namespace reaches the brokers' address over the link. A run's driver and monitoring
therefore do not load the link.
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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.config.link import Link, PlantedDisk
from jobs.engine.network.namespaces import OWN, enter, new_namespace
from metrics.common.errors import ConfigError

IMAGE = "disk.img"
"""Name of a file in the node's folder. The file contains the data of the broker's disk."""
RATE_FILE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
"""A file of control groups of version 1. The file limits the rate at which all processes together
write to a device."""
TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")

PROBE_S = 1.0
"""Duration of a probe of a disk [s]."""
RATE_NEAR = 0.15
"""Largest relative difference between a measured rate and the configured rate [ratio]."""
PROBES = 5
"""Largest number of probes of a disk. Several probes are allowed, because other processes may
disturb a single probe."""

_REQUEST_KIB = 128
"""Largest request of the device [KiB]; larger requests would be written in bursts."""
_INODES = 16_384
_BLOCKS = Path("/sys/block")
_BDI = Path("/sys/class/bdi")
_TIMEOUT_S = 60.0
_TRIES, _PAUSE_S = 50, 0.1


class DeviceError(Exception):
    """A planted disk or a link could not be created; the message states the cause."""


def planted_disk_problem(disk: PlantedDisk) -> str | None:
    """The reason why this user cannot create a planted disk here; None if there is no reason."""
    if sys.platform != "linux":
        lacking = ["no Linux"]
    elif os.geteuid() != 0:
        lacking = ["no root"]
    else:
        lacking = [f"no {name}" for name in TOOLS if shutil.which(name) is None]
        if not Path("/dev/loop-control").exists():
            lacking.append("no /dev/loop-control")
        if not os.access(RATE_FILE, os.W_OK):
            lacking.append(f"no {RATE_FILE} of control groups of version 1")
        strict = disk.dirty_limit_bytes is None or any(_BDI.glob("*/strict_limit"))
        if not strict:
            lacking.append("no strict_limit of /sys/class/bdi (Linux 6.2 or later)")
    if not lacking:
        return None
    return (
        "a planted disk requires Linux, root, loop devices, ext4 and the blkio controller of "
        f"control groups of version 1, and this machine has {' and '.join(lacking)}; expected all "
        "of them; remove the disk, or run on another machine"
    )


@dataclass(frozen=True)
class LoopDevice:
    """A loop device of this machine.

    Attributes:
        name: name of the device, such as `loop0`.
        backing: path of the file that stores the data of the loop device; the file can be another
            loop device.
    """

    name: str
    backing: str

    @property
    def path(self) -> str:
        """The path of the device file."""
        return f"/dev/{self.name}"

    @property
    def number(self) -> str:
        """The major and minor number of the device, such as `7:0`."""
        return (_BLOCKS / self.name / "dev").read_text(encoding="ascii").strip()


def make_disk(disk: PlantedDisk, node_folder: Path, mount_point: Path) -> None:
    """Create a broker's disk and mount it, without the write rate; `plant_rate` sets the rate.

    Args:
        node_folder: folder of the node, for the disk's file.
        mount_point: an empty folder.

    Raises:
        DeviceError: the kernel or a tool refused a step.
    """
    image = node_folder / IMAGE
    try:
        with image.open("wb") as file:
            file.truncate(disk.size_bytes)
        # Direct I/O, so that the loop device has no cache.
        attach = ["losetup", "--direct-io=on", "--find", "--show"]
        slow = _run([*attach, str(image.resolve())])
        fast = _run([*attach, slow])
        device = Path(fast).name
        # Without a journal and access times, the disk writes little except the log.
        options = ["-O", "^has_journal", "-E", "nodiscard", "-m", "0", "-N", f"{_INODES}"]
        _run(["mkfs.ext4", "-q", *options, fast])
        _run(["mount", "-t", "ext4", "-o", "noatime", fast, str(mount_point)])
        (mount_point / "lost+found").rmdir()  # Kafka expects only folders of partitions
        _write(_BLOCKS / device / "queue" / "max_sectors_kb", f"{_REQUEST_KIB}")
    except OSError as error:
        raise DeviceError(f"the planted disk cannot be created: {error}") from error


def plant_rate(disk: PlantedDisk, node_folder: Path) -> None:
    """Set the write rate of a broker's disk, and limit the dirty bytes in memory.

    Raises:
        DeviceError: the kernel refused a setting.
    """
    slow, fast = devices_below(node_folder)
    try:
        _write(RATE_FILE, f"{slow.number} {round(disk.write_bytes_per_s)}")
        if disk.dirty_limit_bytes is not None:
            bdi = _BDI / fast.number
            _write(bdi / "strict_limit", "1")
            _write(bdi / "max_bytes", f"{disk.dirty_limit_bytes}")
    except OSError as error:
        raise DeviceError(f"the planted disk's write rate cannot be set: {error}") from error


def require_rate(disk: PlantedDisk, mount_point: Path) -> None:
    """Probe the write rate of a broker's disk, up to `PROBES` times.

    Raises:
        DeviceError: the rate of every probe differs from the configured rate.
    """
    for _ in range(PROBES):
        found = probe_rate(disk, mount_point)
        if abs(found / disk.write_bytes_per_s - 1.0) <= RATE_NEAR:
            return
    raise DeviceError(
        f"a probe of the planted disk wrote {found / 1e6:.1f} MB/s; expected "
        f"{disk.write_rate}; state a rate below the rate of this machine's disk, or stop other "
        "programs that write to this disk"
    )


def probe_rate(disk: PlantedDisk, mount_point: Path) -> float:
    """Write a probe file to a broker's disk, and return the write rate [B/s]."""
    file = mount_point / "probe"
    block, size = os.urandom(1 << 16), round(disk.write_bytes_per_s * PROBE_S)
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    try:
        began_s = time.monotonic()
        for _ in range(max(1, size // len(block))):
            os.write(descriptor, block)
        os.fdatasync(descriptor)
        took_s = time.monotonic() - began_s
    finally:
        os.close(descriptor)
        file.unlink()
    return max(1, size // len(block)) * len(block) / took_s


def devices_below(folder: Path) -> list[LoopDevice]:
    """The loop devices of those planted disks whose files are in this folder. The list begins with
    the devices on the files; the devices on top of these devices follow.
    """
    found = loop_devices()
    below = str(folder.resolve()) + os.sep
    slow = [each for each in found if each.backing.startswith(below)]
    paths = {each.path for each in slow}
    return [*slow, *(each for each in found if each.backing in paths)]


def loop_devices() -> list[LoopDevice]:
    """All loop devices of this machine that are in use."""
    found = []
    for file in sorted(_BLOCKS.glob("loop*/loop/backing_file")):
        with suppress(OSError):  # detached meanwhile
            backing = file.read_text(encoding="utf-8").rstrip("\n").removesuffix(" (deleted)")
            found.append(LoopDevice(file.parent.parent.name, backing))
    return found


def lift_rates(folder: Path) -> None:
    """Remove the write rates of a testbed's disks, so that dirty bytes are written fast.

    A process that waits for its disk cannot end before the bytes are written.
    """
    for device in devices_below(folder):
        with suppress(OSError):  # detached meanwhile
            number = device.number
            if RATE_FILE.exists():
                _write(RATE_FILE, f"{number} 0")
            # Otherwise the settings would apply to the next device with this number.
            for name, value in (("strict_limit", "0"), ("max_ratio", "100")):
                if (_BDI / number / name).exists():
                    _write(_BDI / number / name, value)


def remove_disks(folder: Path) -> None:
    """Unmount and detach the disks of a testbed whose processes have ended."""
    devices = devices_below(folder)
    if not devices:
        return
    lift_rates(folder)
    paths = {each.path for each in devices}
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        source, point = line.split(" ", 2)[:2]
        if source in paths:
            unmount = ["umount", point.encode().decode("unicode_escape")]
            try:
                _run(unmount)
            except DeviceError:  # a process of another program uses the mount point
                with suppress(DeviceError):
                    _run([*unmount, "--lazy"])
    for device in reversed(devices):
        with suppress(DeviceError):  # detached meanwhile
            _run(["losetup", "--detach", device.path])
    for _ in range(_TRIES):  # the kernel detaches a device once its last user has closed it
        if not devices_below(folder):
            return
        time.sleep(_PAUSE_S)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


def _run(command: Sequence[str], namespace: int | None = None, stdin: str = "") -> str:
    """Run a command, optionally in a network namespace, and return its output.

    Raises:
        DeviceError: the command failed; the message contains the command's output.
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
        raise DeviceError(f"`{' '.join(command)}` failed ({error})") from error
    said = " ".join(done.stdout.split())
    if done.returncode != 0:
        raise DeviceError(f"`{' '.join(command)}` failed: {said}")
    return said


TUN = "/dev/net/tun"
DEVICE = "link0"
"""Name of the TUN device in both namespaces."""
CONTROL = "control"
"""Name of the veth end in the brokers' namespace."""

NETWORK = ipaddress.IPv4Network("198.18.0.0/15")
"""Addresses for benchmarks of networks (RFC 2544); no real host has these addresses."""
_BLOCK = 4
_LINK_TRIES = 20

ORPHAN_RETRIES = "4"
"""Retransmissions for sockets whose process has ended. With the kernel's default, the sockets of
killed brokers would keep their namespace for two minutes, because the peer does not answer."""

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SYSCTLS = Path("/proc/sys/net/ipv4")
_IPV6 = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
_CLASS = Path("/sys/class/net")


@dataclass(frozen=True)
class LinkAddresses:
    """IPv4 addresses of a link.

    Attributes:
        brokers: address on which the brokers listen.
        control: address of this machine on the veth to the brokers.
        generator: address of the generator's end of the link.
    """

    brokers: str
    control: str
    generator: str

    @classmethod
    def block(cls, number: int) -> LinkAddresses:
        """The addresses in block `number`; blocks of four addresses do not overlap."""
        first = NETWORK[number * _BLOCK]
        return cls(*(f"{first + each}" for each in (1, 2, 3)))


def link_problem(link: Link) -> str | None:
    """The reason why this user cannot create the link here; None if there is no reason."""
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
        "a link requires Linux, root and iproute2 for network namespaces and devices, and this "
        f"machine has {' and '.join(lacking)}; expected all of them; remove the link, or run on "
        "another machine"
    )


def require_devices(link: Link | None, disk: PlantedDisk | None) -> None:
    """Refuse a link or a planted disk that cannot be created on this machine.

    Raises:
        ConfigError: a requirement is missing.
    """
    problem = (link and link_problem(link)) or (disk and planted_disk_problem(disk))
    if problem is not None:
        raise ConfigError(problem)


def _lacking_rights() -> list[str]:
    """The privileges of root that this process lacks, for example in a container without
    capabilities.
    """
    found: list[str] = []

    def look() -> None:
        try:
            os.close(new_namespace())
        except OSError as error:
            found.append(f"no permission to create a network namespace ({error.strerror})")

    # On a separate thread, because the thread stays in the new namespace until it ends.
    looking = threading.Thread(target=look)
    looking.start()
    looking.join()
    if not os.access(TUN, os.R_OK | os.W_OK):
        found.append(f"no {TUN}")
    return found


def device_name(testbed_id: str) -> str:
    """The name of this machine's veth end, which includes the random part of the testbed's id."""
    return f"redl{testbed_id[-8:]}"


def remove_device(testbed_id: str) -> None:
    """After the processes of a testbed have ended, remove the testbed's veth from this machine's
    namespace.
    """
    name = device_name(testbed_id)
    if (_CLASS / name).exists():
        with suppress(DeviceError):  # the kernel may have removed it
            _run(["ip", "link", "delete", name])


class LinkDevices:
    """The two namespaces of a link and their devices; not thread-safe.

    The constructor creates namespaces and devices, and `close` releases them.

    Attributes:
        addresses: addresses of the link's ends.
        brokers, generator: file descriptors of the namespaces.
        tuns: file descriptors of the TUN devices, the brokers' device first.
    """

    def __init__(self, link: Link, testbed_id: str) -> None:
        self._link = link
        self._id = testbed_id
        self._held: list[int] = []
        try:
            self.brokers, self.generator = self._namespace(), self._namespace()
            self.tuns = (self._tun(self.brokers), self._tun(self.generator))
            name, there = device_name(self._id), f"/proc/{os.getpid()}/fd/{self.brokers}"
            veth = ["type", "veth", "peer", "name", CONTROL, "netns", there]
            _run(["ip", "link", "add", "name", name, *veth])
            self.addresses = self._address()
            self._set_up()
        except (OSError, DeviceError) as error:
            self.close()
            raise DeviceError(f"the link cannot be created: {error}") from error

    def close(self) -> None:
        """Close all file descriptors; a namespace ends with the last process in it."""
        while self._held:
            os.close(self._held.pop())
        remove_device(self._id)

    def _namespace(self) -> int:
        namespace = self._hold(new_namespace())
        with _within(namespace):
            if _IPV6.exists():  # IPv6 would send additional packets
                _write(_IPV6, "1")
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

    def _address(self) -> LinkAddresses:
        """Choose free addresses; the kernel refuses a second route to an address that is in use."""
        name, blocks = device_name(self._id), NETWORK.num_addresses // _BLOCK
        refusal: object = ""
        for _ in range(_LINK_TRIES):
            chosen = LinkAddresses.block(random.SystemRandom().randrange(blocks))
            try:
                _run(["ip", "address", "add", f"{chosen.control}/32", "dev", name])
                _run(["ip", "link", "set", name, "up"])
                route = [f"{chosen.brokers}/32", "dev", name, "src", chosen.control]
                _run(["ip", "route", "add", *route])
            except DeviceError as error:
                refusal = error
                _run(["ip", "address", "flush", "dev", name])
            else:
                return chosen
        raise DeviceError(
            f"{_LINK_TRIES} random addresses in {NETWORK} were refused; the last reason: {refusal}"
        )

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
            rate = self._link.rate_bytes_per_s
            if rate is not None:
                bucket = ["burst", f"{self._link.rate_burst_bytes}b"]
                bucket += ["limit", f"{self._link.rate_queue_bytes}b"]
                shape = ["tbf", "rate", f"{round(rate * 8)}bit", *bucket]
                _run(["tc", "qdisc", "add", "dev", DEVICE, "root", *shape], namespace)
            with _within(namespace):
                _write(_SYSCTLS / "tcp_orphan_retries", ORPHAN_RETRIES)
                for name in ("tcp_rmem", "tcp_wmem"):
                    maximum = getattr(self._link, f"{end}_{name}_max")
                    if maximum is not None:
                        set_maximum(_SYSCTLS / name, maximum)


def set_maximum(path: Path, maximum: int) -> None:
    """Set the maximum in `net.ipv4.tcp_rmem` or `tcp_wmem`. If the minimum or the default in the
    file is greater than `maximum`, it is lowered to `maximum`.
    """
    least, usual, _ = map(int, path.read_text(encoding="ascii").split())
    numbers = (min(least, maximum), min(usual, maximum), maximum)
    _write(path, " ".join(map(str, numbers)))


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
