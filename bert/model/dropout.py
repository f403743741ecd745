"""Dropout of a training program: its random numbers depend only on (seed, step, micro-step, rank, place).

On GPU the operators draw from Paddle's generator, which is seeded before each micro-step. On CPU that would cost 9-14
ns an element, a number of a Mersenne Twister for each. There the host makes the masks instead: before a micro-step a
compiled loop hashes a counter into bytes (0.04-0.08 ns an element), and the program takes the masks of its places from
them one after the other (0.1 ns), so that no two places share a number. oneDNN's conversion of bytes makes factors of
them (0.1 ns), and a product applies these (0.13 ns where the processor's cache holds the tensors; one thread of a Zen
5). Paddle's own gradient of dropout takes 0.95 ns for the two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np

from bert.randomness import stream_key
from bert.runtime.operator_editing import BlockEditor
from bert.runtime.paddle_api import core, paddle, static

Shape = tuple[int, ...]  # -1: known when the program runs

_WANTED = ("next_sentence_labels", "masked_lm_positions")  # inputs with one element for each token that is wanted


@dataclass(frozen=True)
class MaskPool:
    """Masks of all dropout operators with one rate, in one uint8 vector of Paddle's scope.

    Attributes:
        rate: the share of elements that dropout zeroes, which 16 random bits reach to within 1e-5.
        places: shapes of what is dropped, in the program's order.
    """

    variable: str
    rate: float
    places: list[Shape]
    _memory: list[np.ndarray] = field(default_factory=lambda: [np.empty(0, np.uint8)], repr=False, compare=False)

    def size(self, feed: Mapping[str, np.ndarray]) -> int:
        """An upper bound of the elements that a program with this feed drops out.

        Too many are counted for the last layer, as if all of its tokens were wanted; attention's are exact.
        """
        tokens = max(feed["input_ids"].size, sum(feed[name].size for name in _WANTED if name in feed))
        groups = [array.shape for name, array in feed.items() if name == "attention_mask" or name.startswith("group_")]
        pairs = sum(rows * length**2 for rows, length in groups)  # of a query and a key
        elements = 0.0
        for shape in self.places:
            unknown = shape.count(-1)
            # [b, heads, s, s], a place for each group, or one of [b, s, hidden], [tokens, hidden] and [b, hidden].
            repeats = pairs / len(groups) if unknown == 3 else tokens
            elements += repeats * prod(size for size in shape if size != -1)
        return round(elements)

    def draw(self, scope, place, feed: Mapping[str, np.ndarray], key: np.uint64) -> None:
        """Draw the masks of a micro-step and put them into the scope."""
        from bert.arrays.compiled import BLOCK, draw_at_least  # loads Numba, which a prediction does not need

        size = -(-self.size(feed) // BLOCK) * BLOCK
        tensor = scope.var(self.variable).get_tensor()
        if len(self._memory[0]) < size:
            self._memory[0] = np.empty(size, np.uint8)
        masks = self._memory[0][:size]
        draw_at_least(key ^ stream_key(self.variable), np.uint16(min(round(self.rate * 2**16), 2**16 - 1)), masks)
        tensor.set(masks, place, True)  # the tensor has no memory of its own


@dataclass(frozen=True)
class Dropout:
    """The random numbers of a training program's dropout.

    Attributes:
        pools: of masks that the host makes.
        seeds_paddle: whether operators draw from Paddle's generator.
        seeds: variables of operators that have a seed of their own.
    """

    pools: tuple[MaskPool, ...] = ()
    seeds_paddle: bool = False
    seeds: tuple[str, ...] = ()

    def draw(self, scope, place, feed: Mapping[str, np.ndarray], key: np.uint64) -> None:
        """Draw the random numbers of a micro-step; call it before each, with a different key."""
        if self.seeds_paddle:
            paddle.seed(int(key) & 0x7FFFFFFF)
        for name in self.seeds:  # on the host, where the kernels read them
            seed = np.array([int(key ^ stream_key(name)) & 0x7FFFFFFF], "int32")
            scope.var(name).get_tensor().set(seed, paddle.CPUPlace())
        for pool in self.pools:
            pool.draw(scope, place, feed, key)


def dropout_of(main: static.Program, rates: Iterable[float], device: str, *, onednn: bool = True) -> Dropout:
    """Take over the dropout of a training program; on CPU its operators are replaced.

    Args:
        main: with backward.
    """
    if not any(rates):
        return Dropout()
    return Dropout(pools=take_masks_from_host(main, onednn)) if device == "cpu" else Dropout(seeds_paddle=True)


def take_masks_from_host(main: static.Program, onednn: bool = True) -> tuple[MaskPool, ...]:
    """Replace the dropout operators of a program with backward by operators that read masks from the scope."""
    editor = BlockEditor(main)
    gradients = {op.input("Mask")[0]: op for op in editor.operators("dropout_grad")}
    pools: dict[float, MaskPool] = {}
    starts: dict[float, str] = {}  # the first unread element of each pool
    for dropout in [op for op in editor.operators("dropout") if op.output("Mask")[0] in gradients]:
        rate = dropout.attr("dropout_prob")
        if rate not in pools:
            pools[rate] = MaskPool(f"dropout_masks_{len(pools)}", rate, [])
            starts[rate] = _declare(editor, pools[rate].variable)
        pools[rate].places.append(tuple(editor.shape(dropout.input("X")[0])))
        gradient = gradients[dropout.output("Mask")[0]]
        starts[rate] = _take_mask(editor, dropout, gradient, pools[rate].variable, starts[rate], onednn)
    editor.finish()
    return tuple(pools.values())


def _declare(editor: BlockEditor, pool: str) -> str:
    """Declare a pool; returns the variable of its first unread element, int64 [1]."""
    editor.block.create_var(name=pool, shape=[-1], dtype="uint8", persistable=True, stop_gradient=True)
    start = editor.temporary("start", [1], paddle.int64)
    attributes = {"shape": [1], "value": 0.0, "dtype": int(paddle.int64)}
    editor.insert_before(editor.block.ops[0], "fill_constant", {}, {"Out": start}, **attributes)
    return start


def _take_mask(editor: BlockEditor, dropout, gradient, pool: str, start: str, onednn: bool) -> str:
    """Make `dropout` multiply by the next elements of the pool; returns the variable of the next unread one."""
    x, mask, insert = dropout.input("X")[0], dropout.output("Mask")[0], partial(editor.compute, dropout)
    count = insert("size", {"Input": x}, "count", [], "int64")
    end = insert("elementwise_add", {"X": start, "Y": count}, "end", [1], "int64", axis=-1)
    ends = {"Input": pool, "StartsTensor": start, "EndsTensor": end}
    taken = insert("slice", ends, "taken", [-1], "uint8", axes=[0], starts=[-1], ends=[-1], infer_flags=[-1])
    shape = insert("shape", {"Input": x}, "shape", [len(editor.shape(x))], "int32")
    # Refuses a mask that is too short.
    outputs = {"Out": mask, "XShape": editor.temporary("unused", [0, -1], "uint8")}
    editor.insert_before(dropout, "reshape2", {"X": taken, "Shape": shape}, outputs, shape=[-1])
    _multiply(editor, dropout, "X", "Out", mask, onednn)
    _multiply(editor, gradient, "Out@GRAD", "X@GRAD", mask, onednn)
    return end


def _multiply(editor: BlockEditor, operator, source: str, result: str, mask: str, onednn: bool) -> None:
    """Make `operator` multiply its input `source` by a mask of 0 and 1, divided by the rate of kept elements.

    The factors are made where they are used, as the mask takes a quarter of their memory until the gradient is made.
    """
    kept, (x,), (out,) = 1.0 - operator.attr("dropout_prob"), operator.input(source), operator.output(result)
    shape = editor.shape(x)
    factors = editor.temporary("factors", shape)
    if onednn and core.is_compiled_with_mkldnn():
        flags = {"Scale": kept, "Shift": 0.0, "use_mkldnn": True}
        editor.insert_before(operator, "dequantize", {"Input": mask}, {"Output": factors}, **flags)
    else:
        types = {"in_dtype": int(paddle.uint8), "out_dtype": int(paddle.float32)}
        ones = editor.compute(operator, "cast", {"X": mask}, "ones", shape, **types)
        editor.insert_before(operator, "scale", {"X": ones}, {"Out": factors}, scale=1.0 / kept, bias=0.0)
    editor.replace(operator, "elementwise_mul", {"X": x, "Y": factors}, {"Out": out}, axis=-1)
