"""Letters between cells of NVIDIA FLARE in this process, over mutual TLS with certificates that FLARE has made."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install 'isthmus[flare]'")

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.drivers.driver_params import DriverParams

from isthmus.commands.flare.demo import free_port
from isthmus.commands.flare.provision import provision_here
from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.protect.key_agreement import KeyPair
from isthmus.testing.wire_truths import TRUTHS
from isthmus.wire.flare.cell_post import CHANNEL, CellPost
from isthmus.wire.flare.courier import SealedCourier
from isthmus.wire.flare.papers import Papers
from isthmus.wire.flare.seals import Hello, Seals
from isthmus.wire.letters import LetterWire
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire

pytestmark = pytest.mark.extra
NAMES = ("localhost", "bank-a", "bank-b")
MEMBERS = Membership(2, (1, 2), 0, (0, 1))


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return provision_here(tmp_path_factory.mktemp("flare"), free_port(), NAMES[1:], "coordinator@isthmus.local")


def cell_of(kit: Path, name: str, port: int) -> Any:
    """A cell that authenticates by the certificate of a kit; the server's listens."""
    whose = ("SERVER" if name == "localhost" else "CLIENT")  # fmt: skip
    credentials = {
        DriverParams.CA_CERT.value: str(kit / "startup" / "rootCA.pem"),
        DriverParams[f"{whose}_CERT"].value: str(kit / "startup" / f"{whose.lower()}.crt"),
        DriverParams[f"{whose}_KEY"].value: str(kit / "startup" / f"{whose.lower()}.key"),
    }
    fqcn = "server" if name == "localhost" else name
    cell = Cell(
        fqcn=fqcn,
        root_url=f"tcp://localhost:{port}",
        secure=True,
        credentials=credentials,
        auth_identity=name,
        auth_identity_map={"server": "localhost"},
    )
    CoreCell.ALL_CELLS.clear()
    cell.core_cell.ALL_CELLS = {fqcn: cell.core_cell}  # else cells of one process hand letters over without a network
    return cell


@pytest.fixture(scope="module")
def cells(kits: dict[str, Path]) -> Iterator[dict[str, Any]]:
    port = free_port()
    made = {name: cell_of(kits[name], name, port) for name in NAMES}
    for cell in made.values():
        cell.start()
    deadline = time.monotonic() + 20
    while len(made["localhost"].core_cell.agents) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    yield made
    for cell in made.values():
        cell.stop()


@pytest.fixture
def wires(kits: dict[str, Path], cells: dict[str, Any], request: pytest.FixtureRequest) -> list[LetterWire]:
    """A wire for each of three parties, which have just shaken hands for a run of its own."""
    job = request.node.name
    papers = {name: Papers.of_kit(kits[name]) for name in NAMES}
    pairs = {name: KeyPair() for name in NAMES}
    hellos = {name: Hello.signed(papers[name], job, pairs[name], {}) for name in NAMES}
    addresses = {"localhost": "server", "bank-a": "bank-a", "bank-b": "bank-b"}
    made = []
    for host, name in enumerate(NAMES):
        others = {other: hellos[other] for other in NAMES if other != name}
        seals = Seals(pairs[name], hellos[name], others, papers[name].root, job, name)
        post = CellPost(cells[name])
        post.address(addresses)
        made.append(LetterWire(MEMBERS, host, SealedCourier(post, NAMES, host, seals, timeout=30)))
    return made


def live(wires: list[LetterWire], work: Callable[[Wire], Any]) -> list[Any]:
    """What each party's work returns, or the error that it ends with."""
    found: list[Any] = [None] * len(wires)

    def one(host: int) -> None:
        try:
            found[host] = work(wires[host])
        except Exception as error:
            found[host] = error
            wires[host].end(f"host {host} has ended")

    threads = [threading.Thread(target=one, args=(host,)) for host in range(len(wires))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_cells_are_connected_by_mutual_tls(cells: dict[str, Any]) -> None:
    """Each site has one connection, to the server, which has seen its certificate."""
    assert set(cells["localhost"].core_cell.agents) == {"bank-a", "bank-b"}
    for name in NAMES[1:]:
        assert set(cells[name].core_cell.agents) == {"server"}
    connections = cells["localhost"].core_cell.communicator.conn_manager.sfm_conns.values()
    peers = {each.conn.get_conn_properties().get(DriverParams.PEER_CN.value) for each in connections}
    assert {"bank-a", "bank-b"} <= peers


def test_the_contract_of_wires_holds_over_cells(wires: list[LetterWire]) -> None:
    def every(wire: Wire) -> None:
        for truth in TRUTHS:
            truth(wire)

    assert live(wires, every) == [None] * 3


def test_large_letters_are_streamed_and_arrive_whole(wires: list[LetterWire]) -> None:
    size = 750_000  # 6 MB

    def swap(wire: Wire) -> torch.Tensor:
        mine = torch.arange(size, dtype=torch.float64).mul(wire.host)[None]
        return wire.total(Kind.PARAMETERS, mine if wire.mine else mine[:0])

    for found in live(wires, swap):
        assert torch.equal(found, torch.arange(size, dtype=torch.float64) * 3)


def test_a_relay_that_strips_seals_stops_the_run_and_the_claimed_sender_is_named(
    wires: list[LetterWire], cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FLARE's server relays every letter between sites: here it puts plain words of its own in the place of one."""
    relay, forward = cells["localhost"].core_cell, cells["localhost"].core_cell._forward
    stripped: list[bytes] = []

    def strip(endpoint: Any, origin: str, destination: str, msg_type: str, message: Any) -> None:
        if message.get_header(MessageHeaderKey.CHANNEL) == CHANNEL and not stripped:
            stripped.append(bytes(message.payload))
            message.payload = stripped[0][:9] + torch.ones(4).numpy().tobytes()
        forward(endpoint, origin, destination, msg_type, message)

    monkeypatch.setattr(relay, "_forward", strip)

    def post(wire: Wire) -> Any:
        return wire.post(Kind.FEATURES, {(0, 1): torch.zeros(4)} if wire.host == 1 else {})

    found = live(wires, post)
    assert stripped, "nothing went by way of the relay"
    refused = [error for error in found if isinstance(error, PeerError)]
    assert len(refused) == 1 and "In the name of bank-" in str(refused[0])
    assert "a letter that does not bear its seal" in str(refused[0])
