"""DQN behind the same interface, in PyTorch (extra `dqn`): double-Q, Huber, Adam, target network.

A small network on a CPU is bound by the overhead of calls. So: one thread, plain tensors instead of modules,
fused Adam, and acting on numpy views that share the tensors' memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedqhd import kernels, rng
from fedqhd.agents.exploration import Exploration
from fedqhd.interfaces import Array, FedQHDError, Model, Payload, Transition, under
from fedqhd.models import MLP
from fedqhd.replay import Replay


@dataclass(frozen=True)
class DQNSettings(Exploration):
    """What a DQN agent is told; the names are those of the command line."""

    lr: float = 1e-3
    eta_decay: float = 1.0
    batch_size: int = 64
    update_every: int = 4
    gradient_steps: int = 1
    replay_size: int = 50_000
    learning_starts: int = 1_000
    target_steps: int = 500
    target_tau: float = 1.0
    huber: float = 1.0
    hold: int = 1
    fit_loss: str = "mse"
    fit_steps: int = 100
    fit_batch: int = 64
    temperature: float = 1.0


def initial_layers(sizes: Sequence[int], generator: np.random.Generator) -> list[Array]:
    """Weights and biases, U(-1, 1) / sqrt(fan-in), as torch draws them for a linear layer."""
    layers: list[Array] = []
    for fan_in, fan_out in pairwise(sizes):
        bound = fan_in**-0.5
        layers += [
            generator.uniform(-bound, bound, shape).astype(np.float32) for shape in ((fan_out, fan_in), (fan_out,))
        ]
    return layers


def forward(params: Sequence[Tensor], x: Tensor) -> Tensor:
    """ReLU layers, the last one linear."""
    for k in range(0, len(params) - 2, 2):
        x = torch.relu(F.linear(x, params[k], params[k + 1]))
    return F.linear(x, params[-2], params[-1])


class DQN:
    """Q(s, .) by a network of ReLU layers of the given hidden widths."""

    def __init__(
        self,
        n: int,
        actions: int,
        hidden: Sequence[int],
        settings: DQNSettings,
        generator: np.random.Generator,
        init: np.random.Generator,
    ) -> None:
        torch.set_num_threads(1)
        self.sizes = (n, *hidden, actions)
        self.settings = settings
        self.epsilon = settings.epsilon_start
        self._rng = generator
        self._params = [torch.from_numpy(x).requires_grad_() for x in initial_layers(self.sizes, init)]
        self._target = [p.detach().clone() for p in self._params]
        self._views = [p.detach().numpy() for p in self._params]
        self._adam = torch.optim.Adam(self._params, lr=settings.lr, fused=True)
        self._steps = self._episodes = self.updates = 0
        self._held, self._hold_left = 0, 0
        self.replay = Replay(settings.replay_size, n)

    def act(self, s: Array) -> int:
        if self._hold_left > 0:
            self._hold_left -= 1
            return self._held
        u_explore, u_action = self._rng.random(2)
        if u_explore < self.epsilon:
            self._held, self._hold_left = int(u_action * self.sizes[-1]), self.settings.hold - 1
            return self._held
        views, x = self._views, s
        for k in range(0, len(views) - 2, 2):
            x = np.maximum(views[k] @ x + views[k + 1], 0)
        a = kernels.greedy(views[-2] @ x + views[-1], u_action)
        if a < 0:
            raise FedQHDError(f"Q(s, .) is not finite: lr={self.settings.lr} is likely too large")
        return int(a)

    def q(self, s: Array) -> Array:
        return self.model().q(np.asarray(s, np.float32)).astype(np.float64)

    def model(self) -> Model:
        views = [v.copy() for v in self._views]
        return MLP(list(zip(views[::2], views[1::2], strict=True)))

    def observe(self, t: Transition) -> None:
        c = self.settings
        self.replay.add(t)
        self._steps += 1
        if self._steps % c.target_steps == 0:
            self._approach_target(c.target_tau)
        if self.replay.size >= max(c.batch_size, c.learning_starts) and self._steps % c.update_every == 0:
            for _ in range(c.gradient_steps):
                self._update()

    def _update(self) -> None:
        memory = self.replay
        rows = memory.sample(self.settings.batch_size, self._rng)
        arrays = (memory.s, memory.a, memory.r, memory.discount, memory.s_next)
        s, a, r, discount, s_next = (torch.from_numpy(x[rows]) for x in arrays)
        with torch.no_grad():
            best = forward(self._params, s_next).argmax(1, keepdim=True)
            y = r + discount * forward(self._target, s_next).gather(1, best).squeeze(1)
        q = forward(self._params, s).gather(1, a.unsqueeze(1)).squeeze(1)
        self._descend(F.huber_loss(q, y, delta=self.settings.huber))

    def _descend(self, loss: Tensor) -> None:
        if not np.isfinite(loss.item()):
            raise FedQHDError(f"the loss became {loss.item()}: lr={self.settings.lr} is likely too large")
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self.updates += 1

    def end_episode(self) -> None:
        self._episodes += 1
        self._hold_left = 0
        self.epsilon = self.settings.decayed(self.epsilon)
        self._set_lr()

    def _set_lr(self) -> None:
        self._adam.param_groups[0]["lr"] = self.settings.lr * self.settings.eta_decay**self._episodes

    def sync_target(self) -> None:
        self._approach_target(1.0)

    def _approach_target(self, tau: float) -> None:
        for target, p in zip(self._target, self._params, strict=True):
            target.lerp_(p.detach(), tau)

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Approach a teacher by Adam steps on minibatches of anchors: its values (mse), or its softened choice of
        actions, KL(softmax(Q/T) || softmax(Q_i/T))."""
        c, T = self.settings, self.settings.temperature
        states, teacher = (torch.from_numpy(np.asarray(x, np.float32)) for x in (anchors, Q))
        for _ in range(c.fit_steps):
            rows = torch.from_numpy(self._rng.integers(len(anchors), size=min(c.fit_batch, len(anchors))))
            q = forward(self._params, states[rows])
            if c.fit_loss == "kl":
                wanted = F.log_softmax(teacher[rows] / T, dim=1)
                loss = F.kl_div(F.log_softmax(q / T, dim=1), wanted, reduction="batchmean", log_target=True)
            else:
                loss = F.mse_loss(q, teacher[rows])
            self._descend(loss)
        self.sync_target()

    def params(self) -> Payload:
        return {f"{k}": v.copy() for k, v in enumerate(self._views)}

    def load(self, p: Payload) -> None:
        shapes = {k: v.shape for k, v in p.items()}
        if shapes != {f"{k}": v.shape for k, v in enumerate(self._views)}:
            raise FedQHDError(f"parameters of shapes {shapes} do not fit a network of {'x'.join(map(str, self.sizes))}")
        if not all(np.isfinite(v).all() for v in p.values()):
            raise FedQHDError("the parameters to install are not finite: a client's learning diverged")
        for k, view in enumerate(self._views):
            view[:] = p[f"{k}"]
        self.sync_target()

    def fingerprint(self) -> str:
        return f"mlp-{'x'.join(map(str, self.sizes))}"

    def state(self) -> Payload:
        own = {
            "epsilon": np.array(self.epsilon),
            "episodes": np.array(self._episodes),
            "steps": np.array(self._steps),
            "updates": np.array(self.updates),
            "rng": rng.pack(self._rng),
        }
        arrays = {f"params.{k}": v.copy() for k, v in enumerate(self._views)}
        arrays |= {f"target.{k}": v.numpy().copy() for k, v in enumerate(self._target)}
        for k, p in enumerate(self._params):
            arrays |= {f"adam.{k}.{name}": v.numpy().copy() for name, v in self._adam.state[p].items()}
        return {**own, **arrays, **{f"replay.{k}": v for k, v in self.replay.state().items()}}

    def restore(self, p: Payload) -> None:
        self.epsilon = float(p["epsilon"])
        self._episodes, self._steps, self.updates = (int(p[k]) for k in ("episodes", "steps", "updates"))
        self._set_lr()
        self._rng = rng.unpack(p["rng"])
        for k, param in enumerate(self._params):
            self._views[k][:] = p[f"params.{k}"]
            self._target[k].copy_(torch.from_numpy(p[f"target.{k}"]))
            moments = under(p, f"adam.{k}.")
            self._adam.state[param] = {name: torch.from_numpy(v.copy()) for name, v in moments.items()}
        self.replay.restore(under(p, "replay."))
