"""Methods and learners as a user would bring them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedqhd.agents import QHD, Learner
from fedqhd.agents.settings import Compilation, Exploration
from fedqhd.core.settings import setting
from fedqhd.federation import ParameterAverage
from fedqhd.federation.method import LearnerSettings, Method


@dataclass(frozen=True)
class MomentumSettings(LearnerSettings):
    beta: float = setting(0.5, "share of its last step that the server takes again", at_least=0, below=1)


@dataclass(frozen=True, eq=False)
class WithMomentum(ParameterAverage):
    beta: float = 0.5

    def aggregate(self, state, replies):
        _, mean = super().aggregate({}, replies)
        if not state:
            return {"W": mean["W"], "v": 0 * mean["W"]}, mean
        v = self.beta * state["v"] + mean["W"] - state["W"]
        return {"W": state["W"] + v, "v": v}, {"W": state["W"] + v}


class Momentum(Method):
    name = "momentum"
    Settings = MomentumSettings
    supported_settings = ("homogeneous",)

    def federation(self, terms, public):
        return WithMomentum(terms.like, beta=self.config.beta)


@dataclass(frozen=True)
class NormalisedSettings(Compilation, Exploration):
    mu: float = setting(0.3, "share of the error that a step takes away", above=0, below=2)


class Normalised(QHD):
    name = "normalised"
    Settings = NormalisedSettings

    def observe(self, t):
        phi, phi_next = self.encoder.features(np.stack([t.s, t.s_next]))
        delta = t.r + t.discount * (phi_next @ self.W).max() - phi @ self.W[:, t.a]
        self.W[:, t.a] += self.settings.mu * delta / (phi @ phi) * phi
        self.updates += 1


class Deaf(Method):
    """Its federation cannot install anything."""

    name = "deaf"

    def federation(self, terms, public):
        return type("Mute", (), {"start": dict, "report": None, "expects": dict, "aggregate": dict})()


class Silent(Method):
    """It does not say what is exchanged."""

    name = "silent"


class Unready(Learner):
    """It lacks most of what an agent can do."""

    name = "unready"
    Settings = Exploration

    def __init__(self, n, actions, settings, generator):
        self.epsilon, self.updates = 1.0, 0

    def act(self, s):
        return 0


not_a_class = 3
