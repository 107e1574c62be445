"""One self-contained HTML page about a training run: what was found, how, and against what."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy import TERMINALS, Policy
from slurm_evo.policy.expression import Call, Node, text
from slurm_evo.policy.front import Member
from slurm_evo.sim.priorities import Priority
from slurm_evo_training.choose import interval
from slurm_evo_training.fitness import REFERENCE, Problem, metrics, probe_rows
from slurm_evo_training.material import Material, Parts, warmed
from slurm_evo_training.training import Trained

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid
#ddd}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f6f6f6;padding:.8rem;overflow-x:auto}
pre.long{white-space:pre-wrap}img{max-width:100%}.no{color:#a40000}.yes{color:#006400}"""
MOST_ROWS = 10


def write(trained: Trained, material: Material, parts: Parts, file: Path) -> None:
    """Write the page; nothing in it is fetched from elsewhere."""
    policy = Policy.parse(trained.shown.text)
    incumbent = Policy.parse(str(trained.front.provenance["in_force"]))
    sections = [
        _verdict(trained),
        _expression(policy, material),
        _comparison(trained),
        "<h2>The front</h2>" + _picture(_draw_front, trained),
        "<h2>Convergence</h2>" + _picture(_draw_convergence, trained),
        _winners(policy, incumbent, material, parts),
        _members(trained),
        "<h2>Where it comes from</h2><pre>"
        + html.escape(json.dumps(trained.front.provenance, indent=1, ensure_ascii=False))
        + "</pre>",
    ]
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>slurm-evo training</title>"
        f"<style>{STYLE}</style><h1>A trained policy</h1>{''.join(sections)}</html>"
    )
    file.write_text(page, encoding="utf-8")


def _verdict(trained: Trained) -> str:
    member = trained.shown
    if trained.chosen is None:
        reasons = "".join(f"<li>{html.escape(reason)}" for reason in member.refused)
        verdict = f"<p class=no>It may not be put in force:<ul>{reasons}</ul><p>The policy in force stays.</p>"
    else:
        verdict = (
            "<p class=yes>It may be put in force: sound, and on the choose windows better than the one in force "
            "beyond noise.</p>"
        )
    if member.by_hand:
        verdict += f"<p>Written by hand ({member.by_hand}): no evolved one that is usable does better."
    if trained.chosen is not None and trained.doubt:
        verdict += f"<p class=no>{html.escape(trained.doubt)}</p>"
    origin = datetime.fromisoformat(str(trained.front.provenance["origin"]))
    spans = "".join(
        f"<tr><td>{name}<td>{origin + timedelta(seconds=first):%Y-%m-%d %H:%M}"
        f"<td>{origin + timedelta(seconds=last):%Y-%m-%d %H:%M}<td class=n>{(last - first) / 86_400:.1f}"
        for name, (first, last) in trained.front.provenance["windows_s"].items()
    )
    return (
        f"<pre class=long>{html.escape(member.text)}</pre>{verdict}<table><tr><th>window<th>from, UTC<th>to"
        f"<th class=n>days{spans}</table><p>Of training windows the first and the last tenth are not counted. "
        "The two days before a window to choose or judge on fill the fleet; its last twentieth is not counted."
    )


def _expression(policy: Policy, material: Material) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(term)}<td class=n>{100 * share:.0f} %" for term, share in shares(policy, material)
    )
    names = "".join(
        f"<tr><td>{terminal.name}<td>{terminal.unit}<td>{html.escape(terminal.text)}"
        for terminal in TERMINALS
        if terminal.name in policy.terminals
    )
    return (
        f"<h2>The expression</h2>{_picture(_draw_formula, policy)}"
        f"<pre class=long>{html.escape(policy.latex())}</pre><pre>{html.escape(tree(policy.tree))}</pre>"
        f"<p>How much each part moves the score, over jobs of the history:<table>{rows}</table>"
        f"<table><tr><th>name<th>unit<th>meaning{names}</table>"
    )


def tree(node: Node, first: str = "", rest: str = "") -> str:
    """The tree in lines."""
    if not isinstance(node, Call):
        return first + text(node)
    lines = [first + node.operator]
    for place, argument in enumerate(node.arguments):
        last = place + 1 == len(node.arguments)
        lines.append(tree(argument, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")))
    return "\n".join(lines)


def shares(policy: Policy, material: Material) -> list[tuple[str, float]]:
    """Each part of the score with its share of the parts' spread (standard deviation) over probe rows.

    Of a product the spread of the logarithm is taken, since factors multiply.
    """
    table = probe_rows(material.jobs)
    jobs = [{terminal.name: float(table[row, at]) for row, terminal in enumerate(TERMINALS)} for at in range(256)]
    parts = [policy.terms(job) for job in jobs]
    values = np.array([[value for _, value in row] for row in parts])
    is_product = isinstance(policy.tree, Call) and policy.tree.operator in ("mul", "div")
    spread = np.std(np.log(np.maximum(np.abs(values), 1e-12)) if is_product else values, axis=0)
    total = max(float(spread.sum()), 1e-300)
    return [(name, float(one / total)) for (name, _), one in zip(parts[0], spread, strict=True)]


def _comparison(trained: Trained) -> str:
    """On the judge windows, with confidence intervals over draws."""
    rows = []
    for name, values in sorted(trained.judged.items(), key=lambda item: float(item[1][:, 0].mean())):
        cells = []
        for column in range(3):
            found = interval(values[:, column])
            bounds = "" if np.isnan(found.low) else f" ({found.low:.2f} to {found.high:.2f})"
            cells.append(f"<td class=n>{found.mean:.2f}{bounds}")
        mark = f"<b>{html.escape(name)}</b>" if name in ("chosen", "in force") else html.escape(name)
        rows.append(f"<tr><td>{mark}{''.join(cells)}")
    return (
        "<h2>Against what people wrote, on the judge windows</h2>"
        f"<p>Shares of what <code>{html.escape(REFERENCE)}</code> reaches on the same windows; smaller is better. "
        "In brackets the 95 % interval of the mean over draws of the window."
        "<table><tr><th>policy<th class=n>average wait<th class=n>maximum wait<th class=n>idle GPU time"
        f"{''.join(rows)}</table>{_picture(_draw_comparison, trained)}"
    )


def _winners(policy: Policy, incumbent: Policy, material: Material, parts: Parts) -> str:
    """Who waits less and who waits longer than under the policy in force, on the first judge window."""
    scene = parts.judge.scenes[0]
    waits = [_waits(parts.judge, each) for each in (policy, incumbent)]
    # The first draw is not shaken: its jobs are the history's own, in their order.
    first = int(np.searchsorted(material.jobs.submit, warmed(parts.cut.judge).first_s))
    here = slice(first, first + len(scene.jobs))
    counted = waits[0][1]
    sizes = np.array([f"{gpus} devices" for gpus in scene.jobs.gpus], dtype=object)
    tables = []
    for title, groups in (
        ("user", material.users[here]),
        ("account", material.accounts[here]),
        ("job size", sizes),
    ):
        if len(groups) != len(counted) or len(set(groups[counted])) < 2:
            continue
        rows = _changes(groups[counted], waits[1][0][counted], waits[0][0][counted])
        body = "".join(
            f"<tr><td>{html.escape(str(name) or '(none)')}<td class=n>{jobs}<td class=n>{before / 60:.1f}"
            f"<td class=n>{after / 60:.1f}<td class=n>{(after - before) / 60:+.1f}"
            for name, jobs, before, after in rows
        )
        tables.append(
            f"<h3>By {title}</h3><table><tr><th>{title}<th class=n>jobs<th class=n>in force, min"
            f"<th class=n>chosen, min<th class=n>change{body}</table>"
        )
    return (
        "<h2>Winners and losers</h2><p>Mean wait on the judge window under the policy in force and under the "
        f"chosen one; those whose total wait changes most.{''.join(tables)}"
    )


def _waits(problem: Problem, priority: Priority) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    _, waits, counted = metrics(problem, problem.scenes[0], priority)
    return waits, counted


def _changes(
    groups: NDArray[np.object_], before: NDArray[np.float64], after: NDArray[np.float64]
) -> list[tuple[str, int, float, float]]:
    """The groups whose total wait changes most, largest gain first."""
    rows = [
        (str(name), int(mine.sum()), float(before[mine].mean()), float(after[mine].mean()))
        for name in dict.fromkeys(groups.tolist())
        for mine in [groups == name]
    ]
    rows.sort(key=lambda row: row[1] * (row[3] - row[2]))
    return rows if len(rows) <= 2 * MOST_ROWS else [*rows[:MOST_ROWS], *rows[-MOST_ROWS:]]


def _members(trained: Trained) -> str:
    rows = "".join(
        f"<tr><td class=n>{member.chosen_on[0]:.2f}<td class=n>{member.chosen_on[1]:.2f}"
        f"<td class=n>{member.complexity}"
        f"<td><code>{html.escape(member.text)}</code>{_author(member)}"
        f"<td>{html.escape('; '.join(member.refused)) or 'may be used'}"
        for member in sorted(trained.front.members, key=lambda one: one.chosen_on)
    )
    return (
        "<h2>All policies of the front</h2><p>Average and maximum on the choose windows, as shares of the "
        "reference's; of the maximum the mean of the worst 1 % is told, which foretells more than one job."
        "<table><tr><th class=n>average<th class=n>maximum<th class=n>complexity<th>policy<th>verdict"
        f"{rows}</table>"
    )


def _author(member: Member) -> str:
    return f" ({member.by_hand}, by hand)" if member.by_hand else ""


def _picture(draw: Any, of: Any) -> str:
    """A drawing as an image inside the page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure, of)
    raw = io.BytesIO()
    try:
        figure.savefig(raw, format="png", dpi=110)
    except ValueError:  # mathtext does not know every formula
        return ""
    return f'<p><img alt="" src="data:image/png;base64,{base64.b64encode(raw.getvalue()).decode()}">'


def _draw_formula(figure: Any, policy: Policy) -> None:
    figure.set_size_inches(8, 1.2)
    size = 16 if policy.size < 16 else 11
    figure.text(0.5, 0.5, f"${policy.latex()}$", ha="center", va="center", fontsize=size)


def _draw_front(figure: Any, trained: Trained) -> None:
    axes = figure.subplots()
    points = np.array([member.chosen_on[:2] for member in trained.front.members])
    sizes = [member.complexity for member in trained.front.members]
    dots = axes.scatter(points[:, 0], points[:, 1], c=sizes, cmap="viridis", label="front, on the choose windows")
    figure.colorbar(dots, label="complexity")
    shown = trained.shown.chosen_on
    axes.scatter([shown[0]], [shown[1]], marker="*", s=220, color="crimson", label="chosen by the weights")
    axes.scatter([1], [1], marker="x", color="black", label="reference")
    _axes(axes)


def _draw_convergence(figure: Any, trained: Trained) -> None:
    axes = figure.subplots()
    history = trained.evolved.history
    axes.plot([row["simulations"] for row in history], [row["hypervolume"] for row in history], marker="o")
    axes.set_xlabel("simulations")
    axes.set_ylabel("hypervolume of average and maximum")
    axes.grid(alpha=0.3)


def _draw_comparison(figure: Any, trained: Trained) -> None:
    axes = figure.subplots()
    for name, values in trained.judged.items():
        x, y = interval(values[:, 0]), interval(values[:, 1])
        special = name in ("chosen", "in force")
        axes.errorbar(
            [x.mean], [y.mean], xerr=_reach(x), yerr=_reach(y),
            fmt="*" if name == "chosen" else "o", color="crimson" if name == "chosen" else "tab:blue",
            markersize=13 if special else 6, capsize=2,
        )  # fmt: skip
        axes.annotate(name, (x.mean, y.mean), textcoords="offset points", xytext=(6, 4), fontsize=8)
    _axes(axes, legend=False)


def _reach(found: Any) -> Sequence[Sequence[float]] | None:
    if np.isnan(found.low):
        return None
    return [[max(found.mean - found.low, 0)], [max(found.high - found.mean, 0)]]


def _axes(axes: Any, *, legend: bool = True) -> None:
    axes.set_xlabel("average weighted wait, share of the reference's")
    axes.set_ylabel("maximum weighted wait, share")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(alpha=0.3, which="both")
    if legend:
        axes.legend()


__all__ = ["shares", "tree", "write"]
