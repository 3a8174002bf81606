"""Profiles of a load over time, from conf/profiles/ or from a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError, model_validator

from jobs.config.base import ConfigModel, Name
from jobs.config.files import read_conf
from jobs.config.problems import config_error
from jobs.config.source import parse_map
from metrics.common.bounds import UnexpectedError
from metrics.traffic.profile import RateProfile

POINTS_MAX = 10_000
LENGTH_MAX_S = 31_536_000.0
SHARE_MAX = 100.0


def _as_points(value: Any) -> Any:
    """Pairs of numbers, finite and not below 0."""
    expected = "a list of points, each [seconds, share of the rate], such as [[0, 1], [60, 2]]"
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= POINTS_MAX:
        raise UnexpectedError(expected)
    points = []
    for point in value:
        is_pair = isinstance(point, list | tuple) and len(point) == 2
        if not is_pair or any(
            isinstance(each, bool) or not isinstance(each, int | float) for each in point
        ):
            raise UnexpectedError(expected)
        at_s, share = float(point[0]), float(point[1])
        if not 0 <= at_s <= LENGTH_MAX_S or not 0 <= share <= SHARE_MAX:
            raise UnexpectedError(
                f"seconds from 0 to {LENGTH_MAX_S:g}, and shares from 0 to {SHARE_MAX:g}"
            )
        points.append((at_s, share))
    return tuple(points)


Points = Annotated[tuple[tuple[float, float], ...], BeforeValidator(_as_points)]


class Profile(ConfigModel):
    """The profile of a load over time.

    Attributes:
        name: the file's name without .yaml unless the file states another.
        description: a sentence for people.
        points: [seconds from the start, share of the rate], linear in between; two points at the
            same time are a step. The profile repeats after its last point.
    """

    name: Name
    description: str = ""
    points: Points

    @model_validator(mode="after")
    def _goes_forward(self) -> Profile:
        times = [at_s for at_s, _ in self.points]
        if times[0] != 0 or sorted(times) != times or times[-1] <= 0:
            raise ValueError(
                f"points are at {', '.join(f'{each:g}' for each in times[:8])} s; expected the "
                "first at 0, the others in their order, and the last later than 0; correct them"
            )
        if not self.rate.mean:
            raise ValueError(
                "points have no share above 0 for any time; expected at least one, as the load "
                "would be 0; correct them"
            )
        return self

    @property
    def rate(self) -> RateProfile:
        """The profile in the form that the engine uses."""
        return RateProfile(self.name, self.points)


def load_rate_profile(name_or_path: str) -> RateProfile:
    """Read a profile of conf/profiles/ by its name without .yaml, or any profile by its path.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message states the place.
    """
    file = read_conf("profiles", name_or_path, "--profile")
    source = parse_map(file.text, file.label)
    assert isinstance(source.data, Mapping)
    source.data.setdefault("name", file.stem)
    try:
        return Profile.model_validate(source.data).rate
    except ValidationError as error:
        raise config_error(error, source, Profile) from None
