"""Steps with values that are not finite change no weight; they are counted, and too many in a row end the training."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.train.small import config

from nerfleet.data.scene import Scene
from nerfleet.errors import NerfleetError
from nerfleet.kernels.control.op import STATE_STEP
from nerfleet.train.step import TrainStep
from nerfleet.train.trainer import Progress, train

pytestmark = pytest.mark.usefixtures("first_grid_remembered")
Poison = Callable[[Callable[[int], bool]], None]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    """Makes one weight NaN while the chosen steps look at it: NaN colours, a NaN loss and NaN gradients."""

    def install(chosen: Callable[[int], bool]) -> None:
        original = TrainStep.forward_backward

        def forward_backward(self: TrainStep) -> None:
            weight = float(self.mlp.weights[0])
            if chosen(int(self.control.state[STATE_STEP])):
                self.mlp.weights[0] = torch.nan
            original(self)
            self.mlp.weights[0] = weight

        monkeypatch.setattr(TrainStep, "forward_backward", forward_backward)

    return install


def test_a_step_that_is_not_finite_changes_nothing(poison: Poison, monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    masters: list[torch.Tensor] = []
    update = TrainStep.update

    def watched(self: TrainStep) -> None:
        update(self)
        masters.append(torch.cat([self.mlp.master, self.table.master]))

    monkeypatch.setattr(TrainStep, "update", watched)
    poison(lambda step: step in (3, 4))
    result = train(scene, config(steps=8), device="cpu")
    del masters[0]  # the step that compiles
    assert result.skipped_steps == 2
    assert torch.equal(masters[2], masters[4])
    assert not torch.equal(masters[1], masters[2])
    assert not torch.equal(masters[4], masters[5])
    assert bool(torch.isfinite(masters[-1]).all())
    assert bool(torch.isfinite(result.model.mlp).all())
    assert result.history.losses[7] < 1
    assert result.last_step is not None
    assert not result.last_step.skipped


def test_skipped_steps_are_shown_and_the_estimate_stays_a_number(poison: Poison, scene: Scene) -> None:
    poison(lambda step: step >= 2)
    shown: list[Progress] = []
    train(scene, config(steps=6), device="cpu", on_progress=shown.append)
    assert shown[-1].skipped_steps == 4
    assert 3 < shown[-1].psnr < 60


def test_too_many_in_a_row_end_the_training(poison: Poison, scene: Scene) -> None:
    poison(lambda step: step >= 5)
    with pytest.raises(NerfleetError) as error:
        train(scene, config(steps=100, max_skipped_steps=10), device="cpu")
    assert "11 steps in a row were not finite: lower the learning rate" in str(error.value)
    assert "\n" not in str(error.value)


def test_skipped_steps_apart_are_no_reason_to_end(poison: Poison, scene: Scene) -> None:
    poison(lambda step: step % 3 != 0)
    result = train(scene, config(steps=15, max_skipped_steps=2), device="cpu")
    assert (result.steps, result.skipped_steps) == (15, 10)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_single_gradients_that_are_not_finite_leave_their_weights_alone(value: float, monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    before: list[float] = []
    update = TrainStep.update

    def injected(self: TrainStep) -> None:
        before.append(float(self.mlp.master[5]))
        self.mlp.gradient[5] = value
        self.table.gradient[7] = value
        update(self)

    monkeypatch.setattr(TrainStep, "update", injected)
    result = train(scene, config(steps=4), device="cpu")
    assert len(set(before)) == 1
    assert bool(torch.isfinite(result.model.mlp).all())
    assert bool(torch.isfinite(result.model.table).all())
