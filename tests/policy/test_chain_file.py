"""The account's file: any byte that changes shows, and so does what is cut off."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import IsthmusError
from isthmus.policy.chain_file import appending, read_chain


def written(path: Path, lines: int = 4) -> Path:
    for number in range(lines):
        with appending(path) as chain:
            chain.append([{"what": "release", "n": number, "name": "bänk"}])
    return path


WHOLE = written(Path(tempfile.mkdtemp()) / "account.jsonl")
BYTES = WHOLE.read_bytes()
HEAD = WHOLE.with_name("account.jsonl.head").read_bytes()


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(BYTES) + len(HEAD) - 1), change=st.integers(1, 255))
def test_any_byte_that_changes_shows(at: int, change: int) -> None:
    """In the chain, and in the file that counts its lines."""
    with tempfile.TemporaryDirectory() as folder:
        path, both = Path(folder) / "account.jsonl", bytearray(BYTES + HEAD)
        both[at] ^= change
        path.write_bytes(both[: len(BYTES)])
        path.with_name("account.jsonl.head").write_bytes(both[len(BYTES) :])
        with pytest.raises(
            IsthmusError, match=r"Account .* is damaged: line \d|counts the lines of account .* damaged"
        ):
            read_chain(path)


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_what_is_cut_off_shows_and_the_line_is_named(cut: int, tmp_path: Path) -> None:
    path = written(tmp_path / "account.jsonl")
    path.write_bytes(path.read_bytes()[:-cut])
    lines = path.read_bytes().count(b"\n")
    with pytest.raises(IsthmusError, match=f"line {lines + 1} is cut off or missing: 4 lines were written"):
        read_chain(path)


def test_a_line_that_is_taken_out_or_put_twice_shows(tmp_path: Path) -> None:
    path = written(tmp_path / "account.jsonl")
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    for number, lines in ((2, [first, *rest]), (3, [first, second, second, *rest]), (1, [second, first, *rest])):
        path.write_bytes(b"".join(lines))
        with pytest.raises(IsthmusError, match=f"line {number} is not what was written"):
            read_chain(path)


def test_a_file_that_is_missing_shows(tmp_path: Path) -> None:
    path = written(tmp_path / "account.jsonl")
    head = path.with_name("account.jsonl.head")
    kept = head.read_bytes()
    head.unlink()
    with pytest.raises(IsthmusError, match="which counts the lines of account .* is missing"):
        read_chain(path)
    head.write_bytes(kept)
    path.unlink()
    with pytest.raises(IsthmusError, match="is missing, but .* counts its lines"), appending(path):
        pass


def test_a_booking_that_a_kill_cut_off_never_counted_and_one_that_was_written_stands(tmp_path: Path) -> None:
    path = written(tmp_path / "account.jsonl", 3)
    head = path.with_name("account.jsonl.head")
    kept, short = head.read_bytes(), path.read_bytes()
    with appending(path) as chain:
        chain.append([{"what": "release", "n": 3}])
    head.write_bytes(kept)  # killed after the line, before its head
    assert [line["n"] for line in read_chain(path)] == [0, 1, 2, 3]
    path.write_bytes(short + b'{"what": "rel')  # killed within the line
    with appending(path) as chain:
        assert [line["n"] for line in chain.lines] == [0, 1, 2]
        chain.append([{"what": "release", "n": 4}])
    assert [line["n"] for line in read_chain(path)] == [0, 1, 2, 4]


def test_nobody_else_reads_it_and_no_two_runs_write_it(tmp_path: Path) -> None:
    path = tmp_path / "books" / "account.jsonl"
    with appending(path) as chain:
        chain.append([{"what": "run"}])
        with pytest.raises(IsthmusError, match="in use by another run of this party"), appending(path):
            pass
    for file in (path, path.with_name("account.jsonl.head")):
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    with pytest.raises(IsthmusError, match="There is no account"):
        read_chain(tmp_path / "none.jsonl")
