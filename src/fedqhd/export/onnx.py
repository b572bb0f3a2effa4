"""Export as an ONNX model from raw float32 observations (B, n) to Q-values (B, A). The model does the scaling."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedqhd.agents.model import MLP
from fedqhd.agents.policy import Policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array
from fedqhd.export.parts import kind_of, readout

OPSET, IR = 17, 8
"""Versions that runtimes of several years ago support."""


class Graph:
    """Builds an ONNX graph: `g(op, *inputs)` appends a node and returns the name of its output.

    An input is the name of another output, or an array, which becomes a constant.
    """

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.nodes, self.constants = onnx, [], []  # type: tuple[Any, list[Any], list[Any]]

    def constant(self, x: Any) -> str:
        """Add an array to the graph and return its name."""
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(x, order="C"), f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        out = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, names, [out], **attributes))
        return out


def model(policy: Policy, about: str, name: str) -> bytes:
    """Return the policy as a serialised ONNX model with the input "obs" and the output "Q".

    Args:
        policy: Any policy except one with the user's own encoder.
        about: A sentence about the origin of the policy, for the model's documentation.
        name: The name of the policy, which becomes the name of the graph.

    Raises:
        FedQHDError: If onnx is not installed, or if the policy has another encoder.
    """
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise FedQHDError("format=onnx needs onnx: install it with pip install 'fedqhd[export]'") from error
    kind = kind_of(policy, "onnx", ("fourier", "complex", "symbolic", "mlp"))
    g, kinds = Graph(onnx), onnx.TensorProto
    scaler = policy.scaler
    raw = g("Cast", "obs", to=kinds.DOUBLE)
    z = g("Div", g("Sub", raw, np.float64(scaler.shift)), np.float64(scaler.scale))
    z = g("Cast", z, to=kinds.FLOAT)
    Q = {"mlp": _mlp, "symbolic": _symbolic}.get(kind, _fourier)(g, policy, z)
    g.nodes.append(onnx.helper.make_node("Identity", [Q], ["Q"]))
    graph = onnx.helper.make_graph(
        g.nodes, name,
        [onnx.helper.make_tensor_value_info("obs", kinds.FLOAT, ["B", policy.model.n])],
        [onnx.helper.make_tensor_value_info("Q", kinds.FLOAT, ["B", policy.model.actions])],
        g.constants, doc_string=about,
    )  # fmt: skip
    proto = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="fedqhd"
    )
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def _fourier(g: Graph, policy: Policy, z: str) -> str:
    arrays, W = readout(policy)
    turns = g("MatMul", z, arrays["Omega"])
    if "b" in arrays:
        turns = g("Add", turns, arrays["b"])
    # Reduce to half a turn first, as the kernels do: otherwise far states lose precision to large angles.
    turns = g("Sub", turns, g("Floor", g("Add", turns, np.float32(0.5))))
    angle = g("Mul", turns, np.float32(2 * np.pi))
    Q = g("MatMul", g("Cos", angle), np.float32(W.real))
    return g("Add", Q, g("MatMul", g("Sin", angle), np.float32(W.imag))) if np.iscomplexobj(W) else Q


def _symbolic(g: Graph, policy: Policy, z: str) -> str:
    arrays, W = readout(policy)
    items, (first, per_unit) = arrays["items"], arrays["grid"]
    n, levels = items.shape[:2]
    level = g("Floor", g("Add", g("Mul", g("Sub", z, first), per_unit), np.float32(0.5)))
    level = g("Cast", g("Clip", level, np.float32(0), np.float32(levels - 1)), to=g.onnx.TensorProto.INT64)
    bound = []
    for j in range(n):
        item = g("Gather", items[j], g("Gather", level, np.int64(j), axis=1), axis=0)
        bound.append(g("Cast", item, to=g.onnx.TensorProto.FLOAT))
    phi = product = bound[0]
    for item in bound[1:]:
        phi, product = g("Add", phi, item), g("Mul", product, item)
    return g("MatMul", g("Add", phi, product) if n > 1 else phi, np.float32(W))


def _mlp(g: Graph, policy: Policy, z: str) -> str:
    net = policy.model
    assert isinstance(net, MLP)

    def layer(x: str, W: Array, b: Array) -> str:
        return g("Add", g("MatMul", x, W), b)

    for W, b in net.layers[:-1]:
        z = g("Relu", layer(z, W, b))
    return layer(z, *net.layers[-1])
