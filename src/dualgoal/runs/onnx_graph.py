"""JAX functions as ONNX graphs: each operation of the traced function becomes a node, and whatever depends on weights
alone is computed now and stored.

Our networks consist of some thirty operations, which are all here, so any pair of parts can be exported, also one from
another package. The number of rows stays open. Standard normal noise (VIB, flows) becomes an input of the graph.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import export
from jax.extend import core

from dualgoal import imports
from dualgoal.errors import UserError

OPSET, IR = 17, 8
CALLS = ("jit", "pjit", "custom_jvp_call", "custom_vjp_call", "closed_call")  # functions inside of functions
NORMAL = ("_normal", "_normal_real")  # JAX's names of what draws standard normal numbers
NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
DIRECT = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "tanh": "Tanh", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "neg": "Neg", "logistic": "Sigmoid", "pow": "Pow", "eq": "Equal",
    "gt": "Greater", "lt": "Less", "ge": "GreaterOrEqual", "le": "LessOrEqual", "copy": "Identity",
    "stop_gradient": "Identity", "erf": "Erf",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A value that is known only when the graph runs."""

    name: str
    shape: tuple[Any, ...]  # with a symbolic number of rows
    dtype: np.dtype


@dataclass(frozen=True)
class Spread:
    """A known array that stands for itself in every row. Operations on single numbers read it as it is."""

    array: np.ndarray  # with an axis of 1 where `shape` has another size
    shape: tuple[Any, ...]

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype


@dataclass
class Graph:
    """Nodes and stored arrays in the making."""

    onnx: Any = field(default_factory=lambda: imports.optional("onnx", "onnx", "ONNX export"))
    nodes: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)
    noise: list[Tensor] = field(default_factory=list)  # inputs that the function itself would draw
    drawn: list[np.ndarray] = field(default_factory=list)  # or what it draws, where the number of rows is known
    _names: dict[bytes, str] = field(default_factory=dict)

    def constant(self, value: Any) -> str:
        """The name of a stored array; equal arrays are stored once."""
        array = np.asarray(value, order="C")  # ascontiguousarray would give a number an axis
        key = str((array.dtype, array.shape)).encode() + array.tobytes()
        if key not in self._names:
            self._names[key] = f"c{len(self.stored)}"
            self.stored.append(self.onnx.numpy_helper.from_array(array, self._names[key]))
        return self._names[key]

    def node(self, kind: str, inputs: Sequence[Any], shape: Sequence[Any], dtype: Any, **attributes: Any) -> Tensor:
        """Add an operation; inputs are tensors or arrays."""
        names = [value.name if isinstance(value, Tensor) else self.constant(value) for value in inputs]
        made = Tensor(f"t{len(self.nodes)}", tuple(shape), np.dtype(dtype))
        self.nodes.append(self.onnx.helper.make_node(kind, names, [made.name], **attributes))
        return made

    def reshaped(self, x: Tensor, shape: Sequence[Any]) -> Tensor:
        target = [-1 if not isinstance(n, int) else n for n in shape]
        assert target.count(-1) <= 1
        return self.node("Reshape", [x, np.array(target, np.int64)], shape, x.dtype)

    def transposed(self, x: Tensor, order: Sequence[int]) -> Tensor:
        return self.node("Transpose", [x], [x.shape[n] for n in order], x.dtype, perm=list(order))

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", [x], x.shape, dtype, to=kind)


class Translator:
    """Walks through a traced function and fills a graph. `rows` is the input whose length is the number of rows."""

    def __init__(self, graph: Graph, rows: Tensor):
        self.graph, self.rows = graph, rows

    @functools.cached_property
    def count(self) -> Tensor:
        """The number of rows, as an array of one number."""
        whole = self.graph.node("Shape", [self.rows], (len(self.rows.shape),), np.int64)
        return self.graph.node("Slice", [whole, *(np.array([n], np.int64) for n in (0, 1))], (1,), np.int64)

    def call(self, closed: Any, values: Sequence[Any]) -> list[Any]:
        """The results of a traced function, each a tensor or, where it depends on no input, an array."""
        jaxpr, consts = (closed.jaxpr, closed.consts) if hasattr(closed, "consts") else (closed, [])
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known |= dict(zip(jaxpr.invars, values, strict=True))
        read = lambda v: v.val if isinstance(v, core.Literal) else known[v]
        for equation in jaxpr.eqns:
            results = self.equation(equation, [read(v) for v in equation.invars])
            known |= dict(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, equation: Any, values: list[Any]) -> list[Any]:
        name, params, out = equation.primitive.name, equation.params, equation.outvars[0].aval
        whole = all(isinstance(n, int) for v in equation.outvars for n in v.aval.shape)
        if name in CALLS and params.get("name") in NORMAL:
            return [self.normal(equation, values, out, whole)]
        if name in CALLS:
            return self.call(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], values)
        if whole and not any(isinstance(value, Tensor | Spread) for value in values):
            if name == "dim_as_value":
                raise UserError(
                    "ONNX export does not know what depends on the number of rows, such as a mean over them; export as "
                    "safetensors instead"
                )
            done = equation.primitive.bind(*values, **params)
            return list(done) if equation.primitive.multiple_results else [done]
        values = [v if isinstance(v, Tensor | Spread) or _is_key(v) else np.asarray(v) for v in values]
        if name in DIRECT and any(isinstance(value, Tensor) for value in values):
            plain = [value.array if isinstance(value, Spread) else value for value in values]
            return [self.graph.node(DIRECT[name], plain, out.shape, out.dtype)]
        if name == "broadcast_in_dim":
            return [self._broadcast_in_dim(*values, out=out, **params)]
        values = [self.in_full(value) for value in values]
        if name in DIRECT:
            return [self.graph.node(DIRECT[name], values, out.shape, out.dtype)]
        rule: Callable[..., Any] | None = getattr(self, f"_{name}", None)
        if rule is None:
            raise UserError(f"ONNX export does not know the operation '{name}'; export as safetensors instead")
        made = rule(*values, out=out, **params)
        return made if isinstance(made, list) else [made]

    def in_full(self, value: Any) -> Any:
        """The same value with all its rows."""
        return self.expanded(value.array, value.shape) if isinstance(value, Spread) else value

    def normal(self, equation: Any, values: list[Any], out: Any, whole: bool) -> Any:
        """Standard normal noise: an input of the graph, or where all is known the numbers themselves."""
        if whole:
            drawn = core.jaxpr_as_fun(equation.params["jaxpr"])(*values)[0]
            self.graph.drawn.append(np.asarray(drawn))
            return drawn
        number = len(self.graph.noise) + 1
        made = Tensor("noise" if number == 1 else f"noise_{number}", tuple(out.shape), np.dtype(out.dtype))
        self.graph.noise.append(made)
        return made

    # One rule for each operation that is not a single node ------------------------------------------------------------

    def _convert_element_type(self, x: Any, *, out: Any, **_: Any) -> Any:
        return x if x.dtype == out.dtype else self.graph.cast(x, out.dtype)

    def _broadcast_in_dim(self, x: Any, *rest: Any, out: Any, broadcast_dimensions: Any, **_: Any) -> Any:
        known = x.array if isinstance(x, Spread) else x
        narrow: list[Any] = [1] * len(out.shape)
        for n, to in enumerate(broadcast_dimensions):
            narrow[to] = known.shape[n]
        if not isinstance(known, Tensor):
            return Spread(known.reshape(narrow), tuple(out.shape))
        x = self.graph.reshaped(known, narrow)
        return x if tuple(narrow) == tuple(out.shape) else self.expanded(x, out.shape)

    def expanded(self, x: Any, shape: tuple[Any, ...]) -> Tensor:
        """Axes of 1 repeated to this shape."""
        pieces: list[Any] = []
        for have, want in zip(x.shape, shape, strict=True):
            if not isinstance(want, int) and isinstance(have, int):
                if str(want) != str(self.rows.shape[0]):
                    raise UserError(f"ONNX export cannot make {want} rows; export as safetensors instead")
                pieces.append(self.count)
            else:
                pieces.append(np.array([want if isinstance(want, int) else 1], np.int64))
        target = self.graph.node("Concat", pieces, (len(pieces),), np.int64, axis=0)
        return self.graph.node("Expand", [x, target], shape, x.dtype)

    def _gather(self, x: Any, at: Any, *, out: Any, dimension_numbers: Any, slice_sizes: Any, **_: Any) -> Any:
        """Only x[n] and x[:, n:m] with a known place, which JAX traces as this where the number of rows is open."""
        axes = dimension_numbers.start_index_map
        sizes = [slice_sizes[n] for n in axes]
        if isinstance(at, Tensor) or at.shape != (len(axes),) or not all(isinstance(n, int) for n in sizes):
            raise UserError("ONNX export can look up one known place or range only; export as safetensors instead")
        words = (np.array(w, np.int64) for w in (at, at + sizes, axes))
        return self.graph.reshaped(self.graph.node("Slice", [x, *words], slice_sizes, x.dtype), out.shape)

    def _reshape(self, x: Any, *rest: Any, out: Any, **_: Any) -> Any:
        return self.graph.reshaped(x, out.shape)

    _squeeze = _reshape

    def _transpose(self, x: Any, *, permutation: Any, **_: Any) -> Any:
        return self.graph.transposed(x, permutation)

    def _concatenate(self, *parts: Any, out: Any, dimension: int, **_: Any) -> Any:
        return self.graph.node("Concat", parts, out.shape, out.dtype, axis=dimension)

    def _split(self, x: Any, *, out: Any, sizes: Any, axis: int, **_: Any) -> Any:
        ends = np.cumsum([0, *sizes])
        cut = lambda k: [np.array([n], np.int64) for n in (ends[k], ends[k + 1], axis)]
        size = lambda k: [*x.shape[:axis], sizes[k], *x.shape[axis + 1 :]]
        return [self.graph.node("Slice", [x, *cut(k)], size(k), out.dtype) for k in range(len(sizes))]

    def _slice(self, x: Any, *, out: Any, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Any:
        steps = strides or [1] * len(x.shape)
        axes = [n for n in range(len(x.shape)) if isinstance(limit_indices[n], int)]  # all rows are always kept
        words = ([start_indices[n] for n in axes], [limit_indices[n] for n in axes], axes, [steps[n] for n in axes])
        return self.graph.node("Slice", [x, *(np.array(w, np.int64) for w in words)], out.shape, out.dtype)

    def _integer_pow(self, x: Any, *, out: Any, y: int, **_: Any) -> Any:
        return self.graph.node("Pow", [x, np.array(y, out.dtype)], out.shape, out.dtype)

    def _square(self, x: Any, *, out: Any, **_: Any) -> Any:
        return self.graph.node("Mul", [x, x], out.shape, out.dtype)

    def _rsqrt(self, x: Any, *, out: Any, **_: Any) -> Any:
        root = self.graph.node("Sqrt", [x], out.shape, out.dtype)
        return self.graph.node("Reciprocal", [root], out.shape, out.dtype)

    def _log1p(self, x: Any, *, out: Any, **_: Any) -> Any:
        more = self.graph.node("Add", [x, np.array(1, out.dtype)], out.shape, out.dtype)
        return self.graph.node("Log", [more], out.shape, out.dtype)

    def _select_n(self, which: Any, no: Any, yes: Any, *, out: Any, **_: Any) -> Any:
        return self.graph.node("Where", [which, yes, no], out.shape, out.dtype)

    def _argmax(self, x: Any, *, out: Any, axes: Any, **_: Any) -> Any:
        found = self.graph.node("ArgMax", [x], out.shape, np.int64, axis=axes[0], keepdims=0)
        return self.graph.cast(found, out.dtype)

    def _reduce(self, kind: str, x: Any, *, out: Any, axes: Any, **_: Any) -> Any:
        if kind == "ReduceSum":  # of which opset 17 takes the axes as an input
            return self.graph.node(kind, [x, np.array(axes, np.int64)], out.shape, out.dtype, keepdims=0)
        return self.graph.node(kind, [x], out.shape, out.dtype, axes=list(axes), keepdims=0)

    _reduce_sum = functools.partialmethod(_reduce, "ReduceSum")
    _reduce_max = functools.partialmethod(_reduce, "ReduceMax")
    _reduce_min = functools.partialmethod(_reduce, "ReduceMin")

    def _dot_general(self, x: Any, w: Any, *, out: Any, dimension_numbers: Any, **_: Any) -> Any:
        (x_sum, w_sum), (x_batch, w_batch) = dimension_numbers
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        left = [next(letters) for _ in x.shape]
        right = [next(letters) for _ in w.shape]
        for n, k in [*zip(x_sum, w_sum, strict=True), *zip(x_batch, w_batch, strict=True)]:
            right[k] = left[n]
        free = [left[n] for n in range(len(left)) if n not in (*x_sum, *x_batch)]
        free += [right[n] for n in range(len(right)) if n not in (*w_sum, *w_batch)]
        batch = len(x_batch)
        usual = (tuple(range(batch)),) * 2, ((batch + 1,), (batch,)), (batch + 2,) * 2
        if ((tuple(x_batch), tuple(w_batch)), (tuple(x_sum), tuple(w_sum)), (len(left), len(right))) == usual:
            return self.graph.node("MatMul", [x, w], out.shape, out.dtype)
        equation = f"{''.join(left)},{''.join(right)}->{''.join([left[n] for n in x_batch] + free)}"
        return self.graph.node("Einsum", [x, w], out.shape, out.dtype, equation=equation)

    def _conv_general_dilated(
        self, x: Any, w: Any, *, out: Any, window_strides: Any, padding: Any, dimension_numbers: Any, **_: Any
    ) -> Any:
        assert not isinstance(w, Tensor) and dimension_numbers.lhs_spec == (0, 3, 1, 2), "NHWC with stored weights"
        pads = [before for before, _ in padding] + [after for _, after in padding]
        kernel = np.transpose(w, dimension_numbers.rhs_spec)
        shape = [out.shape[n] for n in NCHW]
        image = self.graph.transposed(x, NCHW)
        done = self.graph.node(
            "Conv", [image, kernel], shape, out.dtype, pads=pads, strides=list(window_strides),
            kernel_shape=list(kernel.shape[2:]),
        )  # fmt: skip
        return self.graph.transposed(done, NHWC)

    def _reduce_window_max(
        self, x: Any, *, out: Any, window_dimensions: Any, window_strides: Any, padding: Any, **_: Any
    ) -> Any:
        (_, *window, _), (_, *strides, _), (_, *sides, _) = window_dimensions, window_strides, padding
        pads = [before for before, _ in sides] + [after for _, after in sides]
        shape = [out.shape[n] for n in NCHW]
        image = self.graph.transposed(x, NCHW)
        done = self.graph.node("MaxPool", [image], shape, out.dtype, kernel_shape=window, strides=strides, pads=pads)
        return self.graph.transposed(done, NHWC)


def _is_key(value: Any) -> bool:
    return hasattr(value, "dtype") and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def translate(
    function: Callable[..., Any], inputs: dict[str, tuple[tuple[int, ...], Any]], rows: int | None = None
) -> tuple[Graph, list[Tensor], Any]:
    """The graph of a function of rows, its inputs and its result. `inputs` has the shape and type of a row of each
    argument. With a number of `rows` the graph is for that many, and noise is drawn instead of asked for."""
    count = export.symbolic_shape("rows")[0] if rows is None else rows
    given = [Tensor(name, (count, *shape), np.dtype(kind)) for name, (shape, kind) in inputs.items()]
    traced = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in given))
    graph = Graph()
    (result,) = Translator(graph, given[0]).call(traced, given)
    return graph, given, result


def _needed(nodes: list[Any], output: str) -> tuple[list[Any], set[str]]:
    """The nodes on which the output depends, and all names that they use; gradients, for one, are not among them."""
    used, kept = {output}, []
    for node in reversed(nodes):
        if node.output[0] in used:
            used |= set(node.input)
            kept.append(node)
    return kept[::-1], used


def model(graph: Graph, given: Sequence[Tensor], result: Tensor, output: str, facts: dict[str, str]) -> Any:
    """The ONNX model whose result is called `output`; `facts` become its metadata."""
    onnx = graph.onnx
    kind = onnx.helper.np_dtype_to_tensor_dtype
    shape = lambda t: [n if isinstance(n, int) else "rows" for n in t.shape]
    describe = lambda t, name: onnx.helper.make_tensor_value_info(name, kind(t.dtype), shape(t))
    nodes, used = _needed([*graph.nodes, onnx.helper.make_node("Identity", [result.name], [output])], output)
    inputs = [describe(t, t.name) for t in (*given, *graph.noise)]
    stored = [array for array in graph.stored if array.name in used]
    body = onnx.helper.make_graph(nodes, "dualgoal", inputs, [describe(result, output)], stored)
    made = onnx.helper.make_model(
        body, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="dualgoal"
    )
    onnx.helper.set_model_props(made, facts)
    onnx.checker.check_model(made)
    return made
