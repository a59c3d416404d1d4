"""One host's side of a run: the federation, the models that learn, and the current phase."""

from __future__ import annotations

from dataclasses import replace

import torch

from isthmus.core.errors import HostLost, IsthmusError
from isthmus.core.kinds import Kind, Purpose
from isthmus.core.name_lists import some_of
from isthmus.engine.absence import DROP, READ_AS, STOPPING, AbsenceConfig
from isthmus.engine.layout import Layout
from isthmus.engine.learner import build_learner
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import Federation
from isthmus.graph.graph import Schema
from isthmus.methods.method import Method
from isthmus.methods.phase import Phase
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.train.frozen import Frozen
from isthmus.train.metrics import led_by
from isthmus.train.progress import Progress
from isthmus.train.stage import Stage, lay_out_phase, open_stage, selects_alone


class Training:
    """What the loop works on. Parts of methods never see it: they are opened with a :class:`~isthmus.engine.site.Site`.

    ``stage`` is the current phase; the learner and the progress go on through all phases.
    """

    def __init__(
        self,
        federation: Federation,
        method: Method,
        model: ModelConfig,
        train: TrainConfig,
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        absence: AbsenceConfig = STOPPING,
    ) -> None:
        train.check(model.layers)
        method.check_absence(absence)
        absence.check_silos(federation.wire.silos, federation.wire.hosts)
        method.check(model, train)
        method.check_level(federation.wire.level.name, train.pooled)
        federation.wire.protect.check_silos(len(federation.wire.members.present))
        _check_lists(train, federation.schema)
        led_by(train.metric, federation.schema)  # one that does not exist is refused now, not at the first validation
        self.federation, self.method, self.train, self.seed = federation, method, train, seed
        self.wire, self.device, self.dtype, self.absence = federation.wire, torch.device(device), dtype, absence
        self.ports = model.ports > 0
        self.phases = tuple(phase.with_batches(train) for phase in method.phases)
        sizes = [silo.n + silo.h for silo in federation.silos]
        self.wire.releases.sizes = tuple(sizes)
        self.wire.releases.open(sum(sizes))
        federation.drawn.open(sizes, train.floor)
        federation.learnt.open(sizes)
        self.wire.ledger.models = ("", *method.models)
        self.progress = Progress()
        self.frozen: Frozen | None = None  # what absent silos of this process have for themselves
        first = self._lay_out(self.phases[0])
        shared = all(phase.sync.lockstep and not phase.sync.separates for phase in self.phases)
        self.learner = build_learner(
            method.models, federation.schema, model, train, seed, self.wire.mine,
            shared and not self.wire.protect.separates(Kind.GRADIENTS), self.phases[-1].sync.shares,
            self.device, dtype,
        )  # fmt: skip
        if unread := _unread_edge_features(federation.schema, model):
            federation.note(unread)
        if idle := _idle_patience(train, self.phases, self.wire.silos):
            federation.note(idle)
        self.stage = self._stage(first)

    def _stage(self, layout: Layout | None = None) -> Stage:
        """The stage of the phase that ``progress`` has reached."""
        phase = self.phases[self.progress.phase]
        layout = layout or self._lay_out(phase)
        last = self.progress.phase == len(self.phases) - 1
        scores = self.method.scores if last else ("trained",)
        given = self.train, self.seed, self.dtype, scores, self.progress, self.absence
        stage = open_stage(phase, layout, self.learner, *given)
        self.progress.last_step, self.progress.steps_per_epoch = stage.last_step, stage.steps_per_epoch
        self.progress.epochs = stage.last_epoch if last else self.train.total_epochs(stage.steps_per_epoch)
        return stage

    def _lay_out(self, phase: Phase) -> Layout:
        return lay_out_phase(phase, self.federation, self.device, self.dtype, self.ports)

    def go_on(self, phase: int) -> None:
        """Go on to the next phase, to which the current one hands over what it has found; all parties must be there."""
        if not self.wire.members.complete:
            gone = [self.wire.party(i) for i in range(self.wire.silos) if i not in self.wire.members.present]
            raise HostLost(
                f"Phase '{self.phases[phase].name}' begins with all parties, but {some_of(gone)} "
                "was lost; the last checkpoint is intact, continue with --resume."
            )
        with self.wire.ledger.during(Purpose.HANDOVER):
            handed = self.stage.exchange.hand_over()
            self.enter(phase)
        self.stage.inherit(handed)

    def enter(self, phase: int) -> None:
        """Open a phase at the current step, without what the phase before hands over (:meth:`go_on` adds that)."""
        self.progress.phase = phase
        self.progress.round_starts = True
        self.stage = self._stage()

    @property
    def phase_over(self) -> bool:
        """Whether the phase has ended: all its epochs, or at the start of one, the patience with validations."""
        stage, progress = self.stage, self.progress
        if progress.epoch >= stage.last_epoch:
            return True
        return stage.epoch_over(progress.step) and stage.best.exhausted(self.train.patience)

    @property
    def over(self) -> bool:
        """Whether the last phase has ended."""
        return self.progress.phase == len(self.phases) - 1 and self.phase_over

    def count_round(self) -> None:
        """Count the round that has ended, and for whom it was missed, whose own parameters stand still."""
        self.progress.round += 1
        if self.frozen is not None:
            self.frozen.put_back(self.learner, self.stage)
        for silo in range(self.wire.silos):
            if silo not in self.wire.members.present:
                self.progress.missed[silo] = self.progress.missed.get(silo, 0) + 1

    def note_missed(self) -> None:
        """Say in notes how many rounds silos have missed, and what was read in the place of their rows."""
        spec = self.stage.exchange.spec
        how = str(getattr(spec, "absent", DROP if spec.leaves_out else ""))
        for silo, count in self.progress.missed.items():
            read = f" {READ_AS[how]}" if how else ""
            self.federation.note(
                f"{self.wire.party(silo)} missed {count:,} of {self.progress.round:,} rounds "
                f"(federation.absent=stale): sums were those of the others.{read}"
            )

    def stop_after(self, steps: int) -> None:
        """Let the current phase end after ``steps`` steps, and never earlier."""
        stage = self.stage
        self.train = replace(self.train, patience=0)
        stage.last_step = self.progress.last_step = stage.first_step + steps
        stage.last_epoch = self.progress.epochs = stage.first_epoch + -(-steps // stage.steps_per_epoch)

    @property
    def phase_name(self) -> str:
        """The name of the current phase; empty in a method of one phase."""
        return self.stage.phase.name if len(self.phases) > 1 else ""


def _unread_edge_features(schema: Schema, model: ModelConfig) -> str:
    """A sentence where edges have features and no layer of the model reads them; empty otherwise."""
    if not schema.edge_features or LAYERS[model.name].uses_edges:
        return ""
    names = ", ".join(schema.edge_feature_names[:8]) or f"{schema.edge_features} columns"
    more = ", ..." if len(schema.edge_feature_names) > 8 else ""
    who = "nothing reads" if schema.target == "node" else "only the head reads"
    readers = ", ".join(name for name, layer in LAYERS.items() if layer.uses_edges)
    return f"Edge features ({names}{more}): {who} them, since layers of {model.name} do not; those of {readers} do."


def _idle_patience(train: TrainConfig, phases: tuple[Phase, ...], silos: int) -> str:
    """A sentence where ``train.patience`` ends nothing, since silos select for themselves; empty otherwise."""
    alone = [phase.name for phase in phases if selects_alone(phase, silos)]
    if not train.patience or not alone:
        return ""
    what = "this run" if len(alone) == len(phases) else f"phase {some_of(alone)}"
    return (
        f"train.patience never ends {what}: each silo selects a model for itself, and training ends early only where "
        "silos select together."
    )


def _check_lists(train: TrainConfig, schema: Schema) -> None:
    """Refuse ``train.draws=refill`` (edge-LDP) where labels lie on edges, which training then reads anyway."""
    if train.draws == "refill" and schema.target == "edge":
        raise IsthmusError(
            "train.draws=refill counts what draws show of neighbour lists, but labels lie on edges here, so that "
            "training reads edges whether drawn or not; use train.draws=distinct."
        )
