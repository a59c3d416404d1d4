"""A simulator of transfers between banks, with laundering hidden among them, in the style of IBM's data sets.

Amount, currencies, format and hour of a transfer are drawn from the same distributions whether it launders or not, and
an account is as likely to take part in one as in the other. A single transfer therefore gives nothing away. Laundering
shows only in several transfers together: by their shape and timing, and by a sum of money that passes from account to
account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import IsthmusError
from isthmus.data.laundering import Attempts, launder

# Units of a currency for a US dollar, and its share of transfers; round numbers, not fitted.
CURRENCIES = {
    "US Dollar": (1.0, 0.37), "Euro": (0.85, 0.23), "Swiss Franc": (0.92, 0.05), "Yuan": (6.7, 0.04),
    "Shekel": (3.4, 0.04), "Rupee": (73.0, 0.04), "UK Pound": (0.77, 0.04), "Ruble": (78.0, 0.03), "Yen": (105.0, 0.03),
    "Bitcoin": (0.000084, 0.03), "Canadian Dollar": (1.3, 0.03), "Australian Dollar": (1.4, 0.02),
    "Mexican Peso": (21.0, 0.02), "Saudi Riyal": (3.8, 0.02), "Brazil Real": (5.6, 0.01),
}  # fmt: skip
FORMATS = {"Cheque": 0.42, "Credit Card": 0.30, "ACH": 0.13, "Cash": 0.11, "Wire": 0.04}
BITCOIN = list(CURRENCIES).index("Bitcoin")  # always paid in a format of its own, which is also called Bitcoin
# How busy the hours of a day are: few transfers at night, most around noon.
HOURS = (2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 6, 6, 6, 6, 6, 6, 4, 4, 4, 1, 1, 1, 1)
EXCHANGED = 0.015  # share of transfers that arrive in another currency than they left
NEW_PARTNER = 0.2  # share of transfers to an account outside the sender's circle
CIRCLE = 4.0  # mean number of accounts that an account pays again and again
TAIL = 1.5  # Pareto exponent of the activity of accounts: a few are far busier than all others
LOG_AMOUNT = (7.0, 2.2)  # mean and deviation of the logarithm of dollars
# Deviation of the logarithm of dollars along a stream of money. In HI-Small_Patterns.txt nine of ten accounts in chains
# and cycles pass on what they got to within a tenth; fees and changing currencies make the difference.
HANDLING = 0.05
FEWEST_ACCOUNTS = 200  # several times the members of the largest attempt


@dataclass(frozen=True)
class Interbank:
    """The settings of a simulation; ``accounts`` 0 means one account for every ten transactions."""

    transactions: int = 5_000_000
    banks: int = 500
    accounts: int = 0
    days: int = 10
    illicit_rate: float = 0.001
    seed: int = 0

    @property
    def population(self) -> int:
        """Number of accounts."""
        return self.accounts or max(self.transactions // 10, FEWEST_ACCOUNTS, self.banks)

    def check(self) -> None:
        """Raise a clear error for settings that cannot be simulated."""
        least = {"transactions": 1, "banks": 1, "accounts": 0, "days": 1, "seed": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise IsthmusError(f"--{name} is {getattr(self, name)}; it must be at least {bound}.")
        if self.population < max(self.banks, FEWEST_ACCOUNTS):
            raise IsthmusError(
                f"--accounts is {self.accounts} for {self.banks} banks; there must be at least {FEWEST_ACCOUNTS}, and "
                "one for each bank."
            )
        if not 0 <= self.illicit_rate <= 0.5:
            raise IsthmusError(f"--illicit-rate is {self.illicit_rate:g}; it must lie between 0 and 0.5.")
        if self.illicit_rate and self.illicit_rate * self.transactions < 50:
            raise IsthmusError(
                f"--illicit-rate {self.illicit_rate:g} of {self.transactions} transactions is no room for laundering "
                "attempts, which take up to 32; raise one of the two until 50 are left, or give --illicit-rate 0."
            )


@dataclass(frozen=True)
class SimulatedTraffic:
    """Simulated transfers in order of time.

    Currencies are places in CURRENCIES; formats are places in FORMATS, followed by Bitcoin's own format.
    """

    bank: np.ndarray  # [accounts] bank of each account
    source: np.ndarray  # [transfers] paying account
    target: np.ndarray  # [transfers] receiving account
    minute: np.ndarray  # [transfers] minutes since the first day began
    paid: np.ndarray  # [transfers] amount in the currency paid_in
    paid_in: np.ndarray  # [transfers] currency
    received: np.ndarray  # [transfers] amount in the currency received_in
    received_in: np.ndarray  # [transfers] currency
    format: np.ndarray  # [transfers]
    attempt: np.ndarray  # [transfers] number of the laundering attempt, -1 for ordinary transfers
    attempts: Attempts


def simulate(settings: Interbank) -> SimulatedTraffic:
    """Simulate ordinary transfers and laundering between the accounts of banks; equal seeds give equal results."""
    settings.check()
    rng = np.random.default_rng(settings.seed)
    draw = _picker(rng, 1 + rng.pareto(TAIL, settings.population))
    attempts = launder(rng, round(settings.illicit_rate * settings.transactions), settings.days, draw)
    ordinary = settings.transactions - len(attempts.source)
    source, target = _ordinary(rng, ordinary, settings.population, draw)
    time = np.concatenate([rng.random(ordinary) * settings.days, attempts.time])
    minute = _minutes(time)
    order = np.argsort(minute, kind="stable")
    return SimulatedTraffic(
        bank=_banks(rng, settings),
        source=np.concatenate([source, attempts.source])[order],
        target=np.concatenate([target, attempts.target])[order],
        minute=minute[order],
        attempt=np.concatenate([np.full(ordinary, -1), attempts.attempt])[order],
        attempts=attempts,
        **_looks(rng, _dollars(rng, ordinary, attempts.stream)[order]),
    )


def _picker(rng: np.random.Generator, weight: np.ndarray) -> Callable[[int], np.ndarray]:
    """A function that draws so many numbers 0, 1, ... with probabilities proportional to ``weight``."""
    line = np.cumsum(weight / weight.sum())
    line[-1] = 1.0
    return lambda count: np.searchsorted(line, rng.random(count), side="right")


def _banks(rng: np.random.Generator, settings: Interbank) -> np.ndarray:
    """The bank of each account: the k-th bank has about 1/k as many accounts as the first, and none is empty."""
    share = 1 / np.arange(1, settings.banks + 1)
    line = np.cumsum(share) / share.sum() * (settings.population - settings.banks)
    size = 1 + np.diff(np.round(line).astype(np.int64), prepend=0)
    return rng.permutation(np.repeat(np.arange(settings.banks), size))


def _ordinary(
    rng: np.random.Generator, count: int, population: int, draw: Callable[[int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of ordinary transfers.

    An account pays mostly the accounts of its circle, the first of them most often, and never itself.
    """
    size = rng.geometric(1 / CIRCLE, population)
    start = np.cumsum(size) - size
    circle = draw(int(size.sum()))
    source = draw(count)
    place = (size[source] * rng.random(count) ** 2).astype(np.int64)
    target = circle[start[source] + place]
    new = np.flatnonzero(rng.random(count) < NEW_PARTNER)
    target[new] = draw(len(new))
    return source, np.where(target == source, (target + 1) % population, target)


def _minutes(time: np.ndarray) -> np.ndarray:
    """Times in days as whole minutes, moved within each day so that hours are as busy as HOURS says; order is kept."""
    line = np.concatenate([[0.0], np.cumsum(HOURS) / sum(HOURS)])
    day = np.floor(time)
    minute = np.floor(60 * np.interp(time - day, line, np.arange(25)))
    whole: np.ndarray = (1440 * day + np.minimum(minute, 1439)).astype(np.int32)
    return whole


def _dollars(rng: np.random.Generator, ordinary: int, stream: np.ndarray) -> np.ndarray:
    """The worth of each transfer in dollars: ordinary ones first, then laundering, about equal along one stream."""
    streams = int(stream.max()) + 1 if len(stream) else 0
    worth = rng.lognormal(*LOG_AMOUNT, ordinary + streams)
    passed_on = worth[ordinary:][stream] * np.exp(HANDLING * rng.standard_normal(len(stream)))
    return np.concatenate([worth[:ordinary], passed_on])


def _looks(rng: np.random.Generator, dollars: np.ndarray) -> dict[str, np.ndarray]:
    """Amounts, currencies and formats of all transfers, drawn without regard to which of them launder."""
    count = len(dollars)
    rate, share = np.array(list(CURRENCIES.values())).T
    choose = _picker(rng, share)
    paid_in = choose(count).astype(np.int8)
    exchanged = rng.random(count) < EXCHANGED
    received_in = np.where(exchanged, choose(count), paid_in).astype(np.int8)
    kind = _picker(rng, np.array(list(FORMATS.values())))(count)
    return {
        "paid": _rounded(dollars * rate[paid_in], paid_in),
        "paid_in": paid_in,
        "received": _rounded(dollars * rate[received_in], received_in),
        "received_in": received_in,
        "format": np.where(paid_in == BITCOIN, len(FORMATS), kind).astype(np.int8),
    }


def _rounded(amount: np.ndarray, currency: np.ndarray) -> np.ndarray:
    """Amounts rounded to cents, or to millionths of a Bitcoin; at least one of these units."""
    unit = np.where(currency == BITCOIN, 1e6, 1e2)
    rounded: np.ndarray = np.maximum(np.round(amount * unit), 1) / unit
    return rounded
