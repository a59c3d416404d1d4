"""The highest scores of a bank's predictions, joined by id to the rows of its own export.

python alerts.py walk/tomorrow/alpen/edges.csv alpen.csv --fraud 1 --top 10 --out alerts-alpen.csv
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path


def read(path: Path) -> list[dict[str, str]]:
    """The rows of an export, whatever its encoding and the mark between its columns."""
    raw = path.read_bytes()
    for encoding in ("utf-16",) if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "latin-1"):
        try:
            text = raw.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    mark = max(",;\t", key=text.splitlines()[0].count)
    return list(csv.DictReader(text.splitlines(), delimiter=mark))


def joined(
    payments: list[dict[str, str]], predictions: list[dict[str, str]], fraud: str, top: int
) -> list[dict[str, str]]:
    """The payments with the highest scores, each with its score; every prediction must be of a payment."""
    by_id = {payment["id"]: payment for payment in payments}
    ranked = sorted(predictions, key=lambda row: -float(row[f"probability:{fraud}"]))
    return [{"score": row[f"probability:{fraud}"], **by_id[row["id"]]} for row in ranked[:top]]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("payments", type=Path, help="the bank's own export")
    parser.add_argument("predictions", type=Path, help="what 'isthmus score' has written, as CSV")
    parser.add_argument("--fraud", default="1", help="the class that is looked for")
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows = joined(read(asked.payments), read(asked.predictions), asked.fraud, asked.top)
    with open(asked.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} alerts in {asked.out}")


if __name__ == "__main__":
    main()
