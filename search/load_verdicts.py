"""What the trials of a load, taken together, say of it: one fluke is not a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.model import PRODUCERS, Bracket, LoadWords, Observation, Verdict

TRIALS_PER_LOAD_MAX = 3


@dataclass(frozen=True)
class LoadVerdict:
    """The votes of one load.

    A load is measured again only when its verdict is in doubt, so a repeat that
    contradicts the first trial has the evidence on its side: in a tie the last one wins.
    """

    load: int
    votes: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """What stands, SUSTAINED or OVERLOADED."""
        over = self.votes.count(Verdict.OVERLOADED)
        fine = len(self.votes) - over
        if over == fine:
            return self.votes[-1]
        return Verdict.OVERLOADED if over > fine else Verdict.SUSTAINED

    @property
    def is_contradictory(self) -> bool:
        """True when not all trials of this load agree."""
        return len(set(self.votes)) > 1


def load_verdicts_of(history: Sequence[Observation]) -> dict[int, LoadVerdict]:
    """The standing of every load with a valid trial."""
    votes: dict[int, list[Verdict]] = {}
    for seen in history:
        if seen.verdict is not Verdict.INVALID:
            votes.setdefault(seen.load, []).append(seen.verdict)
    return {load: LoadVerdict(load, tuple(cast)) for load, cast in votes.items()}


def bracket_of_verdicts(verdicts: dict[int, LoadVerdict]) -> Bracket:
    """Like `search.bracket.bracket_of`, with one vote per load."""
    fine = [load for load, one in verdicts.items() if one.verdict is Verdict.SUSTAINED]
    over = [load for load, one in verdicts.items() if one.verdict is Verdict.OVERLOADED]
    upper = min(over, default=None)
    return Bracket(max((x for x in fine if upper is None or x < upper), default=0), upper)


def notes_of(
    verdicts: dict[int, LoadVerdict], bracket: Bracket, words: LoadWords = PRODUCERS
) -> tuple[str, ...]:
    """What a reader of the answer has to know of the trials that contradict it."""
    notes = []
    for load, one in sorted(verdicts.items()):
        over = one.votes.count(Verdict.OVERLOADED)
        if load <= bracket.sustained and over:
            notes.append(
                f"{words.amount(load)}, overloaded in {over} of {len(one.votes)} trials, counts as "
                f"sustained, although the answer is {bracket.sustained}"
            )
        elif bracket.overloaded is not None and load >= bracket.overloaded:
            fine = len(one.votes) - over
            if fine:
                notes.append(
                    f"{words.amount(load)}: sustained in {fine} of {len(one.votes)} trials, above "
                    f"the overload at {bracket.overloaded}"
                )
    return tuple(notes)
