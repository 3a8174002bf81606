"""The bounds that the owner of a cluster keeps in it, and the strictest of all limits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ValidationError, model_validator

from jobs.config.cluster import Hours
from jobs.config.goal import GuardLimits
from jobs.config.problems import config_error
from jobs.config.source import parse_map
from metrics.common.errors import ConfigError

RECORD_BYTES_MAX = 16_384
"""Largest record of an owner [B]."""


class OwnerBounds(GuardLimits):
    """The record of a cluster's owner: keys of a goal's section `guards`, and hours.

    Only the keys that the record has bind a run.

    Attributes:
        load_hours: the hours of each day in which the cluster may be loaded.
    """

    load_hours: Annotated[str, Hours()] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, data: Any) -> Any:
        empty = [key for key, value in data.items() if value is None]
        if empty:
            raise ValueError(
                f"{empty[0]} is null; expected a value, as an owner's record turns no guard off; "
                "leave the key out"
            )
        return data

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the record has, with their values."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


def parse_bounds(text: bytes, label: str) -> OwnerBounds:
    """The bounds in a record, a map in JSON or YAML.

    Args:
        label: the topic and the key, for messages.

    Raises:
        ConfigError: the record is too large, malformed, or has an unknown key or a wrong value.
    """
    if len(text) > RECORD_BYTES_MAX:
        raise ConfigError(
            f"{label} has {len(text):,} B; expected at most {RECORD_BYTES_MAX:,} B; write it again"
        )
    if not text.strip():
        raise ConfigError(
            f'{label} is empty; expected a map such as {{"np_max": 20}}; write it again'
        )
    try:
        source = parse_map(text.decode(), label)
        return OwnerBounds.model_validate(source.data)
    except UnicodeDecodeError:
        raise ConfigError(
            f"{label} is not a text; expected JSON or YAML in UTF-8; write it again"
        ) from None
    except ValidationError as error:
        raise config_error(error, source, OwnerBounds) from None


def tightened(limits: GuardLimits, owner: OwnerBounds) -> GuardLimits:
    """The stricter of each limit and the owner's bound.

    A fail-closed owner also turns each guard on that has a default and is off.
    """
    defaults, given = GuardLimits(), owner.given
    stricter = {}
    for name in GuardLimits.model_fields:
        own = getattr(limits, name)
        found = _stricter(name, own, given.get(name))
        if owner.fail_closed and not found and name != "pause_max_s":
            found = getattr(defaults, name)
        if found != own:
            stricter[name] = found
    return limits.model_copy(update=stricter)


def _stricter(name: str, own: Any, bound: Any) -> Any:
    """The stricter of two values of a limit; None is no limit, and no pause."""
    if bound is None:
        return own
    if name == "pause_max_s":
        return min(own or 0.0, bound)
    if own is None or isinstance(bound, bool):
        return own or bound
    if isinstance(bound, str):
        return own
    return max(own, bound) if name.endswith("_min") else min(own, bound)
