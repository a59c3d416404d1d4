"""How long a run will take is said once, after its first steps, with what would make it shorter."""

from collections.abc import Iterator

from isthmus.launch.forecast import LengthForecast
from isthmus.runs.config import resolve
from isthmus.runs.smaller import advice, smaller_settings
from isthmus.train.progress import Progress
from isthmus.train.watcher import Watcher


def said_at(seconds: float, steps: int, model: str = "multi-pna") -> list[str]:
    """What is said of a run whose clock shows ``seconds`` between the two readings, after the first and third step."""
    clock: Iterator[float] = (number * seconds for number in range(100))
    said: list[str] = []
    config = resolve({"data": {"name": "blocks"}, "model": {"name": model}})
    watcher = LengthForecast(config, Watcher(), said.append, lambda: next(clock))
    progress = Progress(epochs=steps // 10, steps_per_epoch=10, last_step=steps)
    for _ in range(10):
        progress.step += 1
        watcher.on_step(progress, 0.5)
    return said


def test_a_short_run_needs_no_forecast() -> None:
    assert said_at(0.01, 1000) == []


def test_a_run_of_minutes_says_so_once() -> None:
    [told] = said_at(1.0, 1000)
    assert "for 1,000 steps, before validations" in told and "Smaller settings" not in told


def test_a_run_of_hours_is_offered_smaller_settings() -> None:
    [told] = said_at(20.0, 1000)
    assert "Smaller settings: --epochs 20, --set train.evaluate_every=5" in told


def test_what_is_offered_is_smaller_than_what_was_asked_for() -> None:
    small = {"epochs": 5, "evaluate_every": 5, "batch": 2048}
    config = resolve({"data": {"name": "blocks"}, "model": {"name": "sage", "hidden": 16}, "train": small})
    assert smaller_settings(config) == [] and advice(1e6, config) == ""
    large = resolve({"data": {"name": "patterns"}, "model": {"name": "multi-pna"}})
    assert {"--set model.layers=2", "--set train.batch=1024"} <= set(smaller_settings(large))
    assert advice(3000.0, large) == ""


def test_defaults_of_multi_pna_fit_transactions_and_patterns() -> None:
    model = {"name": "multi-pna"}
    banks, patterns = (resolve({"data": {"name": name}, "model": model}) for name in ("aml", "patterns"))
    assert (banks.model.layers, banks.train.batch) == (2, 1024)
    assert (patterns.model.layers, patterns.train.batch, patterns.train.lr) == (6, 32, 1e-3)
