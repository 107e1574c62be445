"""The lease under any order of events: two daemons, clocks that only rise, copies that grow old."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from builders import NOW, key
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slurm_evo.model import LeaseLost, SetSiteFactor
from slurm_evo.store import Intent, Journal, Lease

HOLDERS = ("a", "b")
HOLDER = strategies.sampled_from(HOLDERS)
SECONDS = strategies.integers(1, 50)


class TwoDaemons(RuleBasedStateMachine):
    """Each believes its own copy of the lease, as the loop does, until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal.open("sqlite://")
        self.now: datetime = NOW
        self.mine: dict[str, Lease] = {}
        self.old: list[Lease] = []
        self.cycle = self.journal.begin_cycle(now=NOW, lease=None)
        self.epoch = 0

    def teardown(self) -> None:
        self.journal.close()

    def believes(self, holder: str) -> bool:
        return holder in self.mine and self.mine[holder].valid(self.now)

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(holder=HOLDER, seconds=SECONDS)
    def acquire(self, holder: str, seconds: int) -> None:
        other = HOLDERS[1 - HOLDERS.index(holder)]
        lease = self.journal.acquire(holder, now=self.now, length_s=seconds)
        if lease is None:
            standing = self.journal.lease()
            assert standing is not None
            assert (standing.holder, standing.valid(self.now)) == (other, True)
            return
        assert lease.epoch == self.epoch + 1
        self.epoch = lease.epoch
        self.old += [self.mine.pop(holder)] if holder in self.mine else []
        self.mine[holder] = lease

    @rule(holder=HOLDER, seconds=SECONDS)
    def renew(self, holder: str, seconds: int) -> None:
        if holder not in self.mine:
            return
        before = self.mine[holder]
        try:
            self.mine[holder] = self.journal.renew(before, now=self.now, length_s=seconds)
        except LeaseLost:
            assert before.epoch < self.epoch, "only a later lease takes one away"
            self.old.append(self.mine.pop(holder))
            return
        assert self.mine[holder].until >= before.until
        self.old.append(before)

    @precondition(lambda self: self.old)
    @rule(data=strategies.data(), seconds=SECONDS)
    def renew_from_an_old_copy(self, data: strategies.DataObject, seconds: int) -> None:
        """A thread that kept a copy: it may prolong the lease that still stands, and shorten none."""
        copy = data.draw(strategies.sampled_from(self.old))
        try:
            self.journal.renew(copy, now=self.now, length_s=seconds)
        except LeaseLost:
            assert copy.epoch < self.epoch

    @rule(holder=HOLDER)
    def release(self, holder: str) -> None:
        if holder in self.mine:
            self.journal.release(self.mine[holder], now=self.now)
            self.old.append(self.mine.pop(holder))

    @rule(holder=HOLDER)
    def act(self, holder: str) -> None:
        """Whoever believes may journal; whoever is out of date may not, whatever it believes."""
        if self.believes(holder):
            self.intend(self.mine[holder])

    @precondition(lambda self: self.old)
    @rule(data=strategies.data())
    def a_former_holder_cannot_act(self, data: strategies.DataObject) -> None:
        copy = data.draw(strategies.sampled_from(self.old))
        if copy.epoch < self.epoch:
            with pytest.raises(LeaseLost):
                self.intend(copy)

    def intend(self, lease: Lease) -> None:
        intents = [Intent(action=SetSiteFactor(key(1), lease.epoch))]
        self.journal.intend(self.cycle, intents, lease=lease, now=self.now)

    @invariant()
    def never_both(self) -> None:
        assert not (self.believes("a") and self.believes("b"))

    @invariant()
    def what_one_believes_is_what_the_journal_says(self) -> None:
        for holder in filter(self.believes, HOLDERS):
            standing = self.journal.lease()
            assert standing is not None
            assert (standing.holder, standing.epoch) == (holder, self.mine[holder].epoch)
            assert standing.until >= self.mine[holder].until


TwoDaemons.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTwoDaemons = TwoDaemons.TestCase
