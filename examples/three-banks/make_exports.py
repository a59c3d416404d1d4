"""Three banks' untidy exports, and those of the day after: accounts and payments, with fraud among them.

    python make_exports.py OUT --seed 7 --mess bom,commas,latin1,floats,gaps,words,payer

Each kind of mess falls upon one bank, in turn. The same seed and mess give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

BANKS = ("alpen", "bern", "chur")
MESS = {
    "bom": "a byte order mark before the header",
    "commas": "decimal commas, and semicolons between columns",
    "latin1": "Latin-1 instead of UTF-8",
    "utf16": "UTF-16",
    "floats": "labels 0.0 and 1.0, as pandas writes them when one is missing",
    "truth": "labels true and false",
    "gaps": "missing cells",
    "dashes": "a dash where a number is missing",
    "words": "words that are spelt in capitals",
    "payer": "labels of payments that the bank's own customers make, and no others",
    "shuffled": "rows in no order",
}
CITIES = ("Zürich", "Genève", "Basel", "Neuchâtel")
CHANNELS = ("card", "app", "wire", "branch")
SEGMENTS = ("private", "business", "public")
START = datetime(2026, 3, 1)
DAYS = 20  # the first 12 train, 4 validate, 4 test; the day after is to be scored


@dataclass
class Account:
    """A customer's account; mules hand on what victims pay to them."""

    name: str
    bank: int
    mule: bool
    segment: str
    city: str
    balance: float
    since: int


@dataclass
class Payment:
    """A payment between two accounts."""

    name: str
    source: Account
    target: Account
    when: datetime
    amount: float
    channel: str
    fraud: bool


@dataclass
class Bank:
    """One bank: its name and the mess that it makes of its exports."""

    name: str
    mess: set[str] = field(default_factory=set)


def accounts_of(rng: random.Random, count: int) -> list[Account]:
    """Accounts of three banks, one in fifteen of a mule."""
    found = []
    for number in range(count):
        bank, mule = rng.choices((0, 1, 2), (5, 3, 2))[0], rng.random() < 1 / 15
        segment = rng.choices(SEGMENTS, (8, 3, 1))[0]
        name = f"{BANKS[bank][:2].upper()}-{number:05d}"
        balance = round(rng.lognormvariate(8, 1), 2)
        found.append(Account(name, bank, mule, segment, rng.choice(CITIES), balance, rng.randint(1990, 2026)))
    return found


def payments_of(rng: random.Random, accounts: list[Account], count: int, first: datetime, days: int) -> list[Payment]:
    """Ordinary payments, and frauds: victims pay to mules, by app and at night, and mules hand the money on."""
    mules, found = [account for account in accounts if account.mule], list[Payment]()
    while len(found) < count:
        when = first + timedelta(seconds=rng.randrange(days * 86400))
        if rng.random() < 0.03 and len(mules) > 1:
            mule, other = rng.sample(mules, 2)
            victims = rng.sample(accounts, 2)
            late = when.replace(hour=rng.choice((0, 1, 2, 3, 22, 23)))
            legs = [(victim, mule) for victim in victims if victim is not mule] + [(mule, other)]
            for step, (source, target) in enumerate(legs):
                then = late + timedelta(minutes=7 * step)
                amount = round(rng.lognormvariate(6.5, 0.4), 2)
                channel = rng.choices(CHANNELS, (1, 6, 3, 0))[0]
                found.append(Payment("", source, target, then, amount, channel, fraud=True))
        else:
            source, target = rng.sample(accounts, 2)
            amount = round(rng.lognormvariate(5, 1.2), 2)
            found.append(Payment("", source, target, when, amount, rng.choice(CHANNELS), fraud=False))
    found.sort(key=lambda payment: payment.when)
    for number, payment in enumerate(found):
        payment.name = f"{first:%m%d}-{number:06d}"
    return found


def banks_with(mess: list[str], seed: int) -> list[Bank]:
    """The three banks; each kind of mess falls upon one of them, in turn, from one that the seed chooses."""
    banks = [Bank(name) for name in BANKS]
    for number, kind in enumerate(mess):
        banks[(seed + number) % 3].mess.add(kind)
    return banks


def write_bank(rng: random.Random, folder: Path, bank: Bank, accounts: list[Account], payments: list[Payment]) -> None:
    """One bank's export: its accounts, and every payment that touches one of them."""
    number = BANKS.index(bank.name)
    nodes = [["id", "segment", "city", "balance", "since"]]
    for account in accounts:
        if account.bank == number:
            words = [spelt(word, bank) for word in (account.segment, account.city)]
            nodes.append([account.name, *words, amount_text(rng, account.balance, bank), str(account.since)])
    edges = [["id", "source", "target", "owner", "time", "amount", "channel", "label", "split"]]
    for payment in payments:
        ends = (payment.source, payment.target)
        if number in (end.bank for end in ends):
            far = next((BANKS[end.bank] for end in ends if end.bank != number), "")
            row = [payment.name, payment.source.name, payment.target.name, far, f"{payment.when:%Y-%m-%d %H:%M:%S}"]
            row += [amount_text(rng, payment.amount, bank, gaps=False), spelt(payment.channel, bank)]
            edges.append([*row, label_text(payment, number, bank), split_of(payment)])
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("nodes", nodes), ("edges", edges)):
        if "shuffled" in bank.mess:
            rows[1:] = rng.sample(rows[1:], len(rows) - 1)
        (folder / f"{name}.csv").write_bytes(encoded(rows, bank))


def spelt(word: str, bank: Bank) -> str:
    """A word as the bank writes it."""
    return word.upper() if "words" in bank.mess else word


def amount_text(rng: random.Random, amount: float, bank: Bank, gaps: bool = True) -> str:
    """An amount as the bank writes it; every twelfth is missing where it leaves ``gaps``."""
    if gaps and bank.mess & {"gaps", "dashes"} and rng.random() < 1 / 12:
        return "-" if "dashes" in bank.mess else ""
    text = f"{amount:.2f}"
    return text.replace(".", ",") if "commas" in bank.mess else text


def label_text(payment: Payment, number: int, bank: Bank) -> str:
    """A label as the bank writes it; empty where it does not know, or is about tomorrow."""
    if payment.when >= START + timedelta(days=DAYS) or ("payer" in bank.mess and payment.source.bank != number):
        return ""
    if "truth" in bank.mess:
        return str(payment.fraud).lower()
    return f"{int(payment.fraud)}.0" if "floats" in bank.mess else str(int(payment.fraud))


def split_of(payment: Payment) -> str:
    """The first twelve days train, four validate, four test: a model is judged by what came after it."""
    day = (payment.when - START).days
    return "train" if day < 12 else "valid" if day < 16 else "test" if day < DAYS else ""


def encoded(rows: list[list[str]], bank: Bank) -> bytes:
    """A table as the bank's bytes."""
    out = io.StringIO()
    csv.writer(out, delimiter=";" if "commas" in bank.mess else ",").writerows(rows)
    if "utf16" in bank.mess:
        return out.getvalue().encode("utf-16")
    if "latin1" in bank.mess:
        return out.getvalue().encode("latin-1")
    return ("\ufeff" * ("bom" in bank.mess) + out.getvalue()).encode("utf-8")


def make(out: Path, seed: int, mess: list[str], accounts: int = 400, payments: int = 6000) -> list[Bank]:
    """Write ``out/history`` and ``out/tomorrow``; returns the banks with their mess."""
    rng, banks = random.Random(seed), banks_with(mess, seed)
    customers = accounts_of(rng, accounts)
    history = payments_of(rng, customers, payments, START, DAYS)
    later = payments_of(rng, customers, max(payments // DAYS, 30), START + timedelta(days=DAYS), 1)
    for name, listed in (("history", history), ("tomorrow", later)):
        for bank in banks:
            write_bank(rng, out / name / bank.name, bank, customers, listed)
            toml = f'name = "{bank.name}"\n[schema]\ntarget = "edge"\nattributes = ["since"]\n'
            (out / name / bank.name / "silo.toml").write_text(toml)
        (out / name / "federation.toml").write_text(f"silos = {list(BANKS)}\n".replace("'", '"'))
    return banks


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for history/ and tomorrow/")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--mess", default="bom,commas,latin1,floats,gaps,words,payer", help=", ".join(MESS))
    parser.add_argument("--accounts", type=int, default=400)
    parser.add_argument("--payments", type=int, default=6000)
    asked = parser.parse_args()
    mess = [kind for kind in asked.mess.split(",") if kind]
    strange = [kind for kind in mess if kind not in MESS]
    if strange:
        parser.error(f"unknown mess '{strange[0]}'; choose from {', '.join(MESS)}")
    for bank in make(asked.out, asked.seed, mess, asked.accounts, asked.payments):
        print(f"{bank.name}: {'; '.join(MESS[kind] for kind in sorted(bank.mess)) or 'tidy'}")


if __name__ == "__main__":
    main()
