"""Over several hosts: one party's refusal ends the run on all of them, which name the party and the rule."""

from pathlib import Path

import pytest

from isthmus.core.errors import HostLost, IsthmusError
from isthmus.core.kinds import Kind
from isthmus.data.write_parts import write_parts
from isthmus.graph.cut import split_graph
from isthmus.launch.host import run_over
from isthmus.launch.start import Start
from isthmus.policy.chain_file import read_chain
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder
from isthmus.wire.distributed import DistributedWire
from tests.helpers.hosts import on_hosts
from tests.helpers.small import owners, small_graph

NAMES = ("alpen", "bern", "chur")


def run_part(host: int, parts: str, out: str) -> tuple[str, type[IsthmusError], dict[str, int]]:
    """Run one host until it ends by an error: what it said, and what its silo had sent by then."""
    data = {"name": parts, "silos": 3}
    recipe = {"method": "sync-sgd+fwd-bwd-le", "data": data, "system": {"hosts": 3}, "model": {"hidden": 4}}
    config = resolve({**recipe, "train": {"epochs": 50}})
    folder = Path(out, str(host))
    folder.mkdir()
    wire = DistributedWire(3, timeout=60)
    with pytest.raises(IsthmusError) as error:
        run_over(wire, Start(config, RunFolder(folder)))
    return str(error.value), error.type, wire.ledger.by_kind()


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("policy", "rule", "steps"),
    [("[leave.embeddings]\nto = []", "[leave.embeddings] to", False), ("bytes = 20_000", "bytes", True)],
)
def test_all_hosts_name_the_party_and_the_rule(policy: str, rule: str, steps: bool, tmp_path: Path) -> None:
    """A kind that is foreseen is refused before the first message; what is counted is refused at its step."""
    parts = tmp_path / "parts"
    write_parts(split_graph(small_graph(30, 140), owners(3), 3, NAMES), parts)
    (parts / "bern" / "policy.toml").write_text(policy)
    told = on_hosts(3, run_part, str(parts), str(tmp_path))
    texts, types, sent = zip(*told, strict=True)
    assert texts[1].startswith("The policy of bern refuses") and texts[1].endswith(f"({rule}).")
    for host in (0, 2):
        assert types[host] is HostLost
        assert "The policy of bern refuses" in texts[host] and f"by its rule {rule}." in texts[host]
        assert "20,000" not in texts[host]  # no value of the policy
    assert all((Kind.EMBEDDINGS in each) == steps for each in sent)
    assert steps or sent[1] == {}
    if steps:
        [*_, last] = read_chain(parts / "bern" / "account.jsonl")
        assert sent[1]["adjoints"] and 10_000 < last["bytes"] <= 20_000
