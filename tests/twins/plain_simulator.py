"""The simulator once more, slow and obvious: lists, dictionaries, sorted(). The oracle of slurm_evo.sim.

It shares the inputs with the engine and the evaluation of expressions, and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from slurm_evo.sim.fleet import Why
from slurm_evo.sim.priorities import bind
from slurm_evo.sim.replay import IN_VAIN
from slurm_evo.sim.rules import Backfill, Fixed, LayerOne, Placement, Waiting

NEVER = math.inf
DECAY = math.log(2.0) / (7 * 86_400.0)


@dataclass(eq=False)
class Node:
    index: int
    gpus: int
    cpus: int
    memory: int
    gpu_type: int
    partitions: frozenset
    drains: list
    reservations: list
    running: dict = field(default_factory=dict)
    """Job -> (gpus, cpus, memory, instant of its limit)."""

    def free(self, at=-1):
        """Free (gpus, cpus, memory), once every job whose limit ends by then is gone."""
        held = [share for share in self.running.values() if share[3] > at]
        return tuple(
            total - sum(share[d] for share in held) for d, total in enumerate((self.gpus, self.cpus, self.memory))
        )

    def drained(self, now):
        return any(start <= now < end for start, end in self.drains)

    def hinders(self, start, end):
        """Does a reservation overlap [start, end)?"""
        return any(first < end and last > start for first, last in self.reservations)


@dataclass
class Plan:
    start: int
    end: int
    nodes: list


def covers(has, need):
    return all(h >= n for h, n in zip(has, need, strict=True))


class Plain:
    """One replay. ``start``, ``cluster``, ``state`` (names of End) and ``nodes`` are its answer."""

    def __init__(self, jobs, fleet, priority, allocation, rules):
        self.jobs, self.fleet, self.allocation, self.rules = jobs, fleet, allocation, rules
        self.priority, self.static = priority, bind(priority, jobs)[1]
        n = len(jobs)
        self.start = [-1] * n
        self.cluster = [-1] * n
        self.state = ["WAITING"] * n
        self.nodes = [()] * n
        self.where = {}
        """Waiting job -> set of clusters."""
        self.running = {}
        """Running job -> when its nodes are free again."""
        self.score = {}
        self.usage = {}
        """User -> (GPU-seconds, at, GPUs running)."""
        self.turn = 0
        self.origin = int(jobs.submit[0]) if n else 0
        self.sched_origin = self.origin + rules.sched_first
        self.bf_origin = self.origin + rules.bf_first
        self.clusters = []
        index = 0
        for shapes in fleet.clusters:
            cluster = []
            for shape in shapes:
                spans = {why: [(o.start, o.end) for o in fleet.out_of_service if o.node == index and o.why is why]
                         for why in Why}  # fmt: skip
                cluster.append(Node(index, shape.gpus, shape.cpus, shape.memory, shape.gpu_type, shape.partitions,
                                    spans[Why.DRAIN], spans[Why.RESERVATION]))  # fmt: skip
                index += 1
            self.clusters.append(cluster)
        self.feasible = [{c for c in range(len(self.clusters)) if self.can_ever(j, c)} for j in range(n)]

    # ---- what a job asks

    def usable(self, j, c):
        """Nodes of its partition and GPU type."""
        kind = int(self.jobs.gpu_type[j])
        return [
            node
            for node in self.clusters[c]
            if int(self.jobs.partition[j]) in node.partitions
            and (kind < 0 or self.jobs.gpus[j] == 0 or node.gpu_type == kind)
        ]

    def shape(self, j, c):
        """(nodes, (gpus, cpus, memory) of each), or None where no number of nodes would do."""
        ask = (int(self.jobs.gpus[j]), int(self.jobs.cpus[j]), int(self.jobs.memory[j]))
        usable = self.usable(j, c)
        if not usable:
            return None
        most = tuple(max(getattr(node, what) for node in usable) for what in ("gpus", "cpus", "memory"))
        count = int(self.jobs.nodes[j])
        whole = count == 0 and ask[0] > most[0]
        if count == 0:
            if any(a > 0 and m == 0 for a, m in zip(ask, most, strict=True)):
                return None
            count = max([1] + [math.ceil(a / m) for a, m in zip(ask, most, strict=True) if a > 0])
        each = [math.ceil(a / count) for a in ask]
        if whole:
            each[0] = most[0]
        return count, tuple(each)

    def can_ever(self, j, c):
        if not int(self.jobs.clusters[j]) >> c & 1:
            return False
        if self.jobs.limit[j] > self.fleet.partition_limit.get(int(self.jobs.partition[j]), NEVER):
            return False
        shape = self.shape(j, c)
        if shape is None:
            return False
        big = [node for node in self.usable(j, c) if covers((node.gpus, node.cpus, node.memory), shape[1])]
        return len(big) >= shape[0]

    # ---- limits

    def within_limits(self, j, c):
        here = [r for r in self.running if self.cluster[r] == c]
        user, qos = int(self.jobs.user[j]), int(self.jobs.qos[j])
        same_user = [r for r in here if self.jobs.user[r] == user]
        same_qos = [r for r in here if self.jobs.qos[r] == qos]
        both = [r for r in same_user if self.jobs.qos[r] == qos]
        limits = self.fleet.limits
        for limit, others in (
            (limits.user.get(user), same_user),
            (limits.qos.get(qos), same_qos),
            (limits.qos_user.get(qos), both),
        ):
            if limit is None:
                continue
            if limit.jobs is not None and len(others) + 1 > limit.jobs:
                return False
            gpus = sum(int(self.jobs.gpus[r]) for r in [*others, j])
            if limit.gpus is not None and gpus > limit.gpus:
                return False
        return True

    # ---- order

    def used(self, user, now):
        used, at, running = self.usage.get(user, (0.0, 0, 0))
        fade = math.exp(-DECAY * (now - at))
        return used * fade + running * (1.0 - fade) / DECAY

    def change_running(self, user, now, gpus):
        running = self.usage.get(user, (0.0, 0, 0))[2]
        self.usage[user] = (self.used(user, now), now, running + gpus)

    def rank(self, some, now):
        """Scores of some waiting jobs, from what is true at this instant."""
        jobs = self.jobs
        some = sorted(some)
        if self.static is not None:
            self.score |= {j: float(self.static[j]) for j in some}
            return
        fleet_gpus = max(sum(node.gpus for cluster in self.clusters for node in cluster), 1)
        load = sum(int(jobs.gpus[r]) for r in self.running) / fleet_gpus
        pressure = sum(int(jobs.gpus[w]) for w in self.where) / fleet_gpus
        rows = []
        for j in some:
            user = jobs.user[j]
            asked = sum(int(jobs.gpus[w]) for w in self.where if jobs.user[w] == user)
            rows.append(
                [now - jobs.submit[j], jobs.limit[j], jobs.estimate[j], jobs.gpus[j], max(jobs.nodes[j], 1),
                 jobs.cpus[j], jobs.weight[j], self.used(int(user), now), asked, load, pressure]
            )  # fmt: skip
        if rows:
            values = self.priority.scores(np.array(rows, dtype=np.float64).T.copy())
            for j, value in zip(some, values, strict=True):
                rounded = float(np.float32(value))
                self.score[j] = -NEVER if math.isnan(rounded) else rounded

    def order(self, c):
        """What waits for this cluster, first to run first."""
        return sorted((j for j, where in self.where.items() if c in where), key=lambda j: (-self.score[j], j))

    # ---- nodes

    def now_nodes(self, j, c, now, hinders):
        """Nodes for a job that starts now, or None. ``hinders(node)``: one more reason to leave a node out."""
        count, need = self.shape(j, c)
        end = now + int(self.jobs.limit[j])
        good = [
            node
            for node in self.usable(j, c)
            if covers(node.free(), need)
            and not node.drained(now)
            and not node.hinders(now, end)
            and not hinders(node)
        ]
        # What runs on past its limit, until slurmctld looks at limits again, still has its share.
        return self.choose(good, count, -1) if len(good) >= count else None

    def choose(self, good, count, at):
        """So many of the nodes with room, as Placement says; ``at`` tells what is free then."""
        if self.rules.placement is Placement.TIGHTEST:
            return sorted(good, key=lambda node: (node.free(at)[0], node.index))[:count]
        runs = []
        for node in sorted(good, key=lambda node: node.index):
            if runs and runs[-1][-1].index == node.index - 1:
                runs[-1].append(node)
            else:
                runs.append([node])
        chosen = []
        while len(chosen) < count:
            need = count - len(chosen)
            enough = [run for run in runs if len(run) >= need]
            run = min(enough, key=len) if enough else max(runs, key=len)
            runs.remove(run)
            chosen += run[:need]
        return chosen

    def will_run(self, j, c, usable, since, stop, now):
        """(start, nodes) as select/cons_tres finds it on these nodes; None if not by ``stop``."""
        count, need = self.shape(j, c)

        def room(at):
            good = [node for node in usable if covers(node.free(at), need)]
            return self.choose(good, count, at) if len(good) >= count else None

        if since > now and room(since):
            return since, room(since)
        ends = sorted({s[3] for node in usable for s in node.running.values() if since <= now or s[3] > since})
        window = self.rules.will_run_window
        base = None
        while ends and ends[0] <= stop:
            if base is None:
                base = ends[0] + window - ends[0] % window
            while ends[0] > base + window:
                window *= 2
            group = [end for end in ends if end <= min(base + window, stop)]
            ends = ends[len(group) :]
            if room(group[-1]):
                return max(group[-1], now + 1), room(group[-1])
            window *= 2
        return None

    def backfill_start(self, j, c, now, plans):
        """(start, nodes) as backfill.c finds it, stretch by stretch between the edges of plans; None if never."""
        limit = int(self.jobs.limit[j])
        grid = self.rules.bf_resolution
        count = self.shape(j, c)[0]
        reserved = [span for node in self.clusters[c] for span in node.reservations]
        edges = {e for p in plans for e in (p.start, p.end)} | {e for span in reserved for e in span}

        def needed(node, first, last):
            """Does a plan or a reservation need the node in [first, last]?"""
            spans = [(p.start, p.end) for p in plans if node in p.nodes] + node.reservations
            return any(start <= last and end > first for start, end in spans)

        since = now
        while since <= now + self.rules.bf_window:
            later = min((e for e in edges if e > since), default=NEVER)
            usable = [
                node
                for node in self.usable(j, c)
                if not node.drained(now) and not needed(node, since, since + limit)
            ]
            found = self.will_run(j, c, usable, since, later, now) if len(usable) >= count else None
            if found is not None and found[0] <= later:
                at, nodes = found
                first, last = at // grid * grid, (at + limit + grid - 1) // grid * grid
                if not any(needed(node, first, last - 1) for node in nodes):
                    return found
                if at > since:
                    since = at
                    continue
            since = later
        return None

    def plan(self, j, c, now, plans):
        """(start, nodes) as early as can be if every job runs to its limit; None if never."""
        count, need = self.shape(j, c)
        limit = int(self.jobs.limit[j])
        usable = [node for node in self.usable(j, c) if not node.drained(now)]
        instants = {now}
        for node in usable:
            instants |= {share[3] for share in node.running.values()}
            instants |= {end for _, end in node.reservations}
        instants |= {plan.end for plan in plans}
        for at in sorted(instants):
            if at < now:
                continue
            good = [
                node
                for node in usable
                if covers(node.free(at), need)
                and not node.hinders(at, at + limit)
                and not any(node in p.nodes and p.start < at + limit and p.end > at for p in plans)
            ]
            if len(good) >= count:
                return at, self.choose(good, count, at)
        return None

    # ---- passes

    def begin(self, j, c, nodes, now):
        count, need = self.shape(j, c)
        assert len(nodes) == count
        for node in nodes:
            node.running[j] = (*need, now + int(self.jobs.limit[j]))
        del self.where[j]
        self.start[j] = now
        self.cluster[j] = c
        self.nodes[j] = tuple(node.index for node in nodes)
        speed = round(1000 * self.fleet.speed[c]) if self.fleet.speed else 1000
        runs = math.ceil(int(self.jobs.runtime[j]) * 1000 / speed)
        dies = now + int(self.jobs.limit[j])
        while (
            self.rules.time_limit_check
            and (dies - self.origin - self.rules.time_limit_first) % self.rules.time_limit_check
        ):
            dies += 1
        killed = now + runs > dies
        self.state[j] = "TIMEOUT" if killed else "COMPLETED"
        self.running[j] = min(now + runs, dies) + self.rules.reaction
        self.change_running(int(self.jobs.user[j]), now, int(self.jobs.gpus[j]))
        self.touched |= {d for d, blocked in self.blockers.items() if d != c and j in blocked}

    def main_pass(self, c, now, depth):
        stopped = set()
        self.blockers[c] = set()
        tested = 0
        for j in self.order(c):
            partition = int(self.jobs.partition[j])
            if partition in stopped or not self.within_limits(j, c):
                continue
            if depth and tested == depth:
                break
            tested += 1
            nodes = self.now_nodes(j, c, now, lambda node: bool(node.partitions & stopped))
            if nodes is not None:
                self.begin(j, c, nodes, now)
            else:
                self.blockers[c].add(j)
                stopped.add(partition)

    def easy_pass(self, c, now):
        head = None
        for j in self.order(c):
            if not self.within_limits(j, c):
                continue
            if head is None:
                nodes = self.now_nodes(j, c, now, lambda _: False)
                if nodes is None:
                    head = j
                    self.blockers[c].add(j)
                    planned = self.plan(j, c, now, [])
                    need = self.shape(j, c)[1]
            else:
                end = now + int(self.jobs.limit[j])
                mine = self.shape(j, c)[1]

                def delays(node, end=end, mine=mine):
                    """Would the head find too little on this node at its planned start?"""
                    if planned is None or node not in planned[1] or end <= planned[0]:
                        return False
                    both = tuple(a + b for a, b in zip(need, mine, strict=True))
                    return not covers(node.free(planned[0]), both)

                nodes = self.now_nodes(j, c, now, delays)
            if nodes is not None:
                self.begin(j, c, nodes, now)

    def slurm_pass(self, c, now):
        plans = []
        tested = 0
        rules = self.rules
        for j in self.order(c):
            if not self.within_limits(j, c):
                continue
            if tested == rules.bf_max_job_test:
                break
            tested += 1
            end = now + int(self.jobs.limit[j])

            def planned_for(node, end=end):
                return any(node in plan.nodes and plan.start <= end and plan.end > now for plan in plans)

            nodes = self.now_nodes(j, c, now, planned_for)
            if nodes is not None:
                self.begin(j, c, nodes, now)
                continue
            planned = self.backfill_start(j, c, now, plans)
            if planned is None:
                continue
            grid = rules.bf_resolution
            first = planned[0] // grid * grid
            last = (planned[0] + int(self.jobs.limit[j]) + grid - 1) // grid * grid
            plans.append(Plan(first, last, planned[1]))

    # ---- what happens

    def arrive(self, j, now):
        where = self.feasible[j]
        how = self.allocation
        if isinstance(how, Fixed):
            where = self.fix(j, now)
        if not where:
            self.state[j] = "REJECTED"
            return
        if isinstance(how, LayerOne) and how.entry is not None:
            where = {c for c in where if int(how.entry[j]) >> c & 1}
        self.where[j] = set(where)
        self.new.add(j)
        self.touched |= where

    def fix(self, j, now):
        places = sorted(self.feasible[j])
        if not places:
            return set()
        if self.allocation is Fixed.HOME:
            return {int(self.jobs.home[j])} & set(places)
        if self.allocation is Fixed.ROUND_ROBIN:
            count = len(self.clusters)
            chosen = min(places, key=lambda c: (c - self.turn) % count)
            self.turn = (chosen + 1) % count
            return {chosen}

        def load(c):
            gpus = self.jobs.gpus
            size = max(sum(node.gpus for node in self.clusters[c]), 1)
            runs = [r for r in self.running if self.cluster[r] == c]
            waits = [w for w, where in self.where.items() if c in where]
            if self.allocation is Fixed.LEAST_LOADED:
                return sum(int(gpus[x]) for x in runs + waits) / size
            left = sum(int(gpus[r]) * (self.start[r] + int(self.jobs.limit[r]) - now) for r in runs)
            return (left + sum(int(gpus[w]) * int(self.jobs.limit[w]) for w in waits)) / size

        return {min(places, key=lambda c: (load(c), c))}

    def happen(self, now):
        """Ends, nodes that leave or return, arrivals, cancellations; returns whether anything did."""
        something = False
        for j in sorted(j for j, end in self.running.items() if end == now):
            something = True
            for node in self.clusters[self.cluster[j]]:
                node.running.pop(j, None)
            del self.running[j]
            self.change_running(int(self.jobs.user[j]), now, -int(self.jobs.gpus[j]))
            self.touched.add(self.cluster[j])
        for c, cluster in enumerate(self.clusters):
            for node in cluster:
                for out in node.drains + node.reservations:
                    if now in out and now > self.last:
                        something = True
                        self.touched.add(c)
        while self.next < len(self.jobs) and self.jobs.submit[self.next] + self.rules.reaction == now:
            something = True
            self.arrive(self.next, now)
            self.next += 1
        for j in np.flatnonzero((self.jobs.cancel >= 0) & (self.jobs.cancel + self.rules.reaction == now)):
            something |= now > self.last
            if int(j) in self.where:
                self.touched |= self.where.pop(int(j))
                self.state[int(j)] = "CANCELLED"
        return something

    def next_event(self):
        instants = list(self.running.values())
        if self.next < len(self.jobs):
            instants.append(int(self.jobs.submit[self.next]) + self.rules.reaction)
        instants += [e for o in self.fleet.out_of_service for e in (o.start, o.end) if e > self.last]
        instants += [
            int(e) for e in self.jobs.cancel[self.jobs.cancel >= 0] + self.rules.reaction if e > self.last
        ]
        instants += [self.may_pass_at(c, self.last) for c in self.wants]
        if self.wake is not None:
            instants.append(self.wake)
        return min(instants, default=None)

    def next_tick(self):
        rules = self.rules
        periods = [(self.sched_origin, rules.sched_interval)]
        if rules.backfill is Backfill.SLURM:
            periods.append((self.bf_origin, rules.bf_interval))
        if self.static is None:
            periods.append((self.origin, rules.priority_calc_period))
        now = self.last
        ticks = [o + max((now - o) // p + 1, 0) * p for o, p in periods if p]
        return min(ticks, default=None) if self.where else None

    def on_grid(self, origin, period, now):
        return period > 0 and now >= origin and (now - origin) % period == 0

    def may_pass_at(self, c, now):
        """The first instant from ``now`` on at which this cluster makes a main pass that something asks for."""
        last = self.last_pass.get(c, self.origin - self.rules.sched_last)
        period = self.rules.sched_interval
        if period and now >= self.sched_origin:
            last = max(last, now - (now - self.sched_origin) % period)
        at = max(last + self.rules.batch_sched_delay, now)
        while (at - self.sched_origin) % self.rules.sched_tick:
            at += 1
        return at

    def look(self, now, scheds, backfills, woken):
        order = range(len(self.clusters))
        due = set(order) if scheds or backfills else set()
        if scheds:
            self.wants.clear()
        if not self.where:
            self.touched.clear()
            self.wants.clear()
        self.touched |= {c for c in self.wants if now == self.may_pass_at(c, now)}
        while self.touched | due:
            c = min(self.touched | due)
            starts = scheds or c in self.touched
            due.discard(c)
            self.touched.discard(c)
            if starts and not (scheds or woken) and now < self.may_pass_at(c, now):
                self.wants.add(c)
                starts = False
            if starts:
                self.wants.discard(c)
                self.last_pass[c] = now
                self.main_pass(c, now, 0 if scheds else self.rules.default_queue_depth)
                if self.rules.backfill is Backfill.EASY:
                    self.easy_pass(c, now)
            if backfills:
                self.slurm_pass(c, now)

    def run(self):
        self.last = -1
        self.next = 0
        self.wake = None
        self.arriving = None
        self.touched = set()
        self.blockers = {}
        self.last_pass = {}
        self.wants = set()
        """Clusters whose pass was put off."""
        chances = set()
        wanted = ({"sched"} if self.rules.sched_interval else set()) | (
            {"backfill"} if self.rules.backfill is Backfill.SLURM else set()
        )
        cycle = self.origin
        in_vain = started_before = 0
        while True:
            event, tick = self.next_event(), self.next_tick()
            over = event is None and (tick is None or chances >= wanted)
            now = None if over else min(x for x in (event, tick) if x is not None)
            if self.arriving and (over or now > self.arriving[0]):
                self.wake, moved = self.arriving
                self.arriving = None
                for j, places in moved.items():
                    if j in self.where:
                        self.where[j] = places
                        self.touched |= places
                continue
            if isinstance(self.allocation, LayerOne) and (over or now > cycle):
                started = len(self.jobs) - self.start.count(-1)
                in_vain = in_vain + 1 if over and started == started_before else 0
                started_before = started
                changed = self.decide(cycle)
                if over and (not changed or in_vain > IN_VAIN):
                    return self
                if changed:
                    self.wake = cycle
                cycle += self.allocation.cycle
                continue
            if over:
                return self
            self.new = set()
            happened = self.happen(now)
            woken = self.wake == now
            self.wake = None
            self.last = now
            calculates = self.rules.priority_calc_period == 0 or self.on_grid(
                self.origin, self.rules.priority_calc_period, now
            )
            self.rank([j for j in self.where if calculates or j in self.new], now)
            scheds = self.on_grid(self.sched_origin, self.rules.sched_interval, now)
            backfills = self.rules.backfill is Backfill.SLURM and self.on_grid(
                self.bf_origin, self.rules.bf_interval, now
            )
            waiting = len(self.where)
            self.look(now, scheds, backfills, woken)
            if happened or len(self.where) < waiting:
                chances = set()
            else:
                chances |= ({"sched"} if scheds else set()) | ({"backfill"} if backfills else set())

    def decide(self, now):
        if not self.where:
            return False
        jobs = sorted(self.where)

        def bits(places):
            return sum(1 << c for c in places)

        running = sorted(self.running)
        order = sorted(jobs, key=lambda j: (-self.score[j], j))
        before = np.array([bits(self.where[j]) for j in jobs], dtype=np.int64)
        feasible = np.array([bits(self.feasible[j]) for j in jobs], dtype=np.int64)
        after = self.allocation.decide(
            Waiting(
                now=now,
                jobs=np.array(jobs, dtype=np.int64),
                clusters=before,
                feasible=feasible,
                rank=np.array([order.index(j) for j in jobs], dtype=np.int64),
                running=np.array(running, dtype=np.int64),
                running_on=np.array([self.cluster[r] for r in running], dtype=np.int64),
                running_since=np.array([self.start[r] for r in running], dtype=np.int64),
                running_parts=np.array([len(self.nodes[r]) for r in running], dtype=np.int64),
                running_nodes=np.array([v for r in running for v in self.nodes[r]], dtype=np.int64),
                free_gpus=np.array([node.free()[0] for cluster in self.clusters for node in cluster]),
            )
        )
        changed, moved = False, {}
        for j, places in zip(jobs, after & feasible, strict=True):
            now_in = {c for c in range(len(self.clusters)) if int(places) >> c & 1}
            self.touched |= now_in ^ self.where[j]
            changed |= now_in != self.where[j]
            if self.allocation.move_s and now_in - self.where[j]:
                moved[j], now_in = now_in, set()
            self.where[j] = now_in
        if moved:
            self.arriving = (now + self.allocation.move_s, moved)
        return changed
