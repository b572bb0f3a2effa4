"""The types of all settings, for type checkers and editors; written by `python -m fedqhd.api.typed`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypedDict

import numpy as np

Whole = int | np.integer[Any]
Number = float | np.floating[Any] | Whole
Text = str | PathLike[str]
Own = object
"""A name, or a class, function or object of your own."""


class Others(TypedDict, total=False):
    """The settings that are not in the signature of `fedqhd.train`."""

    steps: Whole
    """training steps per client, instead of episodes; needs round_steps"""

    round_steps: Whole
    """steps per client in a round, instead of round_episodes; needs steps"""

    keep: Whole
    """number of checkpoints to keep during a run"""

    loop: Text
    """how episodes are played: step by step in Python, or whole in a compiled kernel, which auto chooses where it can;
    the results are the same"""

    action_repeat: Whole
    """steps of the environment for which each action is repeated"""

    dynamics: Text | Sequence[Text]
    """constants that differ between clients: NAME=LOW:HIGH, drawn for each, e.g. length=0.3:1"""

    scaling: Text
    """scale states by random rollouts (auto: also by their distances), the environment's box, given bounds, or not"""

    scale_low: Number | Sequence[Number]
    """scaling=bounds: the value of each state variable that becomes -4"""

    scale_high: Number | Sequence[Number]
    """scaling=bounds: the value of each state variable that becomes 4"""

    rollout_steps: Whole
    """random steps from which the scaling and the anchors are computed; use fewer if a step is slow"""

    sigma: Number
    """bandwidth of the encoder, in units of the scaled state"""

    sigma_spread: Number
    """sigma_i = sigma * U[1 - spread, 1 + spread]"""

    anchor_source: Text
    """where anchors come from"""

    anchor_file: Text
    """anchor_source=file: an .npy or .npz file of raw states, one per row"""

    participation: Number
    """share of the clients that take part in a round"""

    present: Text | Sequence[Text]
    """clients that join late or leave early, as CLIENT=FIRST:LAST rounds, e.g. 3=10:20 4=5:"""

    late: Number
    """probability that a reply arrives a round late"""

    late_weight: Number
    """factor on the weight of a late reply; 0 drops it"""

    min_clients: Whole
    """number of valid replies that a round needs"""

    too_few: Text
    """what to do with fewer valid replies than min_clients: end the run or repeat the round"""

    weights: Text | Number | Sequence[Number]
    """weights of the clients in the aggregate: uniform, steps, precision, or one number per client"""

    aggregate: Own
    """how the server combines replies, or module:rule"""

    max_magnitude: Number
    """the server refuses a reply with a larger number"""

    server_step: Number
    """how many times the clients' mean change the teacher moves; 1 is the mean of their reports"""

    server_momentum: Number
    """share of the teacher's last movement that is added to the next (FedAvgM)"""

    uplink: Text
    """number format in which clients send W or Q; full does not round"""

    dp_clip: Number
    """L2 norm to which a client's change of the teacher is clipped (0: no differential privacy)"""

    dp_noise: Number
    """standard deviation of the noise, in units of 2 dp_clip"""

    dp_delta: Number
    """delta at which epsilon is reported"""

    secure: Text
    """mask replies, so that the server sees only their mean (engine=flower)"""

    secure_range: Number
    """largest absolute value in a client's W or Q"""

    attack: Text
    """what lying clients send, to test aggregation"""

    liars: Number
    """share of the clients that lie"""

    widths: Whole | Sequence[Whole]
    """widths of both hidden layers, one for all clients (homogeneous) or cycled (heterogeneous)"""

    temperature: Number
    """temperature of the softmax, softmax(Q / temperature)"""

    epsilon_start: Number
    """epsilon in the first episode"""

    epsilon_end: Number
    """smallest epsilon"""

    epsilon_decay: Number
    """factor on epsilon after each episode"""

    eta_decay: Number
    """factor on the step size (eta or lr) after each episode"""

    replay_size: Whole
    """transitions that a client stores"""

    batch_size: Whole
    """transitions in a minibatch, B"""

    update_every: Whole
    """steps between updates"""

    fit_steps: Whole
    """steps of Adam on each teacher"""

    fit_batch: Whole
    """anchors in each step of Adam on a teacher"""

    lr: Number
    """step size of Adam"""

    gradient_steps: Whole
    """minibatches in each update"""

    learning_starts: Whole
    """steps before the first update"""

    target_steps: Whole
    """steps between target syncs"""

    target_tau: Number
    """fraction of the way that the target moves at a sync"""

    huber: Number
    """TD error beyond which the loss is linear"""

    hold: Whole
    """steps for which an exploratory action is repeated"""

    compile: Text
    """compile a teacher by changing W, or by replacing it"""

    lam: Number
    """ridge penalty of the compilation, lambda"""

    features: Text
    """store hypervectors as float32 or int8, or recompute them"""

    fit_lam: Number
    """ridge penalty of a fit"""

    ridge: Text
    """fit_lam as given, or chosen by leave-one-out error"""

    sweeps: Whole
    """the largest number of sweeps in a fit"""

    sweep_tol: Number
    """end a fit when a sweep changes the Bellman error by less than this share of it"""

    trace: Number
    """share of the following return in a target; the rest is max Q(s', a)"""

    double_q: Text
    """limit max Q(s', a) to the value by W of the last round"""

    damping: Number
    """initial damping of a step towards a fit, rho"""

    refit: Number
    """share of new transitions in the memory that triggers a fit"""

    clip: Text
    """clip targets to the range of observed returns"""

    explore: Text
    """explore at random, or by a bonus for uncertainty"""

    bonus: Number
    """explore=bonus: size of the bonus, in units of the range of returns"""

    exchange: Text
    """send W or Q at anchors, or normal equations (homogeneous)"""

    step: Text
    """whether eta is the step size, or the step size times B lambda_max(E[Phi Phi^T])"""

    eta: Number
    """step size; with step=normalised, learning is stable below 2"""

    target_every: Whole
    """episodes between target syncs, tau"""

    control: Text
    """learn the values of the policy itself, or of the greedy one"""

    trace_decay: Number
    """decay of the traces from one action to the next, lambda"""

    traces: Text
    """whether the trace of a feature that occurs again starts anew or is added to"""


class Common(Others, total=False):
    """The settings that runs of a sweep can have in common: all but the seed and the folder."""

    env: Own
    """environment: a Gymnasium id, or module:Env"""

    method: Own
    """method to train with, or module:Class"""

    setting: Text
    """one encoder for all clients, or one for each"""

    learner: Own
    """how a client learns, or module:Class"""

    encoder: Own | Sequence[Own]
    """encoders, one for all clients (homogeneous) or cycled (heterogeneous); a custom one is module:name"""

    dims: Whole | Sequence[Whole]
    """dimensions D_i, one for all clients (homogeneous) or cycled (heterogeneous)"""

    agents: Text | Sequence[Text]
    """agents of the clients, cycled, e.g. qhd dqn:64 dqn:128x128 module:Class (default: qhd for all)"""

    clients: Whole
    """number of clients, N"""

    episodes: Whole
    """training episodes per client"""

    round_episodes: Whole
    """episodes per client in a round, K"""

    eval_episodes: Whole
    """greedy evaluation episodes per client after training"""

    anchors: Whole
    """number of anchor states, m"""

    gamma: Number
    """discount from one action to the next"""

    engine: Text
    """where clients run: in this process, in one process per core, or in Flower's simulation; the results are the
    same"""

    callbacks: Own | Sequence[Own]
    """callbacks with their arguments, such as evaluate:every=2 or module:Class; see docs/callbacks.md"""


class Options(Common, total=False):
    """All settings of a run."""

    seed: Whole
    """seed of all random numbers"""

    out: Text
    """folder for results (default: runs/ENV-METHOD-SETTING-LEARNER-SEED)"""
