"""The graph of a BERT or ModernBERT for OpenVINO, operation by operation, from the weights as numpy has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .int8 import INPUT_LEVELS, has_int8_products
from .weight_names import CLASSIFIER, EMBEDDING_NORM, FINAL_NORM, HEAD_NORM, POOLER, POSITIONS, TYPES, WORDS, LayerNames
from .weights import distance_bias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openvino import Model, Node

    from ....core.arrays import Floats, Integers
    from .inputs import Pooling
    from .int8 import Int8Dense
    from .rotary import Rotary
    from .weights import BertConfig


def build_graph(
    ov: Any,
    config: BertConfig,
    weights: Mapping[str, Floats],
    *,
    classifier: bool,
    has_types: bool,
    pooling: Pooling | None,
    has_bf16: bool,
    int8: Mapping[str, Int8Dense],
    folded: dict[str, Floats],
) -> Model:
    """Build the function of `BertNumpy`, operation by operation, and a classifier's head if it has one.

    :param ov: the module `openvino`.
    :param has_bf16: whether the graph is computed in bf16.
    """
    layers = _Layers(ov, config, weights, int8, folded)
    op = layers.op
    axes, scalar, dense = layers.axes, layers.scalar, layers.dense
    ids = op.parameter([-1, -1], ov.Type.i32, name="ids")
    mask = op.parameter([-1, -1], ov.Type.f32, name="mask")
    has_types = not config.rotary and (has_types or classifier)
    types = op.parameter([-1, -1], ov.Type.i32, name="types") if has_types else None
    inputs = [ids, mask] if types is None else [ids, mask, types]
    bias = (op.unsqueeze(mask, axes(1, 2)) - scalar(1)) * scalar(1e9)
    if config.rotary:
        states = _rotary_states(layers, config, config.rotary, ids, bias, only_first=pooling == "cls")
    else:
        only_first = classifier or pooling == "cls"
        has_identity = has_bf16 and not classifier and pooling != "mean"
        states = _states(layers, config, ids, types, bias, only_first=only_first, has_identity=has_identity)
    if pooling == "mean":
        states = layers.mean(states, mask)
    hidden = layers.whole(states)
    if not classifier:
        return ov.Model([op.result(hidden)], inputs, "bert")
    pooled = dense(op.squeeze(hidden, axes(1)), POOLER)
    if config.rotary:
        pooled = layers.norm(op.gelu(pooled, "erf"), HEAD_NORM)
    else:
        pooled = op.relu(pooled) if config.family.has_relu_head else op.tanh(pooled)
    logits = dense(pooled, CLASSIFIER)
    return ov.Model([op.result(logits)], inputs, "bert")


def _states(
    layers: _Layers, config: BertConfig, ids: Node, types: Node, bias: Node, *, only_first: bool, has_identity: bool
) -> _State:
    """Return the last hidden states of a BERT.

    :param bias: added to the attention to each token, (texts, 1, 1, tokens).
    :param only_first: the last layer computes the first token alone.
    :param has_identity: see `times_identity`.
    """
    op, axes = layers.op, layers.axes
    states = layers.embeddings(ids, types)
    if config.distances:
        bias = bias + layers.distance_bias(ids)
    last = config.layers - 1
    for number in range(config.layers):
        layer = LayerNames(number)
        is_cut = only_first and number == last
        queries = layers.first(states) if is_cut else states
        if is_cut and config.distances:
            bias = op.slice(bias, axes(0), axes(1), axes(1), axes(2))
        attended = layers.attention(layer, queries, states, bias)
        states = layers.norm(layers.residual(queries, attended, layer.attention_output), layer.attention_norm)
        expanded = op.gelu(layers.dense(states, layer.intermediate), "erf")
        if has_identity and number == last:
            states = layers.times_identity(states)
        states = layers.norm(layers.residual(states, expanded, layer.output), layer.output_norm)
    return states


def _rotary_states(
    layers: _Layers, config: BertConfig, rotary: Rotary, ids: Node, bias: Node, *, only_first: bool
) -> _State:
    """Return the last hidden states of a ModernBERT; see `_states`."""
    op, axes = layers.op, layers.axes
    hidden = layers.whole(layers.norm(layers.words(ids), EMBEDDING_NORM))
    near = bias + layers.local_bias(ids, rotary.distance)
    angles = [layers.angles(ids, rotary, is_global=is_global) for is_global in (False, True)]
    for number in range(config.layers):
        layer = LayerNames(number)
        states = layers.norm(hidden, layer.attention_norm) if number else hidden
        queries, added = states, bias if rotary.is_global[number] else near
        if only_first and number == config.layers - 1:
            queries, hidden = layers.first(states), layers.first(hidden)
            if not rotary.is_global[number]:
                added = op.slice(near, axes(0), axes(1), axes(1), axes(2))
        attended = layers.attention(layer, queries, states, added, angles[rotary.is_global[number]])
        hidden = hidden + layers.dense(attended, layer.attention_output)
        states = layers.norm(hidden, layer.output_norm)
        expanded = op.gelu(layers.dense(states, layer.intermediate), "erf") * layers.dense(states, layer.gate)
        hidden = hidden + layers.dense(expanded, layer.output)
    return layers.norm(hidden, FINAL_NORM)


class _State(NamedTuple):
    """Hidden states as `values * weight + bias`, the last step of a layer norm.

    The next dense layer takes this step into its own weight and bias, which saves a pass over the states.
    """

    values: Node
    weight: Floats
    bias: Floats


class _Layers:
    """The layers of a BERT as operations of OpenVINO.

    :param ov: the module `openvino`.
    :param int8: layers in int8 by name; the others are in floating point.
    :param folded: the weights of dense layers times the weight of the norm before them, by layer; new ones are added.
    """

    def __init__(
        self,
        ov: Any,
        config: BertConfig,
        weights: Mapping[str, Floats],
        int8: Mapping[str, Int8Dense],
        folded: dict[str, Floats],
    ) -> None:
        self._ov, self.op = ov, ov.opset15
        self._config, self._weights, self._int8, self._folded = config, weights, int8, folded
        self.dim = weights[WORDS].shape[1]
        self._rounded_inputs: dict[tuple[str, float], Node] = {}  # queries, keys and values have one
        self._has_int8_products = has_int8_products()

    def constant(self, array: Floats | Integers) -> Node:
        return self._ov.op.Constant(np.ascontiguousarray(array), shared_memory=True)

    def axes(self, *values: int) -> Node:
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float) -> Node:
        return self.constant(np.array(value, np.float32))

    def norm(self, x: Node, name: str) -> _State:
        values = self.op.mvn(x, self.axes(-1), True, self._config.eps, "inside_sqrt")
        return _State(values, self._weights[name + ".weight"], self._weights[name + ".bias"])

    def whole(self, state: _State) -> Node:
        """Return a state after the last step of its norm."""
        return state.values * self.constant(state.weight) + self.constant(state.bias)

    def residual(self, state: _State, x: Node, name: str) -> Node:
        """Return the sum of a state and a dense layer of x."""
        return state.values * self.constant(state.weight) + self.dense(x, name, state.bias)

    def tokens(self, ids: Node) -> Node:
        """Return the number of tokens in each text, (1,)."""
        return self.op.gather(self.op.shape_of(ids), self.axes(1), self.axes(0))

    def embeddings(self, ids: Node, types: Node | None) -> _State:
        """Return the sum of the embeddings of words, positions and token types. Types that are not given are 0."""
        op, weights = self.op, self._weights
        tokens = self.tokens(ids)
        added = weights[POSITIONS] if types is not None else weights[POSITIONS] + weights[TYPES][0]
        added = op.slice(self.constant(added), self.axes(0), tokens, self.axes(1), self.axes(0))
        if types is not None:
            added = added + op.gather(self.constant(weights[TYPES]), types, self.axes(0))
        return self.norm(self.words(ids) + added, EMBEDDING_NORM)

    def words(self, ids: Node) -> Node:
        """Return the embeddings of tokens, (texts, tokens, dim)."""
        return self.op.gather(self.constant(self._weights[WORDS]), ids, self.axes(0))

    def distance_bias(self, ids: Node) -> Node:
        """Return the bias of attention by distance, (1, heads, tokens, tokens), cut from that of the longest text."""
        op, tokens = self.op, self.tokens(ids)
        whole = self.constant(distance_bias(self._config, self._weights, self._config.max_positions)[None])
        ends = op.concat([tokens, tokens], 0)
        return op.slice(whole, self.axes(0, 0), ends, self.axes(1, 1), self.axes(2, 3))

    def local_bias(self, ids: Node, distance: int) -> Node:
        """Return the bias of the attention in local layers, (1, 1, tokens, tokens)."""
        op, positions = self.op, self.constant(np.arange(self._config.max_positions, dtype=np.float32))
        positions = op.slice(positions, self.axes(0), self.tokens(ids), self.axes(1), self.axes(0))
        away = op.absolute(op.unsqueeze(positions, self.axes(1)) - op.unsqueeze(positions, self.axes(0)))
        is_far = op.convert(op.greater(away, self.scalar(distance)), "f32")
        return op.unsqueeze(is_far * self.scalar(-1e9), self.axes(0, 1))

    def angles(self, ids: Node, rotary: Rotary, *, is_global: bool) -> list[Node]:
        """Return the cosines and sines of a kind of layer, each (tokens, head size), cut from the longest text's."""
        values = rotary.angles(is_global, self._config.max_positions, self.dim // self._config.heads)
        tokens, axes = self.tokens(ids), self.axes
        return [self.op.slice(self.constant(array), axes(0), tokens, axes(1), axes(0)) for array in values]

    def turned(self, x: Node, angles: Sequence[Node]) -> Node:
        """Turn queries or keys, (texts, heads, tokens, head size), by the angles of their positions."""
        op, half = self.op, self.dim // self._config.heads // 2
        first, second = (
            op.slice(x, self.axes(start), self.axes(start + half), self.axes(1), self.axes(3)) for start in (0, half)
        )
        cosines, sines = angles
        return x * cosines + op.concat([second * self.scalar(-1), first], -1) * sines

    def attention(
        self,
        layer: LayerNames,
        queries: Node,
        states: Node,
        bias: Node,
        angles: Sequence[Node] = (),
    ) -> Node:
        """Return the attention of the queries to the states, its heads side by side.

        The queries are all states, or the state of each text's first token. Its angle is 0.

        :param bias: added to the scores: (texts, heads or 1, queries or 1, tokens).
        :param angles: cosines and sines that queries and keys are turned by.
        """
        op, count = self.op, self._config.heads
        size = self.dim // count

        def heads(x: Node) -> Node:
            return op.transpose(op.reshape(x, self.axes(0, 0, count, size), True), self.axes(0, 2, 1, 3))

        query = heads(self.dense(queries, layer.query) * self.scalar(size**-0.5))
        key, value = heads(self.dense(states, layer.key)), heads(self.dense(states, layer.value))
        if angles:
            key = self.turned(key, angles)
            query = self.turned(query, angles) if queries is states else query
        shares = op.softmax(op.matmul(query, key, False, True) + bias, -1)
        attended = op.transpose(op.matmul(shares, value, False, False), self.axes(0, 2, 1, 3))
        return op.reshape(attended, self.axes(0, 0, self.dim), True)

    def first(self, x: Node) -> Node:
        """Return the state, or the plain values, of each text's first token."""
        if isinstance(x, _State):
            return x._replace(values=self.first(x.values))
        return self.op.slice(x, self.axes(0), self.axes(1), self.axes(1), self.axes(1))

    def mean(self, state: _State, mask: Node) -> _State:
        """Return the mean of the tokens of each text, (texts, 1, dim)."""
        op = self.op
        total = op.matmul(op.unsqueeze(mask, self.axes(1)), state.values, False, False)
        return state._replace(values=total / op.unsqueeze(op.reduce_sum(mask, self.axes(1), True), self.axes(2)))

    def times_identity(self, state: _State) -> _State:
        """Multiply a state by the identity, so that OpenVINO computes everything before it in bf16.

        OpenVINO computes sums and norms in float32 unless a product stands between them and the output. Residual
        connections lead past every product of a BERT. Only the last sum and the last norm remain in float32.
        """
        identity = self.constant(np.eye(self.dim, dtype=np.float32))
        return state._replace(values=self.op.matmul(state.values, identity, False, True))

    def dense(self, x: Node, name: str, more: Floats | float = 0) -> Node:
        """Return a dense layer of a state or of plain values.

        :param more: a further bias, added to its own.
        """
        if name in self._int8:
            return self._dense_int8(x, self._int8[name], more)
        weight, bias = self._weights[name + ".weight"], self._weights[name + ".bias"] + np.float32(more)
        if isinstance(x, _State):
            bias = bias + weight @ x.bias
            if name not in self._folded:
                self._folded[name] = weight * x.weight
            weight, x = self._folded[name], x.values
        return self.op.matmul(x, self.constant(weight), False, True) + self.constant(bias)

    def _dense_int8(self, x: Node, layer: Int8Dense, more: Floats | float) -> Node:
        """Without products of int8, compute the same values in float32: other int8 instructions saturate."""
        values = x.values if isinstance(x, _State) else x
        key = (values.get_friendly_name(), layer.high)
        if key not in self._rounded_inputs:
            scaled, low, high = values * self.constant(layer.scale), self.scalar(layer.low), self.scalar(layer.high)
            if isinstance(x, _State):
                scaled = values * self.constant(layer.scale * x.weight) + self.constant(layer.scale * x.bias)
            if self._has_int8_products:
                self._rounded_inputs[key] = self.op.fake_quantize(scaled, low, high, low, high, INPUT_LEVELS + 1)
            else:
                step = self.scalar((layer.high - layer.low) / INPUT_LEVELS)
                levels = self.op.clamp(self.op.round((scaled - low) / step), 0.0, float(INPUT_LEVELS))
                self._rounded_inputs[key] = levels * step + low
        if self._has_int8_products:
            weight = self.op.convert(self.constant(layer.weight), "f32") * self.constant(layer.step[:, None])
        else:
            weight = self.constant(layer.weight * layer.step[:, None])
        bias = self.constant(layer.bias + np.float32(more))
        return self.op.matmul(self._rounded_inputs[key], weight, False, True) + bias
