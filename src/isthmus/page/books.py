"""The ledger of any run as one table: of a run that goes on, of one that has ended, and summed over seeds."""

from __future__ import annotations

import threading
import tomllib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import IsthmusError
from isthmus.page.live_ledger import MOST, read_live
from isthmus.page.shelf import bounded, stamp
from isthmus.page.shown_runs import seed_folders
from isthmus.runs.status import is_held

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = 4  # ledgers that stay in memory


@dataclass(frozen=True)
class Book:
    """A run's ledger with sentences on what it covers; ``table`` is None where nothing is counted yet."""

    table: pa.Table | None
    notes: tuple[str, ...]


class Books:
    """Ledgers of runs, of which those that were read last stay in memory until their files change."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, tuple[tuple[Any, ...], Book]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: Path) -> Book:
        """The ledger of a run; raises in words where its files are damaged."""
        signs = book_signs(run)
        with self._lock:
            known = self._known.get(run)
            if known is None or known[0] != signs:
                known = signs, _read(run)
                self._known[run] = known
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(run)
            return known[1]


def book_signs(run: Path) -> tuple[Any, ...]:
    """What changes when the ledger of a run does."""
    parts = seed_folders(run) or [run]
    files = [part / name for part in parts for name in ("ledger.parquet", "checkpoint/ledger-host-0.bin")]
    return (is_held(run), *map(stamp, files))


def _read(run: Path) -> Book:
    import pyarrow as pa

    seeds = seed_folders(run)
    read = [_part(part, is_held(run)) for part in seeds or [run]]
    tables = [book.table for book in read if book.table is not None]
    notes = list(dict.fromkeys(note for book in read for note in book.notes))
    notes += [f"Sums over {len(seeds)} seeds."] if len(seeds) > 1 else []
    return Book(pa.concat_tables(tables) if tables else None, tuple(notes))


def _part(run: Path, held: bool) -> Book:
    """The ledger of a run with one seed: of its checkpoints while it goes on, else as its end has written it."""
    import pyarrow.parquet as pq

    ended = (run / "metrics.json").is_file() and (run / "ledger.parquet").is_file()
    if ended and not (held and (run / "checkpoint").is_dir() and _newer(run)):
        try:
            return Book(pq.read_table(bounded(run / "ledger.parquet", MOST)), ())
        except (ValueError, OSError) as error:
            raise IsthmusError(f"'ledger.parquet' is damaged, or being written ({type(error).__name__}).") from error
    try:
        config = tomllib.loads(bounded(run / "config.toml", 1_000_000).read_text(encoding="utf-8"))
        silos = 1 if config["method"] == "centralised" else int(config["data"]["silos"])
        table, note = read_live(run, silos, int(config.get("system", {}).get("hosts", 1)))
    except PermissionError:
        return Book(None, ("The checkpoints of this run are another user's, who alone may read what they count.",))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise IsthmusError(
            f"What this run has counted so far cannot be read ({type(error).__name__}); it may be written just now."
        ) from error
    return Book(table, (note,))


def _newer(run: Path) -> bool:
    """Whether a checkpoint was written after the ledger of an earlier end: the run has been taken up again."""
    return stamp(run / "checkpoint" / "ledger-host-0.bin")[:1] > stamp(run / "ledger.parquet")[:1]
