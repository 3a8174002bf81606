"""The verdict of a load by the majority of its trials, so that one fluke is not a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.model import PRODUCERS, Bracket, LoadWords, Observation, Verdict


@dataclass(frozen=True)
class LoadVerdict:
    """The votes of the trials of one load.

    A load is measured again only when its verdict is in doubt. So the evidence supports a repeat
    that contradicts the first trial: in a tie the last one wins.
    """

    load: int
    votes: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the majority, SUSTAINED or OVERLOADED."""
        over = self.votes.count(Verdict.OVERLOADED)
        fine = len(self.votes) - over
        if over == fine:
            return self.votes[-1]
        return Verdict.OVERLOADED if over > fine else Verdict.SUSTAINED

    @property
    def is_contradictory(self) -> bool:
        """True when the trials of this load disagree."""
        return len(set(self.votes)) > 1


def load_verdicts_of(history: Sequence[Observation]) -> dict[int, LoadVerdict]:
    """The verdict of every load with a valid trial."""
    votes: dict[int, list[Verdict]] = {}
    for seen in history:
        if seen.verdict is not Verdict.INVALID:
            votes.setdefault(seen.load, []).append(seen.verdict)
    return {load: LoadVerdict(load, tuple(cast)) for load, cast in votes.items()}


def bracket_of_verdicts(verdicts: dict[int, LoadVerdict]) -> Bracket:
    """The bracket as by `search.bracket.bracket_of`, with one vote per load."""
    fine = [load for load, one in verdicts.items() if one.verdict is Verdict.SUSTAINED]
    over = [load for load, one in verdicts.items() if one.verdict is Verdict.OVERLOADED]
    upper = min(over, default=None)
    return Bracket(max((x for x in fine if upper is None or x < upper), default=0), upper)


def notes_of(
    verdicts: dict[int, LoadVerdict], bracket: Bracket, words: LoadWords = PRODUCERS
) -> tuple[str, ...]:
    """Notes for the reader about trials that contradict the answer."""
    notes = []
    for load, one in sorted(verdicts.items()):
        over = one.votes.count(Verdict.OVERLOADED)
        if load <= bracket.sustained and over:
            notes.append(
                f"{words.amount(load)}: overloaded in {over} of {len(one.votes)} trials, but "
                f"counts as sustained, at or below the answer of {bracket.sustained}"
            )
        elif bracket.overloaded is not None and load >= bracket.overloaded:
            fine = len(one.votes) - over
            if fine:
                notes.append(
                    f"{words.amount(load)}: sustained in {fine} of {len(one.votes)} trials, above "
                    f"the overload at {bracket.overloaded}"
                )
    return tuple(notes)
