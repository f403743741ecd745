"""Single faults in the source of a module: realistic edits that leave every other byte as it is."""

import ast
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Describes one edit: the bytes `start` to `end` of the module at `path` become `new`."""

    path: str
    line: int
    start: int
    end: int
    new: str
    kind: str
    before: str  # the statement or expression around it, for readers
    after: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


_COMPARISONS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_ARITHMETIC: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
# Of a function or method that is called -> the one that is called instead.
_NAMES = {
    **dict(min="max", max="min", any="all", all="any", minimum="maximum", maximum="minimum", argmin="argmax"),
    **dict(argmax="argmin", round="int", ceil="floor", floor="ceil", startswith="endswith", endswith="startswith"),
    **dict(lstrip="rstrip", rstrip="lstrip", zeros="ones", ones="zeros", isfinite="isnan", kill="terminate"),
}
_FUNCTION_NAMES = {"mean": "median", "median": "mean", "sorted": "list"}  # no methods of an array
_DROPPED_METHODS = (
    "lower upper casefold strip rstrip lstrip copy resolve absolute expanduser clip round astype sum max min items sort"
).split()
_DROPPED_FUNCTIONS = ("abs", "sorted", "set", "reversed")
_SAME_WITHOUT = (  # keywords that change no result, or only words
    "help description metavar title encoding errors check capture_output text stacklevel flush prog epilog usage dest"
).split()
_LOGGING = re.compile(r"(logg?er|MESSAGES|logging|warnings|_?log)\.|print\(|_?warn\(|_?report\(")
_ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp)
_PATH = re.compile(r"(path|folder|directory|REPOSITORY|root|parent)\W*$", re.I)


def faults_of(path: str, source: bytes) -> list[Fault]:
    """Return the faults of a module, by place; `choose` leaves out faults that do not compile or change nothing."""
    return sorted(_Finder(path, source).find(ast.parse(source)), key=lambda fault: (fault.start, fault.end, fault.new))


def choose(faults: list[Fault], number: int, seed: int, source: bytes) -> list[Fault]:
    """Return `number` of the faults, equal for equal seeds, of as many lines and kinds as possible."""
    rest, chosen, seen = list(faults), list[Fault](), {ast.dump(ast.parse(source))}
    random.Random(f"{seed} {faults[0].path if faults else ''}").shuffle(rest)
    lines, kinds = Counter[int](), Counter[str]()
    while rest and len(chosen) < number:
        best = min(rest, key=lambda fault: (lines[fault.line], kinds[fault.kind]))
        rest.remove(best)
        try:
            changed = ast.dump(ast.parse(best.apply(source)))
        except SyntaxError:
            continue
        if changed not in seen:
            seen.add(changed)
            chosen.append(best)
            lines[best.line] += 1
            kinds[best.kind] += 1
    return chosen


def fault_of_text(path: str, source: bytes, old: str, new: str) -> Fault | None:
    """Return the fault that replaces a text by another; None if the source does not have the text exactly once."""
    if source.count(old.encode()) != 1:
        return None
    start = source.index(old.encode())
    line = source[:start].count(b"\n") + 1
    return Fault(path, line, start, start + len(old.encode()), new, "text", _one_line(old), _one_line(new))


class _Finder:
    def __init__(self, path: str, source: bytes):
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def find(self, tree: ast.AST) -> Iterator[Fault]:
        for field, node in _children(tree):
            if self._is_skipped(field, node):
                continue
            if isinstance(node, ast.stmt):
                yield from self._of_statement(node, tree)
            elif isinstance(node, ast.expr):
                yield from self._of_expression(node, tree)
            elif isinstance(node, ast.ExceptHandler):
                yield from self._of_handler(node)
            elif isinstance(node, ast.comprehension):
                yield from (self._edit(test, test, "True", "condition") for test in node.ifs)
            yield from self.find(node)

    def _is_skipped(self, field: str, node: ast.AST) -> bool:
        """Tell whether a node is a type hint, docstring, message, import, assertion, or the guard of a script."""
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            return True
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr) or _is_type(node):
            return True
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant) or bool(_LOGGING.match(self._text(node)))
        if isinstance(node, ast.If):
            return self._text(node.test).startswith(("__name__", "TYPE_CHECKING"))
        return isinstance(node, ast.keyword) and node.arg in _SAME_WITHOUT

    def _of_statement(self, node: ast.stmt, parent: ast.AST) -> Iterator[Fault]:
        in_branch = isinstance(parent, ast.If | ast.For | ast.While)
        assigned = isinstance(node, ast.Assign) and all(
            isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
        )
        called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        in_function = not isinstance(parent, ast.Module | ast.ClassDef)
        left = isinstance(node, ast.Return) and in_branch
        if isinstance(node, ast.AugAssign | ast.Continue | ast.Break | ast.Delete):
            yield self._edit(node, node, "pass", "statement")
        elif left or in_function and (called or assigned):
            yield self._edit(node, node, "pass", "statement")
        if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
            old, new = _ARITHMETIC[type(node.op)]
            yield from self._between(node, node.target, node.value, re.escape(old) + "=", new + "=", "arithmetic")
        elif isinstance(node, ast.If | ast.While) and not any(
            isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)
        ):
            yield self._edit(node.test, node.test, "False", "condition")
            if isinstance(node, ast.If):
                yield self._edit(node.test, node.test, "True", "condition")

    def _of_expression(self, node: ast.expr, parent: ast.AST) -> Iterator[Fault]:
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for number, operator in enumerate(node.ops):
                old, new = _COMPARISONS[type(operator)]
                yield from self._between(node, operands[number], operands[number + 1], old, new, "comparison")
                if (
                    isinstance(operator, ast.In | ast.NotIn)
                    and isinstance(node.comparators[number], ast.Tuple)
                    and len(node.comparators[number].elts) > 2
                ):
                    yield from self._without_one(node.comparators[number], "element")
        elif isinstance(node, ast.BinOp):
            yield from self._of_arithmetic(node)
        elif isinstance(node, ast.BoolOp):
            for value in node.values[:: len(node.values) - 1]:
                yield self._edit(node, node, self._wrapped(value), "operand")
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            yield from self._between(node, node.values[0], node.values[1], rf"\b{old}\b", new, "operator")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
            yield self._edit(node, node, self._wrapped(node.operand), "not")
        elif isinstance(node, ast.IfExp):
            yield self._edit(node, node, self._wrapped(node.body), "branch")
            yield self._edit(node, node, self._wrapped(node.orelse), "branch")
        elif isinstance(node, ast.Set) and len(node.elts) > 1:
            yield from self._without_one(node, "element")
        elif isinstance(node, ast.Slice):
            yield from self._of_slice(node)
        elif isinstance(node, ast.Constant):
            yield from self._of_constant(node, parent)
        elif isinstance(node, ast.Call):
            yield from self._of_call(node)

    def _of_arithmetic(self, node: ast.BinOp) -> Iterator[Fault]:
        sides = (node.left, node.right)
        if type(node.op) not in _ARITHMETIC or any(map(_is_text, sides)):
            return
        if isinstance(node.op, ast.Div) and _PATH.search(self._text(node.left)):
            return
        if isinstance(node.op, ast.BitOr) and any(self._text(side)[:1].isupper() for side in sides):
            return  # a union of types
        old, new = _ARITHMETIC[type(node.op)]
        yield from self._between(node, *sides, re.escape(old), new, "arithmetic")
        yield self._edit(node, node, self._wrapped(node.left), "term")
        if not isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod):
            yield self._edit(node, node, self._wrapped(node.right), "term")

    def _of_constant(self, node: ast.Constant, parent: ast.AST) -> Iterator[Fault]:
        value = node.value
        if isinstance(value, bool):
            yield self._edit(node, node, str(not value), "truth")
        elif isinstance(value, int):
            yield self._edit(node, parent, str(value + 1), "number")
            if value > 0 and not isinstance(parent, ast.UnaryOp):
                yield self._edit(node, parent, str(value - 1), "number")
        elif isinstance(value, float):
            is_small = 0 < abs(value) < 0.001  # an epsilon
            yield self._edit(node, parent, "0.0" if is_small else repr(2 * value or 1.0), "number")

    def _of_call(self, node: ast.Call) -> Iterator[Fault]:
        called, arguments = node.func, node.args
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        is_method = isinstance(called, ast.Attribute) and self._text(called.value) not in ("np", "numpy", "statistics")
        other = _NAMES.get(name) or (None if is_method else _FUNCTION_NAMES.get(name))
        if other:
            end = self._place(called)[1]
            yield self._make(end - len(name), end, other, "function", node)
        if isinstance(called, ast.Attribute) and name in _DROPPED_METHODS:
            yield self._edit(node, node, self._wrapped(called.value), "method")
        elif isinstance(called, ast.Name) and name in _DROPPED_FUNCTIONS and len(arguments) == 1:
            yield self._edit(node, node, self._wrapped(arguments[0]), "function")
        if name == "range" and isinstance(called, ast.Name):
            limit = arguments[min(1, len(arguments) - 1)]
            yield self._edit(limit, node, self._wrapped(limit) + " - 1", "range")
            yield self._edit(limit, node, self._wrapped(limit) + " + 1", "range")
        plain = (ast.Name, ast.Attribute, ast.Subscript)
        if name not in ("isinstance", "getattr", "setattr", "hasattr", "issubclass"):
            for first, second in zip(arguments, arguments[1:], strict=False):
                if isinstance(first, plain) and isinstance(second, plain):
                    (start, a), (b, end) = self._place(first), self._place(second)
                    new = self._text(second) + self._source[a:b].decode() + self._text(first)
                    yield self._make(start, end, new, "arguments", node)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in _SAME_WITHOUT:
                yield self._without(node, keyword, [*arguments, *node.keywords], "keyword")

    def _of_slice(self, node: ast.Slice) -> Iterator[Fault]:
        for bound, changes in ((node.lower, (" + 1",)), (node.upper, (" - 1", " + 1"))):
            if bound is not None and not isinstance(bound, ast.Constant | ast.UnaryOp):
                for change in changes:
                    yield self._edit(bound, node, self._wrapped(bound) + change, "slice")

    def _of_handler(self, node: ast.ExceptHandler) -> Iterator[Fault]:
        if isinstance(node.type, ast.Tuple):
            yield from self._without_one(node.type, "except")

    def _without_one(self, node: ast.Tuple | ast.Set, kind: str) -> Iterator[Fault]:
        """Yield the faults that leave out the first and the last element."""
        for element in {id(element): element for element in (node.elts[0], node.elts[-1])}.values():
            yield self._without(node, element, node.elts, kind)

    def _without(self, node: ast.expr, dropped: ast.AST, elements: list, kind: str) -> Fault:
        """Return the fault that leaves out an element of a list, with a comma; elements may be in parentheses."""
        elements = sorted(elements, key=self._place)
        start, end = self._place(dropped)
        number = next(number for number, element in enumerate(elements) if element is dropped)
        if number + 1 < len(elements) and number == 0:
            end = self._place(elements[1])[0]
        elif number:
            start = self._source.rindex(b",", self._place(elements[number - 1])[1], start)
        return self._make(start, end, "", kind, node)

    def _between(self, node, left, right, old: str, new: str, kind: str) -> Iterator[Fault]:
        """Yield the fault that replaces an operator between two operands, which may be in parentheses."""
        start, end = self._place(left)[1], self._place(right)[0]
        found = re.search(old.encode(), self._source[start:end])
        if found:
            yield self._make(start + found.start(), start + found.end(), new, kind, node)

    def _edit(self, node: ast.AST, around: ast.AST, new: str, kind: str) -> Fault:
        return self._make(*self._place(node), new, kind, around)

    def _make(self, start: int, end: int, new: str, kind: str, around: ast.AST) -> Fault:
        """Make a fault with some characters of the expression on both sides, for readers."""
        first, last = self._place(around) if hasattr(around, "lineno") else (start, end)
        line = self._source[:start].count(b"\n") + 1
        before, after = self._source[start:end], new.encode()
        same = len(os.path.commonprefix([before, after]))
        same_end = len(os.path.commonprefix([before[same:][::-1], after[same:][::-1]]))
        first, last = max(first, start + same - 24), min(last, end - same_end + 16)
        tail = self._source[end:last] if last > end else b""
        cut = max(0, end - last)
        shown = (
            self._source[first:last],
            self._source[first:start] + after[max(0, first - start) : len(after) - cut] + tail,
        )
        before_text, after_text = (_one_line(text.decode(errors="ignore")) for text in shown)
        return Fault(self._path, line, start, end, new, kind, before_text, after_text)

    def _place(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self._starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._place(node)
        return self._source[start:end].decode()

    def _wrapped(self, node: ast.AST) -> str:
        is_atom = isinstance(node, _ATOMS) or isinstance(node, ast.Constant) and "\n" not in self._text(node)
        return self._text(node) if is_atom else f"({self._text(node)})"


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


def _is_type(node: ast.AST) -> bool:
    """Tell whether an expression is a type variable, whose bound only checkers read."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("TypeVar", "cast")


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _one_line(text: str) -> str:
    return " ".join(text.split())
