"""Numbers and names as text for people, written alike in tables, figures and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from isthmus.core.kinds import SERVER_NAME, devices_name, owner_of_devices
from isthmus.protect.accounting.guarantee import LISTS, STEPS_TAKEN, UNITS, Guarantee

_LARGE = 20.0  # an epsilon above this lets odds move more than a hundred million times
_SHARES = ("accuracy", "f1", "auc", "precision", "recall")


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 and reads best in per cent."""
    return any(word in metric for word in _SHARES)


def score_text(metric: str, value: float | None, digits: int = 1) -> str:
    """A score as text: shares in per cent, other scores with four digits, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f} %" if is_share(metric) else f"{value:.4g}"


def spread_text(metric: str, value: float | None, deviation: float | None) -> str:
    """A score as text, with its deviation over seeds where there is one: ``79.4 ± 0.4 %``."""
    text = score_text(metric, value)
    return text if deviation is None else f"{text.removesuffix(' %')} ± {score_text(metric, deviation)}"


def gain_text(metric: str, value: float | None, base: float | None) -> str:
    """The difference of two scores as text with its sign; of shares in percentage points."""
    if value is None or base is None:
        return "–"
    text = f"{100 * (value - base):+.1f}" if is_share(metric) else f"{value - base:+.4g}"
    return text.replace("-", "−")


def metric_label(metric: str) -> str:
    """The name of a metric for people: ``macro_pr_auc`` is ``macro PR-AUC``, ``pr_auc/C2`` is ``PR-AUC of C2``."""
    name, _, task = metric.partition("/")
    for code, text in (("f1_minority", "F1 of the rare class"), ("f1", "F1"), ("pr_auc", "PR-AUC")):
        name = name.replace(code, text)
    return name.replace("_", " ") + (f" of {task}" if task else "")


def party_order(name: str) -> tuple[int, int, str]:
    """The sort key of a party: the server first, then silos by number, then any other name; devices after all silos."""
    owner = owner_of_devices(name)
    if owner is not None:
        place, number, rest = party_order(owner)
        return (place + 2, number, rest)
    stem, _, number_text = name.rpartition("-")
    if stem == "silo" and number_text.isdigit():
        return (1, int(number_text), "")
    return (0 if name == SERVER_NAME else 2, 0, name)


def list_names(names: Iterable[str]) -> str:
    """Names as text: ``silo-0 to silo-4`` for consecutive silos, else the names one by one; devices by their silos."""
    names = list(names)
    owners = [owner for name in names if (owner := owner_of_devices(name)) is not None]
    if owners and len(owners) == len(names):
        return devices_name(list_names(owners))
    numbers = [party_order(name)[1] for name in names if party_order(name)[0] == 1]
    if len(names) > 2 and len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{names[0]} to {names[-1]}"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def bytes_text(size: float) -> str:
    """A number of bytes as text, in powers of 1000: ``1.3 MB``."""
    units, place = ("B", "kB", "MB", "GB", "TB", "PB"), 0
    while size >= 999.5 and place < len(units) - 1:
        size, place = size / 1000, place + 1
    digits = 0 if size >= 99.95 or size == int(size) else 1
    return f"{size:.{digits}f} {units[place]}"


def duration(seconds: float | None) -> str:
    """Seconds as text: ``3.2 s``, ``12 min``, ``2 h 05 min``; a dash for None."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def wait_text(seconds: float) -> str:
    """Seconds as text where parts of a second or of a minute matter: ``12 ms``, ``77 s``."""
    if 60 <= seconds < 600:
        return f"{seconds:.0f} s"
    return duration(seconds) if seconds >= 1 or seconds == 0 else f"{1000 * seconds:.3g} ms"


def epsilon_text(value: float) -> str:
    """An epsilon as text."""
    return "∞" if value == float("inf") else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def privacy_line(told: Guarantee, names: Callable[[str], str] = str) -> str:
    """A run's guarantee in one line: epsilon, of what and against what; what makes it infinite; what it leaves out.

    ``names`` puts kinds of messages into words.
    """
    spent = f"epsilon = {epsilon_text(told.epsilon)}"
    if told.void:
        spent = f"no guarantee, with a delta of {told.delta:.3g} ({spent})"
    apart = f"; not covered: {', '.join(map(names, told.apart))}" if told.apart else ""
    if told.epsilon == math.inf:
        return f"{spent}: {', '.join(map(names, told.bare)) or 'data of nodes'} left without noise and bound{apart}"
    if not told.epsilon:
        return f"{spent}: nothing of nodes left a silo{apart}"
    large = ", which promises next to nothing" if told.epsilon > _LARGE else ""
    return f"{spent}{large} (delta {told.delta:g}), for {UNITS[told.unit]}, any two values, over all that left{apart}"


def labels_line(known: Sequence[Guarantee]) -> str:
    """What bounded steps promise of a training label, in one line; empty where steps were not bounded."""
    found = [told for told in known if told.of == STEPS_TAKEN]
    if not found:
        return ""
    counted, sampled = found
    steps = count_text(counted.releases, "step")
    if counted.bare:
        return f"DP-SGD, {UNITS[counted.unit]}: {pair_text(counted)}; {', '.join(counted.bare)} left without noise"
    usual = f"as if batches were Poisson samples, {pair_text(sampled)}"
    return f"DP-SGD, {UNITS[counted.unit]}: {pair_text(counted)}; it was in {steps}; {usual}"


def lists_line(known: Sequence[Guarantee]) -> str:
    """What draws of neighbour lists promise of an edge, in one line; empty where draws were not counted."""
    found = [told for told in known if told.of == LISTS]
    if not found:
        return ""
    held = found[0]
    figures = held.silos.values()
    drawn = [each for each in figures if each["lists"]]
    if any(each["whole"] for each in figures):
        what = "lists were read as a whole"
    elif drawn:
        shortest = count_text(min(each["shortest"] for each in drawn), "entry", "entries")
        what = f"up to {count_text(held.releases, 'draw')} of a list, the shortest of {shortest}"
    else:
        what = "no list was drawn from"
    skipped = sum(each["skipped"] for each in figures)
    below = f"; {count_text(skipped, 'list')} below the floor not drawn from" if skipped else ""
    claims = [f"; as its paper claims, {pair_text(told)}" for told in found[1:]]
    return f"edge-LDP of drawn neighbour lists: {pair_text(held)}; {what}{below}{''.join(claims)}"


def pair_text(told: Guarantee) -> str:
    """Epsilon and delta as text; ``no guarantee`` comes first where delta leaves none."""
    pair = f"epsilon = {epsilon_text(told.epsilon)}, delta = {told.delta:.3g}"
    return f"no guarantee ({pair})" if told.void else pair


def count_text(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun as text: ``1 silo``, ``1,200 silos``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
