"""The contract of wires: subclass ``WireContract`` in the tests of a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isthmus.testing import wire_truths as truths
from isthmus.wire.wire import Wire


class WireContract:
    """Properties of a wire: subclass it; ``part(silos)`` makes one whose hosts are all in this process.

    For hosts in processes of their own override ``everywhere`` (see ``tests/wire/test_contract_wire.py``).
    """

    silos = 4
    part: Callable[[int], Wire]

    def everywhere(self, truth: Callable[[Wire], Any]) -> list[Any]:
        """Let every host of a fresh wire call ``truth``; returns what each host's call returned."""
        return [truth(self.part(self.silos))]

    def test_a_total_is_the_sum_in_silo_order(self) -> None:
        """Totals do not depend on which host carries which silo, to the last bit."""
        self.everywhere(truths.a_total_is_the_sum_in_silo_order)

    def test_a_total_has_an_adjoint(self) -> None:
        """The derivative of all hosts' losses by a total reaches every silo that is in it."""
        self.everywhere(truths.a_total_has_an_adjoint)

    def test_shared_rows_are_known_to_all(self) -> None:
        """Rows that silos share arrive on every host, in the order of silos."""
        self.everywhere(truths.shared_rows_are_known_to_all)

    def test_the_server_alone_judges(self) -> None:
        """The server hears all silos in order; ``settle`` tells all its verdict, ``consult`` each silo its answer."""
        judged = self.everywhere(truths.the_server_alone_judges)
        assert sum(judged) == 2, f"the server has judged {sum(judged)} times, on hosts {judged}"

    def test_a_letter_is_a_copy(self) -> None:
        """A receiver does not see what the sender, or another receiver, writes into its tensor later."""
        self.everywhere(truths.a_letter_is_a_copy)

    def test_rows_arrive_where_they_are_held(self) -> None:
        """Every halo row becomes that of its owner; asking and offering name the same rows."""
        self.everywhere(truths.rows_arrive_where_they_are_held)

    def test_the_way_back_is_the_transpose(self) -> None:
        """<A x, y> = <x, A' y> for random x and y, summed over all hosts."""
        self.everywhere(truths.the_way_back_is_the_transpose)

    def test_partials_are_merged_by_the_server(self) -> None:
        """The server merges partials to sums and maxima over all silos; derivatives return to the partials."""
        self.everywhere(truths.partials_are_merged_by_the_server)

    def test_every_byte_is_in_the_ledger(self) -> None:
        """Bytes of letters, totals, shared rows, ids, rows and adjoints are counted once, over all hosts together."""
        found = self.everywhere(truths.bytes_and_their_expectation)
        kinds = {kind for told, _ in found for kind in told} | set(found[0][1])
        total = {kind: sum(told.get(kind, 0) for told, _ in found) for kind in kinds}
        assert total == found[0][1], f"the ledgers have {total}; what crossed is {found[0][1]}"
