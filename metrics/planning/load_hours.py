"""The times at which a run may offer loads: hours of the day, and a time by which all loads end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_SPAN = re.compile(r"(\d\d:\d\d)\s*-\s*(\d\d:\d\d)(?:\s+(\S+))?")
EXPECTED_HOURS = (
    "two times of day and, if needed, a time zone, such as 22:00-06:00 or "
    '"22:00-06:00 Europe/Berlin"'
)


@dataclass(frozen=True)
class LoadHours:
    """The hours of each day in which loads are allowed on a cluster.

    Attributes:
        begin: start of the hours, in the time zone `zone`.
        end: end of the hours; it is earlier than `begin` if the hours include midnight.
        zone: name of the time zone; None for the driver's time zone.
    """

    begin: time
    end: time
    zone: str | None = None

    @classmethod
    def parse(cls, text: str) -> LoadHours:
        """Parse hours such as `22:00-06:00 Europe/Berlin`.

        Raises:
            ValueError: the text has another form, or its time zone is not known.
        """
        found = _SPAN.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"expected {EXPECTED_HOURS}")
        begin, end, zone = found.groups()
        hours = cls(time.fromisoformat(begin), time.fromisoformat(end), zone)
        if hours.begin == hours.end:
            raise ValueError("expected an end that differs from the beginning")
        try:
            hours.tz()
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"expected a time zone that this machine knows, such as Europe/Berlin or UTC"
                f", not {zone}"
            ) from None
        return hours

    def __str__(self) -> str:
        zone = f" {self.zone}" if self.zone else ""
        return f"{self.begin:%H:%M}-{self.end:%H:%M}{zone}"

    def tz(self) -> tzinfo | None:
        """The time zone of the hours; None for the driver's time zone."""
        return None if self.zone is None else ZoneInfo(self.zone)

    def end_after(self, now_s: float) -> float | None:
        """The end of the hours [s since the epoch]; None if `now_s` is outside the hours."""
        now = datetime.fromtimestamp(now_s).astimezone(self.tz())
        for days in (-1, 0):
            day = now.date() + timedelta(days)
            begin = datetime.combine(day, self.begin, now.tzinfo)
            last = day + timedelta(1) if self.end < self.begin else day
            end = datetime.combine(last, self.end, now.tzinfo)
            if begin <= now < end:
                return end.timestamp()
        return None


@dataclass(frozen=True)
class LoadTimes:
    """The times at which a run may offer loads.

    Attributes:
        hours: the hours in the cluster's file; None for any time.
        until_s: the time by which all loads must end [s since the epoch]; None if there is no such
            time.
        owner_hours: hours that the cluster's owners set. If there are several entries, a load may
            run only at a time that lies within all entries.
    """

    hours: LoadHours | None = None
    until_s: float | None = None
    owner_hours: tuple[LoadHours, ...] = ()

    def refusal(self, now_s: float, load_s: float) -> str | None:
        """The reason why a load may not begin now, in one sentence; None if the load may begin.

        Args:
            now_s: the driver's time [s since the epoch].
            load_s: length of the load [s].
        """
        stated = [] if self.hours is None else [(self.hours, "the cluster's load_hours")]
        stated += [(each, "load_hours of the cluster's owner") for each in self.owner_hours]
        zone = stated[0][0].tz() if stated else None
        ends = [] if self.until_s is None else [(self.until_s, "--until", zone)]
        for hours, name in stated:
            end_s = hours.end_after(now_s)
            if end_s is None:
                at = datetime.fromtimestamp(now_s).astimezone(hours.tz())
                return f"it is {at:%H:%M}, and {name} are {hours}"
            ends.append((end_s, name, hours.tz()))
        for end_s, name, own_zone in sorted(ends, key=lambda each: each[:2]):
            if now_s + load_s > end_s:
                ends_at, limit = (
                    f"{datetime.fromtimestamp(each).astimezone(own_zone):%H:%M:%S}"
                    for each in (now_s + load_s, end_s)
                )
                return (
                    f"the next load would end at {ends_at}, and no load may last beyond {limit} "
                    f"({name})"
                )
        return None


def next_time(text: str, now_s: float) -> float:
    """Convert a text such as `06:00` to a time [s since the epoch]. For a time of day, the result
    is the next moment at which a clock shows this time.

    Args:
        text: a time of day such as 06:00, or a date with a time such as 2026-11-27T06:00. The time
            is in the driver's time zone unless the text has an offset.
        now_s: the driver's time [s since the epoch].

    Raises:
        ValueError: the text is not a time, or the stated time is in the past.
    """
    now = datetime.fromtimestamp(now_s).astimezone()
    if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text):
        at = datetime.combine(now.date(), time.fromisoformat(text)).astimezone()
        if at <= now:
            at = datetime.combine(now.date() + timedelta(1), time.fromisoformat(text)).astimezone()
        return at.timestamp()
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.astimezone()
    if at <= now:
        raise ValueError("this time has passed")
    return at.timestamp()
