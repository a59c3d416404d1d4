"""Policies are read strictly: what is not understood names file, key and what is allowed."""

from pathlib import Path

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.policy.parties import FILE, account_of, note_on_open, policies_of
from isthmus.policy.reading import parse_policy, preset_names, read_policy
from isthmus.policy.rules import Rules


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rum = 1", "Unknown key 'rum'. Did you mean 'run'? Choose from: account, budget, bytes, leave, run."),
        ("[run]\nmethod = ['fedavg']", "Unknown key in [run] 'method'. Did you mean 'methods'?"),
        ("[run]\nmethods = ['fedavgg']", "Unknown name in run.methods 'fedavgg'. Did you mean 'fedavg'?"),
        ("[run]\nmodels = ['gcnn']", "Unknown name in run.models 'gcnn'. Did you mean 'gcn'?"),
        ("[run]\nmethods = []", "run.methods is []; it must be a list of one or more names"),
        ("[run]\nmodels = 'gcn'", "run.models is 'gcn'; it must be a list of names"),
        ("leave = 3", "leave is 3; it must be a table."),
        ("[leave]\nothers = 'no'", 'leave.others is \'no\'; it must be "allow" or "refuse".'),
        ("[leave.embedings]", "Unknown key in [leave] 'embedings'. Did you mean 'embeddings'?"),
        ("[leave.ids]\nfor = ['server']", "Unknown key in [leave.ids] 'for'. Choose from: protect, smallest_sum, to."),
        ("[leave.ids]\nsmallest_sum = 0", "leave.ids.smallest_sum is 0; it must be a whole number, 1 or more."),
        ("[leave.ids]\nsmallest_sum = true", "leave.ids.smallest_sum is True"),
        ("[leave.ids]\nprotect = {}", "leave.ids.protect is {}; it must be a list of tables"),
        ("[leave.ids]\nprotect = [{}]", "leave.ids.protect[0] is {}; it must be a table of one or more of: bounded,"),
        ("[leave.ids]\nprotect = [{gauss = {}}]", "Unknown key in [leave.ids.protect[0]] 'gauss'. Did you mean"),
        (
            "[leave.ids]\nprotect = [{gaussian = {sigma = 'a'}}]",
            "leave.ids.protect[0].gaussian.sigma is 'a'; it must be a finite number, 0 or more.",
        ),
        ("[leave.ids]\nprotect = [{shares = {clip = 1}}]", "'clip'. Choose from: threshold."),
        (
            "[budget.person]\nepsilon = 1",
            "Unknown key in [budget] 'person'. Choose from: edge, label, node, row, silo.",
        ),
        ("[budget.row]\nepsilon = 1", "budget.row.delta is missing; it must be a number: a budget names epsilon and"),
        ("[budget.row]\nepsilon = inf\ndelta = 1e-5", "budget.row.epsilon is inf; it must be a finite number"),
        ("[budget.row]\nepsilon = 1\ndelta = 1", "budget.row.delta is 1.0; it must be a number between 0 and 1"),
        ("bytes = -1", "bytes is -1; it must be a whole number, 0 or more."),
        ("account = 3", "account is 3; it must be the name of a file."),
        ("[run", "is not valid TOML"),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, says: str) -> None:
    with pytest.raises(IsthmusError) as error:
        parse_policy(text, "my/policy.toml")
    assert str(error.value).startswith("Policy 'my/policy.toml'") and says in str(error.value)


def test_a_policy_that_does_not_exist_names_those_to_start_from(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="no policy file '.*none.toml'.*bank, open, strict"):
        read_policy(str(tmp_path / "none.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(IsthmusError, match="cannot be read as text"):
        read_policy(str(tmp_path / "binary.toml"))


def test_policies_to_start_from() -> None:
    assert preset_names() == ["bank", "open", "strict"]
    bank, nothing, strict = map(read_policy, preset_names())
    assert nothing.open and not bank.open and not strict.open
    assert Kind.FEATURES not in bank.leave and Kind.EMBEDDINGS not in strict.leave
    assert parse_policy("", "empty").open


def test_a_file_in_the_folder_of_a_part_holds_for_its_silo(tmp_path: Path) -> None:
    names = {0: "a", 1: "b"}
    for name in names.values():
        (tmp_path / name).mkdir()
    (tmp_path / "a" / FILE).write_text('[leave]\nothers = "refuse"')
    own, other = policies_of(names, tmp_path, "").values()
    assert own.source == str(tmp_path / "a" / FILE) and not own.open and other == Rules()
    assert [each.source for each in policies_of(names, tmp_path, "bank").values()] == [own.source, "bank"]
    assert [each.source for each in policies_of(names, None, "").values()] == ["open", "open"]
    assert "folders of 1 of 2 silos" in note_on_open(names, tmp_path, "") and not note_on_open(names, tmp_path, "bank")


def test_where_an_account_lies(tmp_path: Path) -> None:
    rules, named = Rules("p/policy.toml"), Rules("p/policy.toml", account="books")
    assert account_of(rules, "a", Path("parts"), Path("runs/x")) == Path("parts/a/account.jsonl")
    assert account_of(rules, "a", None, tmp_path / "x") == tmp_path / "accounts" / "a.jsonl"
    assert account_of(named, "a", Path("parts"), Path("runs/x")) == Path("p/books/a.jsonl")
