"""What the limit of a run is proven for, from the trials that sustained it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from metrics.judging.disk_proof import DiskProof, proof_of
from metrics.tables.boundary import Boundary
from metrics.trial.trial import Trial
from search.model import Verdict


def with_proof(boundary: Boundary, trials: Iterable[Trial], goal: str) -> Boundary:
    """The boundary with what its sustained load is proven for.

    Args:
        trials: all trials at this point, those that hold a load included.
    """
    sustained = [
        (each, proof_of(each))
        for each in trials
        if each.judgements[goal].verdict is Verdict.SUSTAINED
    ]
    at_limit = [(each, proof) for each, proof in sustained if each.load == boundary.loads[0]]
    if not at_limit:
        return boundary
    _, proof = max(at_limit, key=lambda pair: (bool(pair[1].on_disk), pair[1].duration_s))
    found = replace(
        boundary,
        proven_s=proof.duration_s,
        proven_bytes=proof.taken_bytes,
        proven_on_disk=proof.on_disk,
        memory_bytes=proof.absorbed_bytes,
        memory_full_s=proof.full_s,
        proof_note=proof.note,
    )
    lighter = [(each, proof) for each, proof in sustained if each.load <= boundary.loads[0]]
    on_disk = [(each, proof) for each, proof in lighter if proof.on_disk]
    return with_steady(found, *_highest(on_disk)) if on_disk else found


def with_steady(boundary: Boundary, trial: Trial, proof: DiskProof, note: str = "") -> Boundary:
    """The boundary with the steady limit that a trial at its size proves."""
    return replace(
        boundary,
        steady_load=float(trial.load),
        steady_mb_per_s=trial.pattern.mb_per_s if boundary.along.grows_payload else None,
        steady_s=proof.duration_s,
        steady_bytes=proof.taken_bytes,
        steady_note="; ".join(filter(None, (note, proof.disks_note))),
    )


def _highest(proven: Iterable[tuple[Trial, DiskProof]]) -> tuple[Trial, DiskProof]:
    return max(proven, key=lambda pair: (pair[0].load, pair[1].duration_s))
