"""A replay releases what the run released; the adversary knows what was shared or sent, and nothing that was kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from isthmus.audit.audit import audit_run
from isthmus.audit.journal import Journal
from isthmus.audit.known_parameters import known_from, known_now, of_others
from isthmus.audit.replay import Heard, boundary_rows, open_audit, replay, watched_rows
from isthmus.audit.request import AuditRequest
from isthmus.audit.watching import LineWatch, Watch
from isthmus.core.kinds import Kind
from isthmus.graph.cut import split_graph
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.protect.releases import COUNTS
from isthmus.runs.folder import RunFolder
from isthmus.testing.runs import open_of, owners, small_graph, small_silos, walk
from isthmus.train.loop import end_round
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from tests.helpers.command import succeed

SMALL = (
    "run", "--data", "blocks", "--silos", 3, "--split", "random", "--model", "sage", "--epochs", 3, "--set",
    "data.nodes=48", "--set", "data.degree=4", "--set", "data.features=6", "--set", "data.classes=3", "--set",
    "model.hidden=8",
)  # fmt: skip
ROUNDS = ("--set", "sync.local_steps=1")
Run = Callable[..., tuple[RunFolder, Heard]]


@pytest.fixture(autouse=True)
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than training on such graphs."""
    monkeypatch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)


@pytest.fixture
def replayed(tmp_path: Path) -> Run:
    """A run, and its replay."""

    def make(*options: str | int, epochs: int | None = None) -> tuple[RunFolder, Heard]:
        succeed(*SMALL, *options, "--out", tmp_path / "run")
        folder = RunFolder.open(tmp_path / "run")
        request = AuditRequest(epochs=epochs)
        return folder, replay(open_audit(folder), folder, request, lambda training, journal: None, Watcher())

    return make


@pytest.mark.parametrize("method", ["sync-sgd+fwd-bwd-le", "ce-fedgnn", "optimes", "fedgcn", "swift-fedgnn"])
def test_a_replay_sends_what_the_run_sent(method: str, replayed: Run) -> None:
    folder, heard = replayed("--method", method, *(("--model", "gcn") if method == "fedgcn" else ()))
    sent = {kind: size for kind, size in folder.metrics["bytes"].items() if kind not in ("total", "metrics", "ledger")}
    told = heard.training.wire.ledger.by_kind()
    assert {kind: told[kind] for kind in sent} == sent
    assert heard.notes == ()  # nor do its last rows differ


def test_every_release_of_every_row_is_heard(replayed: Run) -> None:
    _, heard = replayed("--method", "ce-fedgnn", "--set", "train.batch=4", "--set", "sync.local_steps=2")
    for layer in (0, 1):
        counts = heard.journal.get(COUNTS, Kind.EMBEDDINGS, layer).double()
        assert torch.equal(heard.journal.embeddings[layer].counts, counts)
        history = heard.journal.histories[layer]
        assert torch.equal(history.counts, counts[heard.journal.watched]) and int(history.counts.max()) > 3
        total = torch.stack([block.rows for block in history.blocks]).sum(0)
        assert torch.allclose(total, heard.journal.embeddings[layer].rows[heard.journal.watched])


def test_noise_from_secrets_is_drawn_anew_and_the_note_says_so(replayed: Run) -> None:
    _, heard = replayed("--method", "ce-fedgnn", "--set", "protect.sigma=1", "--set", "protect.secrets=random")
    assert len(heard.notes) == 1 and "secrets that nobody kept" in heard.notes[0]


def test_noise_from_the_seed_is_the_noise_of_the_run(replayed: Run) -> None:
    _, heard = replayed("--method", "ce-fedgnn", "--set", "protect.sigma=1", "--set", "protect.clip=2")
    assert heard.notes == ()


def test_fewer_epochs_are_said(replayed: Run) -> None:
    _, heard = replayed("--method", "sync-sgd+fwd-bwd-le", epochs=1)
    assert heard.notes == ("Releases are those of the first 1 epoch alone.",)
    assert set(heard.journal.histories[0].counts.tolist()) == {4.0}


@pytest.mark.hosts
def test_a_run_on_several_hosts_is_replayed_in_one_process(tmp_path: Path) -> None:
    succeed(*SMALL, "--method", "ce-fedgnn", "--hosts", 3, "--out", tmp_path / "run")
    audit = audit_run(str(tmp_path / "run"), AuditRequest(targets=8, sigmas=(0.0,), deepest=0), Watch())
    assert audit.error is not None and audit.error < 1e-6 and audit.notes == ()


# ---- what the adversary knows


def opened(method: str, **parts: dict[str, object]) -> Training:
    graph = small_graph(30, 140)
    return open_of(compose(catalogue.get(method), parts), split_graph(graph, owners(3), 3), epochs=2)


def test_what_all_silos_hold_alike_is_known_at_once_and_what_they_hold_apart_when_it_is_sent() -> None:
    run = opened("fedavg")
    sets, shares = run.learner.classifier.sets, run.stage.phase.sync.shares
    start = known_now(sets, shares)
    assert start is not None and torch.equal(start["head.weight"], sets.everything()["head.weight"])
    next(walk(run, rounds=False))
    assert known_now(sets, shares) is None
    sent = sets.flat(sets.names())
    known = known_from(sent, sets, shares)
    assert known is not None and all(torch.equal(known[n], sets.everything()[n]) for n in sets.names())
    assert known_from(sent[:, 1:], sets, shares) is None  # that is of another model
    end_round(run.stage)
    assert known_now(sets, shares) is not None


def test_what_a_silo_keeps_is_never_known() -> None:
    run = opened("fedavg", sync={"private": ["embed"]})
    sets, shares = run.learner.classifier.sets, run.stage.phase.sync.shares
    next(walk(run, rounds=False))
    shared = [name for name in sets.names() if shares(name)]
    known = known_from(sets.flat(shared), sets, shares)
    assert known is not None
    weight = sets.everything()["enter.weight"]
    assert torch.allclose(known["enter.weight"][0], (weight[1] + weight[2]) / 2)
    alone = opened("local")
    next(walk(alone, rounds=False))
    guessed = known_now(alone.learner.classifier.sets, alone.stage.phase.sync.shares)
    live = alone.learner.classifier.sets.everything()
    assert guessed is not None
    assert all(torch.allclose(guessed[n], of_others(live[n])) for n in ("head.weight", "enter.weight"))
    assert not torch.allclose(guessed["head.weight"], live["head.weight"])


def test_rows_released_before_parameters_are_averaged_belong_to_what_each_silo_sent(replayed: Run) -> None:
    _, heard = replayed("--method", "ce-fedgnn", "--set", "exchange.scored_with=released", *ROUNDS)
    history = heard.journal.histories[0]
    weights = [block.mean_parameters()["enter.weight"] for block in history.blocks]
    assert len(weights) == 3 and all(len(each) == 3 for each in weights)
    assert not torch.allclose(weights[0][0], weights[0][1])  # each silo's own, as it sent them


# ---- whose releases are followed


def test_boundary_rows_are_owned_and_in_somebodys_halo() -> None:
    silos = small_silos(3, 18)
    far = {node for silo in silos for node in silo.halo_ids.tolist()}
    first, expected = 0, list[int]()
    for silo in silos:
        expected += [first + i for i, node in enumerate(silo.ids.tolist()) if node in far]
        first += silo.n + silo.h
    assert boundary_rows(silos).tolist() == expected
    watched = watched_rows(silos, 2, seed=0)
    assert sorted(watched.tolist()) == expected and watched.tolist() != expected
    assert torch.equal(watched_rows(silos, 2, seed=0), watched)


def test_a_journal_keeps_one_row_for_all_receivers() -> None:
    journal = Journal(torch.tensor([1]))
    journal.open(3)
    totals = journal._totals(journal.embeddings, 0, torch.zeros(1, 2))
    totals.add(torch.tensor([1, 1]), torch.tensor([[1.0, 2.0], [1.0, 2.0]]))
    totals.add_each(torch.tensor([2, 2]), torch.tensor([[1.0, 2.0], [1.0, 2.0]]))
    assert totals.counts.tolist() == [0, 1, 2] and totals.mean.tolist() == [[0, 0], [1, 2], [1, 2]]


# ---- how it goes


def test_piped_progress_is_silent_at_first_then_about_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    watch = LineWatch()
    watch.begin("attack, targets", 100)
    watch.advance(50)
    assert capsys.readouterr().err == ""
    watch.begun -= 10
    watch.begin("attack, targets", 100)
    for _ in range(100):
        watch.advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11 and lines[-1] == "audit: attack, targets 100/100"


def test_an_audit_as_json_prints_nothing_else(tmp_path: Path) -> None:
    succeed(*SMALL, "--method", "fedavg", "--set", "score=own", "--out", tmp_path / "run")
    assert "attacks" in json.loads(succeed("audit", tmp_path / "run", "--json").out)
