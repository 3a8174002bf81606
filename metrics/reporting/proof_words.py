"""Sentences about what a limit is proven for, and what of it memory took."""

from __future__ import annotations

from metrics.judging.disk_proof import DiskProof
from metrics.tables.boundary import Boundary
from metrics.units import format_duration, format_mb_per_s, format_volume


def proven_words(boundary: Boundary) -> str:
    """What the sustained load is proven for; empty where no trial sustained it.

    Such as `proven for 30 s, 1.9 GB; memory took 1.6 GB of it, full after 95 s at this rate`.
    """
    if boundary.proven_s is None:
        return ""
    proof = DiskProof(
        boundary.proven_on_disk,
        boundary.proven_s,
        boundary.proven_bytes,
        boundary.memory_bytes,
        boundary.memory_full_s,
        why=boundary.proof_note,
    )
    if boundary.failed_after_s is None:
        return proof_words(proof)
    payload, lasted = format_mb_per_s(boundary.mb_per_s), format_duration(boundary.failed_after_s)
    return f"{proof_words(proof)}; measured: {payload} MB/s for {lasted}"


def proof_words(proof: DiskProof) -> str:
    """What a load is proven for, see `proven_words`."""
    size = proof.taken_bytes
    on_disk = " on disk" if proof.on_disk else ""
    amount = "" if size is None else f", {format_volume(size)}"
    parts = [f"proven{on_disk} for {format_duration(proof.duration_s)}{amount}"]
    if proof.on_disk is False and proof.absorbed_bytes is not None:
        full = "" if proof.full_s is None else f", full after {proof.full_s:,.0f} s at this rate"
        parts.append(f"memory took {format_volume(proof.absorbed_bytes)} of it{full}")
    if proof.note:
        parts.append(proof.note)
    return "; ".join(parts)


def steady_words(boundary: Boundary) -> str:
    """The steady limit and what it rests on, or why there is none; empty where nothing is known.

    Such as `steady: 9.6 MB/s, proven on disk for 6 min, 23 GB`.
    """
    failed = ""
    if boundary.failed_after_s is not None and boundary.proven_s is None:
        payload = format_mb_per_s(boundary.mb_per_s_overloaded)
        failed = f"measured: {payload} MB/s for {format_duration(boundary.failed_after_s)}"
    if boundary.steady_load is None:
        why = "; ".join(filter(None, (boundary.steady_note, failed)))
        return f"steady: not proven; {why}" if why else ""
    rate = boundary.steady_mb_per_s
    limit = boundary.along.amount(round(boundary.steady_load))
    payload = limit if rate is None else f"{format_mb_per_s(rate)} MB/s ({limit})"
    size = boundary.steady_bytes
    amount = "" if size is None else f", {format_volume(size)}"
    lasted = format_duration(boundary.steady_s or 0.0)
    proof = f"steady: {payload}, proven on disk for {lasted}{amount}"
    return "; ".join(filter(None, (proof, boundary.steady_note, failed)))
