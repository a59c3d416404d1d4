"""Simulated transfers between banks: the files, the patterns, and that single rows give nothing away."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, ks_2samp, kstest

from isthmus.core.errors import IsthmusError
from isthmus.data import load
from isthmus.data.aml_file import COLUMNS
from isthmus.data.interbank import CURRENCIES, Interbank, SimulatedTraffic, simulate
from isthmus.data.laundering import PATTERNS, launder
from isthmus.data.simulated import simulated
from isthmus.data.write_aml import ATTEMPTS, TRANSACTIONS, write_simulated_aml
from isthmus.graph.graph import TEST, TRAIN, VALID
from tests.helpers.attempts import Attempt, fits, read_attempts
from tests.helpers.command import refuse, snapshot, succeed

SETTINGS = Interbank(transactions=60_000, banks=20, illicit_rate=0.05, seed=3)
CHANCE = 1e-3  # below this two samples do not come from one distribution
SHAPES = {pattern.name for pattern in PATTERNS}


def quiet(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def traffic() -> SimulatedTraffic:
    return simulate(SETTINGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("interbank")
    write_simulated_aml(SETTINGS, place, overwrite=False, tell=quiet)
    return place


@pytest.fixture(scope="module")
def attempts(folder: Path) -> list[Attempt]:
    return read_attempts(folder / ATTEMPTS)


def test_what_is_written_is_what_is_loaded(folder: Path, traffic: SimulatedTraffic) -> None:
    graph = load(str(folder / TRANSACTIONS))
    assert graph.m == SETTINGS.transactions
    assert graph.edge_y is not None and np.array_equal(graph.edge_y, traffic.attempt >= 0)
    assert graph.edge_time is not None
    assert np.array_equal((graph.edge_time - graph.edge_time.min()) // 60, traffic.minute - traffic.minute.min())
    banks = {bank: f"{bank + 1:03}" for bank in range(SETTINGS.banks)}
    for end, account in zip(graph.edge_index.numpy(), (traffic.source, traffic.target), strict=True):
        names = [f"{banks[traffic.bank[a]]}:8{a:07X}0" for a in account.tolist()]
        assert graph.ids[end].tolist() == names
    assert graph.edge_split is not None
    day = traffic.minute // 1440
    assert np.array_equal(graph.edge_split, np.select([day < 8, day == 8], [TRAIN, VALID], TEST))
    assert graph.schema.edge_features == 5 + 2 * (len(CURRENCIES) + 1) + 7


def test_the_graph_needs_no_file(folder: Path) -> None:
    from_file, straight = load(str(folder / TRANSACTIONS)), simulated(SETTINGS)
    assert np.array_equal(from_file.ids, straight.ids) and from_file.schema == straight.schema
    assert np.array_equal(from_file.columns["bank"], straight.columns["bank"])
    for name in ("x", "edge_index", "edge_attr", "edge_time", "edge_y", "edge_split"):
        assert torch.equal(getattr(from_file, name), getattr(straight, name)), name


def test_the_header_is_the_public_one(folder: Path) -> None:
    with open(folder / TRANSACTIONS) as file:
        header, line = file.readline(), file.readline()
    assert header == (
        "Timestamp,From Bank,Account,To Bank,Account,Amount Received,Receiving Currency,"
        "Amount Paid,Payment Currency,Payment Format,Is Laundering\n"
    )
    number = r"\d+(\.\d{1,6})?"
    pattern = rf"2022/09/01 00:\d\d,0\d+,8\w{{8}},0\d+,8\w{{8}},{number},[\w ]+,{number},[\w ]+,[\w ]+,[01]\n"
    assert re.fullmatch(pattern, line), line


def test_attempts_are_the_laundering_transactions_each_once(folder: Path, attempts: list[Attempt]) -> None:
    rows = (folder / TRANSACTIONS).read_text().splitlines()[1:]
    laundering = Counter(row for row in rows if row.endswith(",1"))
    assert Counter(line for attempt in attempts for line in attempt.lines) == laundering
    assert {attempt.kind for attempt in attempts} == SHAPES
    assert 0.99 < sum(laundering.values()) / (SETTINGS.illicit_rate * SETTINGS.transactions) <= 1


def test_a_seed_gives_the_same_bytes_and_another_gives_others(tmp_path: Path) -> None:
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_simulated_aml(Interbank(5000, 5, illicit_rate=0.02, seed=seed), tmp_path / place, False, quiet)
    same, again, other = (snapshot(tmp_path / place) for place in "abc")
    assert same == again and set(same) == {TRANSACTIONS, ATTEMPTS}
    assert all(same[name] != other[name] for name in same)


def test_rows_do_not_depend_on_how_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, told = Interbank(5000, 5, illicit_rate=0.02), []
    write_simulated_aml(settings, tmp_path / "a", False, quiet)
    monkeypatch.setattr("isthmus.data.write_aml.CHUNK", 999)
    write_simulated_aml(settings, tmp_path / "b", False, lambda done, total: told.append((done, total)))
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")
    assert told == [(done, 5000) for done in (999, 1998, 2997, 3996, 4995, 5000)]


@pytest.mark.parametrize("name", ["paid", "received", "minute", "dollars"])
def test_numbers_of_laundering_and_other_transfers_are_alike(traffic: SimulatedTraffic, name: str) -> None:
    rate = np.array([rate for rate, _ in CURRENCIES.values()])
    dollars = traffic.paid / rate[traffic.paid_in]
    values = {"paid": traffic.paid, "received": traffic.received, "minute": traffic.minute % 1440, "dollars": dollars}
    ordinary = traffic.attempt < 0
    illicit = np.flatnonzero(~ordinary)
    if name != "minute":  # one of each attempt: a sum that is handed on counts once
        illicit = illicit[np.unique(traffic.attempt[illicit], return_index=True)[1]]
    assert ks_2samp(values[name][illicit], values[name][ordinary]).pvalue > CHANCE
    moved = values[name][illicit] * (1.5 if name == "minute" else 4)  # the test would see a difference of this size
    assert ks_2samp(moved, values[name][ordinary]).pvalue < CHANCE


def passed_on(attempt: np.ndarray, source: np.ndarray, target: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """log(paid / received) of the accounts that pay once and receive once in a laundering attempt."""
    found = []
    for number in np.unique(attempt):
        rows = np.flatnonzero((attempt == number) & (source != target))
        paid, got = (Counter(end[rows].tolist()) for end in (source, target))
        middle = [account for account in paid if paid[account] == 1 == got[account]]
        worth_of = [dict(zip(end[rows].tolist(), worth[rows], strict=True)) for end in (source, target)]
        found += [worth_of[0][account] - worth_of[1][account] for account in middle]
    return np.array(found)


HANDED_ON = ("CYCLE", "RANDOM", "SCATTER-GATHER", "STACK")


@pytest.mark.parametrize("kind", HANDED_ON)
def test_money_is_handed_on(traffic: SimulatedTraffic, kind: str) -> None:
    rate = np.array([rate for rate, _ in CURRENCIES.values()])
    of_kind = np.isin(traffic.attempt, np.flatnonzero([PATTERNS[k].name == kind for k in traffic.attempts.kind]))
    worth = np.log(traffic.paid / rate[traffic.paid_in])
    columns = (traffic.attempt, traffic.source, traffic.target, worth)
    change = passed_on(*(column[of_kind] for column in columns))
    assert len(change) > 50 and np.quantile(np.abs(change), 0.8) < 0.2 and abs(np.median(change)) < 0.03


@pytest.mark.parametrize("name", ["paid_in", "received_in", "format"])
def test_words_of_laundering_and_other_transfers_are_alike(traffic: SimulatedTraffic, name: str) -> None:
    illicit, word = traffic.attempt >= 0, getattr(traffic, name)
    counts = np.stack([np.bincount(word[rows], minlength=int(word.max()) + 1) for rows in (illicit, ~illicit)])
    assert chi2_contingency(counts).pvalue > CHANCE
    counts[0, 0] = counts[0, 0] * 1.3
    assert chi2_contingency(counts).pvalue < CHANCE


def test_accounts_of_laundering_are_as_busy_as_others(traffic: SimulatedTraffic) -> None:
    ordinary = traffic.attempt < 0
    sent = np.bincount(traffic.source[ordinary], minlength=SETTINGS.population)
    by_account = np.log1p(sent[traffic.source])
    # Drawn by the same weights: the mean over laundering rows is that over ordinary rows, and not that over accounts.
    assert abs(by_account[~ordinary].mean() - by_account[ordinary].mean()) < 0.25
    assert abs(by_account[~ordinary].mean() - np.log1p(sent).mean()) > 0.5


def test_laundering_crosses_banks_as_often_as_the_rest(traffic: SimulatedTraffic) -> None:
    across = traffic.bank[traffic.source] != traffic.bank[traffic.target]
    shares = across[traffic.attempt >= 0].mean(), across[traffic.attempt < 0].mean()
    assert min(shares) > 0.8 and abs(shares[0] - shares[1]) < 0.03


def test_every_day_has_its_share(traffic: SimulatedTraffic) -> None:
    for rows in (traffic.attempt >= 0, traffic.attempt < 0):
        days = np.bincount(traffic.minute[rows] // 1440, minlength=SETTINGS.days) * SETTINGS.days / rows.sum()
        assert len(days) == SETTINGS.days and days.min() > 0.7 and days.max() < 1.3


def test_days_have_their_hours(traffic: SimulatedTraffic) -> None:
    hour = np.bincount(traffic.minute % 1440 // 60, minlength=24) / len(traffic.minute)
    assert hour.min() > 0.01 and hour[[11, 12, 13, 14, 15, 16]].sum() > 3 * hour[[0, 1, 2, 3, 22, 23]].sum()


def test_windows_last_whole_days_so_that_no_moment_of_the_day_is_favoured() -> None:
    rng = np.random.default_rng(0)
    made = launder(rng, 300_000, 3, lambda count: rng.integers(10**6, size=count))
    assert kstest(made.time % 1, "uniform").pvalue > CHANCE


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_attempts_have_the_shape_they_claim(attempts: list[Attempt], kind: str) -> None:
    mine = [attempt for attempt in attempts if attempt.kind == kind]
    assert len(mine) > 20 and all(fits(attempt) for attempt in mine)
    assert all(attempt.times == sorted(attempt.times) for attempt in mine)  # and money comes before it goes
    large = next(attempt for attempt in mine if len(attempt.lines) > 7)
    broken = [*large.lines[:2], large.lines[-1], *large.lines[3:]]  # a line twice, and another missing
    assert not fits(Attempt(kind, large.title, broken))


def test_attempts_are_over_in_their_window(traffic: SimulatedTraffic) -> None:
    made = traffic.attempts
    assert made.time.min() >= 0 and made.time.max() < SETTINGS.days
    for number, pattern in enumerate(PATTERNS):
        spans = [np.ptp(made.time[made.attempt == a]) for a in np.flatnonzero(made.kind == number)]
        assert 0.5 * pattern.window < max(spans) <= pattern.window, pattern.name


def test_banks_have_sizes_by_zipf(traffic: SimulatedTraffic) -> None:
    size = np.bincount(traffic.bank, minlength=SETTINGS.banks)
    assert size.sum() == SETTINGS.population == len(traffic.bank)
    assert np.allclose(size * np.arange(1, SETTINGS.banks + 1) / size[0], 1, atol=0.1)
    assert np.bincount(simulate(Interbank(500, 300, illicit_rate=0)).bank).tolist().count(0) == 0


def test_ordinary_transfers_recur_and_few_accounts_make_most(traffic: SimulatedTraffic) -> None:
    ordinary = traffic.attempt < 0
    source, target = traffic.source[ordinary], traffic.target[ordinary]
    assert (source != target).all()
    _, pair, times = np.unique(source * SETTINGS.population + target, return_inverse=True, return_counts=True)
    assert (times[pair] > 1).mean() > 0.5
    sent = np.sort(np.bincount(source, minlength=SETTINGS.population))[::-1]
    assert sent[: SETTINGS.population // 100].sum() > 0.1 * sent.sum()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"transactions": 0}, "--transactions is 0; it must be at least 1"),
        ({"banks": 0}, "--banks is 0"),
        ({"days": 0}, "--days is 0"),
        ({"seed": -1}, "--seed is -1; it must be at least 0"),
        ({"accounts": 199}, "--accounts is 199 for 20 banks; there must be at least 200"),
        ({"accounts": 300, "banks": 301}, "--accounts is 300 for 301 banks"),
        ({"illicit_rate": 0.6}, "--illicit-rate is 0.6; it must lie between 0 and 0.5"),
        ({"illicit_rate": float("nan")}, "--illicit-rate is nan"),
        ({"illicit_rate": 1e-5}, "is no room for laundering attempts.*or give --illicit-rate 0"),
    ],
)
def test_what_cannot_be_simulated(change: dict[str, float], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        Interbank(**{"transactions": 60_000, "banks": 20, **change}).check()  # type: ignore[arg-type]


SMALL = ("simulate-aml", "--transactions", 5000, "--banks", 5, "--illicit-rate", 0.02)


def test_the_command_reports_what_it_made(tmp_path: Path) -> None:
    said = json.loads(succeed(*SMALL, "--out", tmp_path, "--accounts", 700, "--days", 12, "--json").out)
    assert (said["transactions"], said["accounts"], said["banks"]) == (5000, 700, 5)
    graph = load(said["file"])
    assert graph.edge_y is not None and graph.edge_time is not None
    assert said["illicit"] == int(graph.edge_y.sum()) and said["illicit_share"] == said["illicit"] / 5000
    bank = graph.columns["bank"][graph.edge_index.numpy()]
    assert said["across_banks"] == pytest.approx((bank[0] != bank[1]).mean())
    made = Counter(attempt.kind.lower() for attempt in read_attempts(tmp_path / ATTEMPTS))
    assert {name: count for name, count in said["attempts"].items() if count} == made
    assert len(np.unique(graph.edge_time // 86400)) == 12


def test_the_command_prints_a_table_and_the_next_step(tmp_path: Path) -> None:
    out = succeed(*SMALL, "--out", tmp_path / "x").out
    for word in ("transactions", "5,000", "illicit share", "attempts: cycle", "seconds"):
        assert word in out
    assert f"isthmus run --data aml --set data.path={tmp_path}/x/{TRANSACTIONS} --split attribute:bank" in out


def test_the_command_replaces_only_when_told(tmp_path: Path) -> None:
    succeed(*SMALL, "--out", tmp_path)
    before = snapshot(tmp_path)
    refuse(*SMALL, "--seed", 1, "--out", tmp_path, says=["Interbank_Trans.csv", "--overwrite"])
    assert snapshot(tmp_path) == before
    succeed(*SMALL, "--seed", 1, "--out", tmp_path, "--overwrite")
    assert snapshot(tmp_path).keys() == before.keys() and snapshot(tmp_path) != before
    refuse(*SMALL, "--out", tmp_path / TRANSACTIONS, says=["is a file; choose another --out"])
    refuse(*SMALL, "--days", 0, "--out", tmp_path / "new", says=["--days is 0"])
    assert not (tmp_path / "new").exists()


def test_no_laundering_at_all(tmp_path: Path) -> None:
    said = json.loads(succeed(*SMALL, "--illicit-rate", 0, "--out", tmp_path, "--json").out)
    assert said["illicit"] == 0 and said["illicit_across_banks"] is None and (tmp_path / ATTEMPTS).read_text() == ""
    assert "–" in succeed(*SMALL, "--illicit-rate", 0, "--out", tmp_path, "--overwrite").out


@pytest.fixture(scope="module")
def public(data_folder: Path) -> list[Attempt]:
    path = data_folder / "IBM-AML" / "HI-Small_Patterns.txt"
    if not path.is_file():
        pytest.skip(f"no public list of attempts: {path}")
    return read_attempts(path)


def sizes(found: list[Attempt], kind: str) -> list[int]:
    return [len(attempt.lines) for attempt in found if attempt.kind == kind]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_sizes_are_like_the_public_ones(public: list[Attempt], pattern: object, traffic: SimulatedTraffic) -> None:
    name = pattern.name  # type: ignore[attr-defined]
    real = np.array(sizes(public, name))
    made = traffic.attempts
    count = np.bincount(made.attempt, minlength=len(made.kind))
    ours = count[[PATTERNS[kind].name == name for kind in made.kind]]
    error = np.hypot(real.std() / len(real) ** 0.5, ours.std() / len(ours) ** 0.5)
    assert abs(real.mean() - ours.mean()) < 2.5 * error
    assert ours.min() == real.min() and abs(int(ours.max()) - int(real.max())) <= 4


def test_types_and_crossings_are_like_the_public_ones(public: list[Attempt]) -> None:
    count = Counter(attempt.kind for attempt in public)
    assert set(count) == SHAPES and max(count.values()) < 1.5 * min(count.values())
    banks = [line.split(",")[1:4:2] for attempt in public for line in attempt.lines]
    real = np.mean([sender != receiver for sender, receiver in banks])
    ours = simulate(Interbank(50_000, 500, illicit_rate=0.1))
    illicit = ours.attempt >= 0
    across = (ours.bank[ours.source] != ours.bank[ours.target])[illicit].mean()
    assert abs(real - across) < 0.03


@pytest.mark.parametrize("kind", HANDED_ON)
def test_money_is_handed_on_in_the_public_attempts(public: list[Attempt], kind: str) -> None:
    lines = [(n, line.split(",")) for n, attempt in enumerate(public) if attempt.kind == kind for line in attempt.lines]
    number = np.array([n for n, _ in lines])
    ends = [np.array([f"{line[at]}:{line[at + 1]}" for _, line in lines]) for at in (1, 3)]
    worth = np.array([np.log(float(line[7]) / CURRENCIES[line[8]][0]) for _, line in lines])
    change = passed_on(number, *ends, worth)
    assert len(change) > 50 and np.quantile(np.abs(change), 0.8) < 0.2 and abs(np.median(change)) < 0.03


def test_titles_are_the_public_ones(public: list[Attempt], attempts: list[Attempt]) -> None:
    def titles(found: list[Attempt]) -> set[tuple[str, str]]:
        return {(attempt.kind, re.sub(r"\d+", "N", attempt.title)) for attempt in found}

    assert titles(public) == titles(attempts)
    assert len(COLUMNS) == len(public[0].lines[0].split(",")) == len(attempts[0].lines[0].split(","))
