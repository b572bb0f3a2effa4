"""DQN with double Q-learning, Huber loss, Adam and a target network.

For so small a network, most of the time would be the overhead of a framework, so the gradient is written by hand, in
`kernels/network.py`. Tests compare it and Adam with PyTorch. All parameters are one vector, and the layers are views of
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy

from fedqhd import kernels
from fedqhd.agents.learner import Learner
from fedqhd.agents.memory import Replay
from fedqhd.agents.model import MLP
from fedqhd.agents.settings import Exploration, Minibatches, StepDecay
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Model, Payload, Transition
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.envs.public import Public


@dataclass(frozen=True)
class WidthSettings(Settings):
    """The size of the networks."""

    title: ClassVar[str] = "DQN"

    widths: tuple[int, ...] = setting(
        (128,), "widths of both hidden layers, one for all clients (homogeneous) or cycled (heterogeneous)", cycled=True
    )

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(len(c.widths) > 0, "widths", "give widths of at least 1")


@dataclass(frozen=True)
class FitSettings(Settings):
    """How a network is trained on a teacher."""

    title: ClassVar[str] = "DQN: distillation"

    fit_steps: int = setting(100, "steps of Adam on each teacher", at_least=0)
    fit_batch: int = setting(64, "anchors in each step of Adam on a teacher")


@dataclass(frozen=True)
class DQNSettings(FitSettings, Minibatches, StepDecay, Exploration):
    """The settings of DQN clients."""

    title: ClassVar[str] = "DQN"

    lr: float = setting(1e-3, "step size of Adam", above=0)
    gradient_steps: int = setting(1, "minibatches in each update")
    learning_starts: int = setting(1000, "steps before the first update", at_least=0)
    target_steps: int = setting(500, "steps between target syncs")
    target_tau: float = setting(1.0, "fraction of the way that the target moves at a sync", above=0, at_most=1)
    huber: float = setting(1.0, "TD error beyond which the loss is linear", above=0)
    hold: int = setting(1, "steps for which an exploratory action is repeated")


def layers_of(theta: Array, sizes: Sequence[int]) -> list[Array]:
    """Return views of theta as the weights (out, in) and biases (out,) of each layer."""
    views, at = [], 0
    for fan_in, fan_out in pairwise(sizes):
        for shape in ((fan_out, fan_in), (fan_out,)):
            end = at + int(np.prod(shape))
            views.append(theta[at:end].reshape(shape))
            at = end
    return views


def initial(sizes: Sequence[int], generator: np.random.Generator) -> Array:
    """Draw weights and biases from U(-1, 1) / sqrt(fan-in), as PyTorch does for a linear layer."""
    drawn = []
    for fan_in, fan_out in pairwise(sizes):
        bound = fan_in**-0.5
        drawn += [generator.uniform(-bound, bound, fan_out * fan_in), generator.uniform(-bound, bound, fan_out)]
    return np.concatenate(drawn).astype(np.float32)


class DQN(Learner):
    """A learner whose Q(s, .) is a network of ReLU layers."""

    name: ClassVar[str] = "dqn"
    Settings = DQNSettings
    Fit = FitSettings
    STATE = ("epsilon", "_episodes", "_steps", "updates", "_rng", "_theta", "_target", "_mean", "_square", "memory")
    OPTIONAL = ("_holding",)

    def __init__(
        self,
        n: int,
        actions: int,
        hidden: Sequence[int],
        settings: DQNSettings,
        generator: np.random.Generator,
        init: np.random.Generator,
        temperature: float | None = None,
    ) -> None:
        """
        Args:
            n: Number of state variables.
            actions: Number of actions.
            hidden: Widths of the hidden layers.
            settings: The settings of the learner.
            generator: The generator of its draws while it acts and learns.
            init: The generator of its initial parameters.
            temperature: The temperature of distillation. With None, the network is fitted to the values of a teacher.
        """
        self.sizes = (n, *hidden, actions)
        self.settings, self.temperature = settings, temperature
        self.epsilon = settings.epsilon_start
        self._rng = generator
        self._theta = initial(self.sizes, init)
        self._target = self._theta.copy()
        self._gradient, self._mean, self._square = (np.zeros_like(self._theta) for _ in range(3))
        self._layers = layers_of(self._theta, self.sizes)
        self._sizes = np.array(self.sizes)
        self._row = np.zeros(sum(self.sizes), np.float32)
        self._scratch = kernels.network_scratch(self.sizes, settings.batch_size)
        self._steps = self._episodes = self.updates = 0
        self._held, self._hold_left = 0, 0
        self.memory = Replay(settings.replay_size, n)

    @classmethod
    def make(
        cls,
        c: Config,
        client: int,
        public: Public,
        pooled: bool = False,
        hidden: Sequence[int] = (),
        temperature: float | None = None,
        **options: Any,
    ) -> Agent:
        """Make the agent of one client.

        `hidden` are the widths of the hidden layers, by default two of the client's entry in `widths`; `temperature` is
        that of `__init__`.
        """
        if not hidden:
            hidden = (max(c.widths) if pooled else c.widths[client % len(c.widths)],) * 2
        # Parameters can be averaged only if all clients start from the same ones.
        start = rng.PUBLIC if c.setting == "homogeneous" else client
        generator, init = rng.generator(c.seed, client, "agent"), rng.generator(c.seed, start, "network")
        return cls(public.n, public.actions, hidden, c.part(cls.Settings), generator, init, temperature, **options)

    @classmethod
    def other_learning(cls, c: Config) -> dict[str, Any]:
        """Return another threshold of the Huber loss, which depends on the scale of rewards."""
        return {"huber": 10.0 if c.huber != 10.0 else 1.0}

    @classmethod
    def other_step(cls, c: Config) -> dict[str, Any]:
        return {"lr": c.lr / 2}

    @classmethod
    def warm_up(cls, c: Config) -> None:
        s, generator = np.zeros(1, np.float32), np.random.default_rng(0)
        settings = c.part(cls.Settings, batch_size=1, learning_starts=1, update_every=1, fit_steps=1, epsilon_start=0.0)
        agent = cls(1, 2, (1,), settings, generator, generator)
        agent.observe(Transition(s, agent.act(s), 0.0, 0.0, s))
        agent.fit_anchors(s[None], np.zeros((1, 2)))

    @property
    def _holding(self) -> Array | None:
        """The exploratory action that is repeated, and for how many more steps; None if there is none."""
        return np.array([self._held, self._hold_left]) if self._hold_left else None

    @_holding.setter
    def _holding(self, saved: Array | None) -> None:
        self._held, self._hold_left = (0, 0) if saved is None else (int(k) for k in saved)

    def act(self, s: Array) -> int:
        if self._hold_left > 0:
            self._hold_left -= 1
            return self._held
        u_explore, u_action = self._rng.random(), self._rng.random()
        if u_explore < self.epsilon:
            self._held, self._hold_left = int(u_action * self.sizes[-1]), self.settings.hold - 1
            return self._held
        kernels.network_values(self._sizes, self._theta, s, self._row)
        a = kernels.greedy(self._row[-self.sizes[-1] :], u_action)
        if a < 0:
            self.failed(True, s, a, 0.0, 0.0)
        return int(a)

    def q(self, s: Array) -> Array:
        return self.model().q(np.asarray(s, np.float32)).astype(np.float64)

    def model(self) -> Model:
        layers = [x.copy() for x in self._layers]
        return MLP(list(zip(layers[::2], layers[1::2], strict=True)))

    def observe(self, t: Transition) -> None:
        c = self.settings
        self.memory.add(t)
        self._steps += 1
        if self._steps % c.target_steps == 0:
            self._approach_target(c.target_tau)
        if self.memory.size >= max(c.batch_size, c.learning_starts) and self._steps % c.update_every == 0:
            for _ in range(c.gradient_steps):
                self._update()

    def in_kernel(self) -> Any:
        m, c = self.memory, self.settings
        learned = self._theta, self._target, self._gradient, self._mean, self._square
        return kernels.Network(
            self._sizes, *learned, *self._scratch, self._row, m.ring(), m.counts(self._steps, self.updates),
            np.empty(c.batch_size), np.array([self._held, self._hold_left]), *rng.addresses(self._rng), c.hold,
            c.learning_starts, c.update_every, c.gradient_steps, c.target_steps, c.target_tau, c.huber, self._lr,
        )  # fmt: skip

    def played(self, record: Any, actions: int, z: Array) -> None:
        self._steps, self.updates = self.memory.take(record.counts)
        self._held, self._hold_left = (int(k) for k in record.held)

    def failed(self, acting: bool, z: Array, a: int, r: float, delta: float) -> None:
        what = "Q(s, .) is not finite" if acting else f"the gradient became {delta}"
        raise FedQHDError(f"{what}: lr={self.settings.lr} is likely too large")

    def _update(self) -> None:
        m, u = self.memory, self._rng.random(self.settings.batch_size)
        total = kernels.network_step(
            self._sizes, self._theta, self._target, self._gradient, self._mean, self._square, *self._scratch,
            m.s, m.a, m.r, m.discount, m.s_next, u, m.size, self.settings.huber, self._lr, self.updates + 1,
        )  # fmt: skip
        self._updated(total)

    def _updated(self, total: float) -> None:
        """Count an update; raise if `total`, the sum of its gradient, says that it was not made."""
        if not np.isfinite(total):
            self.failed(False, self._row, 0, 0.0, total)
        self.updates += 1

    def end_episode(self) -> None:
        self._episodes += 1
        self._hold_left = 0
        self.epsilon = self.settings.decayed(self.epsilon)

    @property
    def _lr(self) -> float:
        """The step size of this episode."""
        return self.settings.lr * self.settings.eta_decay**self._episodes

    def sync_target(self) -> None:
        self._approach_target(1.0)

    def _approach_target(self, tau: float) -> None:
        kernels.approach(self._target, self._theta, tau)

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Fit the network to a teacher by steps of Adam on minibatches of anchors.

        The loss is the squared error of the values or, with a temperature T, KL(softmax(Q/T) || softmax(Q_i/T)).
        """
        T = np.float32(self.temperature or 1.0)
        states, teacher = np.asarray(anchors, np.float32), np.asarray(Q, np.float32)
        B, (n, *_, actions) = min(self.settings.fit_batch, len(anchors)), self.sizes
        through, slopes, across = kernels.network_scratch(self.sizes, B)
        q, g = through[-actions:, :B].T, slopes[-actions:, :B].T
        for _ in range(self.settings.fit_steps):
            rows = self._rng.integers(len(anchors), size=B)
            through[:n, :B], wanted = states[rows].T, teacher[rows]
            kernels.network_forward(self._sizes, self._theta, through)
            if self.temperature is not None:
                g[:] = (scipy.special.softmax(q / T, axis=1) - scipy.special.softmax(wanted / T, axis=1)) / (T * B)
            else:
                g[:] = 2 * (q - wanted) / q.size
            total = kernels.network_descend(
                self._sizes, self._theta, self._gradient, self._mean, self._square, through, slopes, across,
                self._lr, self.updates + 1,
            )  # fmt: skip
            self._updated(total)
        self.sync_target()

    def params(self) -> Payload:
        return {f"{k}": v.copy() for k, v in enumerate(self._layers)}

    def load(self, p: Payload) -> None:
        shapes = {k: v.shape for k, v in p.items()}
        if shapes != {f"{k}": v.shape for k, v in enumerate(self._layers)}:
            raise FedQHDError(f"parameters of shapes {shapes} do not fit a network of {'x'.join(map(str, self.sizes))}")
        if not all(np.isfinite(v).all() for v in p.values()):
            raise FedQHDError("the parameters to install are not finite: a client's learning diverged")
        for k, layer in enumerate(self._layers):
            layer[:] = p[f"{k}"]
        self.sync_target()

    def restored(self) -> None:
        super().restored()
        self.memory.check_actions(self.sizes[-1])
        if not 0 <= self._held < self.sizes[-1]:
            raise ValueError(f"it repeats action {self._held}, and there are {self.sizes[-1]}")

    def fingerprint(self) -> str:
        return f"mlp-{'x'.join(map(str, self.sizes))}"
