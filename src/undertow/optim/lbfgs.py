"""L-BFGS: a quasi-Newton method for smooth objectives that can be evaluated again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from undertow.backend.interface import Array, Namespace
from undertow.long_loops import long_loop
from undertow.modes import enable_grad, no_grad
from undertow.optim.optimizer import Closure, Optimizer, check_at_least_zero
from undertow.tensor import Tensor, counter_of

if TYPE_CHECKING:
    from undertow.optim.optimizer import Params

#: the objective and its directional derivative as functions of the step length: t -> (value, gradient)
Evaluate = Callable[[float], tuple[float, Any]]


class LBFGS(Optimizer):
    """Limited-memory BFGS. Its `step` needs a closure, which computes the loss and its gradients anew.

    max_iter          iterations in one step
    max_eval          evaluations of the closure in one step (None: 1.25 times max_iter)
    history_size      how many pairs of steps and gradient changes stand for the Hessian
    line_search_fn    None (step length lr) or "strong_wolfe"
    progress          show how far each step is; True: on standard error, or a stream
    tolerance_grad    a step ends when no element of the gradient is larger
    tolerance_change  a step ends when the parameters, or the loss, change by no more

    >>> import undertow as ut
    >>> p = ut.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = ut.optim.LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((p - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    13.0
    >>> [round(v, 4) for v in p.tolist()]
    [1.0, 1.0]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        progress: bool | TextIO = False,
    ) -> None:
        check_at_least_zero(lr=lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported as line_search_fn (or None, for steps of length lr)")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self.progress = progress
        self._params: list[Any] = self.param_groups[0]["params"]

    def step(self, closure: Closure | None = None) -> Any:
        """Run up to max_iter iterations; the loss before the first.

        closure  clears the gradients, computes the loss, calls backward on it, and returns it
        """
        if closure is None:
            raise TypeError(
                "LBFGS.step() missing 1 required positional argument: 'closure'. It evaluates the loss several times "
                "in a step, by calling it"
            )
        with no_grad():
            return self._iterate(closure)

    def _iterate(self, closure: Closure) -> Any:
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = self._evaluate(closure)
        loss, evaluations = number(first_loss), 1
        state["func_evals"] += 1
        grad = self._gradient()
        if abs(grad).max(initial=0) <= group["tolerance_grad"]:
            return first_loss
        memory = Memory.of(state, group["history_size"])
        for iteration in self._iterations(group["max_iter"]):
            state["n_iter"] += 1
            memory.learn(grad, state["n_iter"] == 1)
            direction = memory.direction(grad)
            slope = float(grad @ direction)
            length = float(group["lr"])
            if state["n_iter"] == 1:
                length /= max(1.0, float(abs(grad).sum()))
            memory.last_grad, memory.last_loss = grad.copy(), loss
            memory.last_direction, memory.last_length = direction, length
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if group["line_search_fn"] is not None:
                loss, grad, length, used = self._search(
                    closure, direction, loss, grad, slope, length, group["max_eval"] - evaluations
                )
                self._move(direction, length)
            elif iteration != group["max_iter"] - 1:
                self._move(direction, length)
                loss, used = number(self._evaluate(closure)), 1
                grad = self._gradient()
            else:
                self._move(direction, length)
            evaluations += used
            state["func_evals"] += used
            memory.last_length = length
            if iteration == group["max_iter"] - 1:
                continue  # the loop ends by itself, and is shown as done
            change = abs(direction * length).max(initial=0)
            if (
                evaluations >= group["max_eval"]
                or abs(grad).max(initial=0) <= group["tolerance_grad"]
                or change <= group["tolerance_change"]
                or abs(loss - memory.last_loss) < group["tolerance_change"]
            ):
                break
        memory.keep(state, self._params[0]._xp)
        return first_loss

    def _iterations(self, count: int) -> Iterable[int]:
        if not self.progress:
            return long_loop(range(count), count, "LBFGS")
        from undertow.instrument.progress_bars import progress

        return progress(range(count), name="LBFGS", file=None if self.progress is True else self.progress)

    def _evaluate(self, closure: Closure) -> Any:
        with enable_grad():
            return closure()

    def _gradient(self) -> Array:
        """All gradients in one vector; a parameter without one counts as zeros."""
        xp = self._params[0]._xp
        parts = [xp.zeros_like(p._array) if p.grad is None else p.grad._array for p in self._params]
        return xp.concatenate([self._flat(xp, a) for a in parts])

    @staticmethod
    def _flat(xp: Namespace, array: Array) -> Array:
        flat = xp.ascontiguousarray(array).reshape(-1)
        return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat

    def _move(self, direction: Array, length: float) -> None:
        """Add length * direction to the parameters."""
        start = 0
        for p in self._params:
            array = p._array
            count = array.size * (2 if array.dtype.kind == "c" else 1)
            part = direction[start : start + count]
            if array.dtype.kind == "c":
                part = part.view(array.dtype)
            array += (length * part).astype(array.dtype, copy=False).reshape(array.shape)
            counter_of(p).bump("LBFGS.step")
            start += count

    def _search(
        self,
        closure: Closure,
        direction: Array,
        loss: float,
        grad: Array,
        slope: float,
        length: float,
        max_tries: int,
    ) -> tuple[float, Any, float, int]:
        """A step length that fulfils the strong Wolfe conditions; the parameters are where they were afterwards."""
        kept = [p._array.copy() for p in self._params]

        def evaluate(t: float) -> tuple[float, Any]:
            self._move(direction, t)
            value = number(self._evaluate(closure))
            found = self._gradient()
            for p, array in zip(self._params, kept, strict=True):
                p._array[...] = array
            return value, found

        tolerance = self.param_groups[0]["tolerance_change"]
        return strong_wolfe(evaluate, direction, loss, grad, slope, length, tolerance, max_tries=max_tries)


def number(loss: Array) -> float:
    """What a closure returned, as a number."""
    return float(loss._array.item() if isinstance(loss, Tensor) else loss)


class Memory:
    """The last steps and what they did to the gradient: an approximation of the inverse Hessian."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.steps: list[Any] = []
        self.changes: list[Any] = []
        self.scale = 1.0
        self.last_grad: Any = None
        self.last_loss = 0.0
        self.last_direction: Any = None
        self.last_length = 0.0

    @classmethod
    def of(cls, state: dict[str, Any], size: int) -> Memory:
        """As it was left in the state by the last step."""
        memory = cls(size)
        if "old_dirs" in state:
            memory.changes = [t._array for t in state["old_dirs"]]
            memory.steps = [t._array for t in state["old_stps"]]
            memory.scale, memory.last_length = float(state["H_diag"]), float(state["t"])
            memory.last_grad, memory.last_direction = state["prev_flat_grad"]._array, state["d"]._array
        return memory

    def keep(self, state: dict[str, Any], xp: Namespace) -> None:
        """Leave it in the state, under PyTorch's names."""
        if self.last_direction is not None:
            kind = self.last_grad.dtype
            state["d"], state["t"] = Tensor(self.last_direction, xp), self.last_length
            state["old_dirs"] = [Tensor(array, xp) for array in self.changes]
            state["old_stps"] = [Tensor(array, xp) for array in self.steps]
            inverses = [1 / (change @ step) for change, step in zip(self.changes, self.steps, strict=True)]
            state["ro"] = [Tensor(xp.asarray(x, dtype=kind), xp) for x in inverses]
            state["H_diag"] = Tensor(xp.asarray(self.scale, dtype=kind), xp) if self.changes else 1
            state["prev_flat_grad"], state["prev_loss"] = Tensor(self.last_grad, xp), self.last_loss

    def learn(self, grad: Array, first: bool) -> None:
        """Take in what the last step did, if it tells of a positive curvature."""
        if first or self.last_direction is None:
            return
        change, step = grad - self.last_grad, self.last_direction * self.last_length
        curvature = float(change @ step)
        if curvature > 1e-10:
            self.changes.append(change)
            self.steps.append(step)
            del self.changes[: -self.size], self.steps[: -self.size]
            self.scale = curvature / float(change @ change)

    def direction(self, grad: Array) -> Array:
        """Minus the approximate inverse Hessian times the gradient (the two-loop recursion)."""
        q, taken = -grad, []
        for step, change in zip(reversed(self.steps), reversed(self.changes), strict=True):
            weight = (step @ q) / (change @ step)
            taken.append(weight)
            q = q - weight * change
        r = q * self.scale
        for step, change, weight in zip(self.steps, self.changes, reversed(taken), strict=True):
            r = r + step * (weight - (change @ r) / (change @ step))
        return r.astype(grad.dtype, copy=False)


def cubic_minimum(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: Any = None) -> float:
    """Where the cubic through two points with two slopes has its minimum, within the bounds."""
    low, high = (min(x1, x2), max(x1, x2)) if bounds is None else bounds
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    inner = d1 * d1 - g1 * g2
    if inner < 0:
        return (low + high) / 2
    d2 = inner**0.5
    found = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)) if x1 <= x2 else (
        x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    )  # fmt: skip
    return min(max(found, low), high)


class Point:
    """What is known at one step length."""

    def __init__(self, t: float, value: float, grad: Array, slope: float) -> None:
        self.t, self.value, self.grad, self.slope = t, value, grad, slope


def strong_wolfe(
    evaluate: Evaluate,
    direction: Array,
    loss: float,
    grad: Array,
    slope: float,
    length: float,
    tolerance: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    max_tries: int = 25,
) -> tuple[float, Any, float, int]:
    """Bracket a minimum along the direction, then narrow the bracket (Nocedal and Wright, algorithms 3.5 and 3.6).

    Returns loss, gradient and length at the point found, and the number of evaluations.
    """
    size = float(abs(direction).max(initial=0))
    start = Point(0.0, loss, grad, slope)

    def at(t: float) -> Point:
        value, found = evaluate(t)
        return Point(t, value, found, float(found @ direction))

    def too_high(p: Point) -> bool:
        return p.value > loss + c1 * p.t * slope

    before, now, tries = start, at(length), 1
    bracket: list[Point] | None = None
    while tries <= max_tries:
        if too_high(now) or (tries > 2 and now.value >= before.value):
            bracket = [before, now]
            break
        if abs(now.slope) <= -c2 * slope:
            return now.value, now.grad, now.t, tries
        if now.slope >= 0:
            bracket = [before, now]
            break
        nearest, farthest = now.t + 0.01 * (now.t - before.t), now.t * 10
        following = cubic_minimum(
            before.t, before.value, before.slope, now.t, now.value, now.slope, (nearest, farthest)
        )
        before, now = now, at(following)
        tries += 1
    if bracket is None:
        bracket = [start, now]
    return _narrowed(bracket, at, too_high, slope, c2, size, tolerance, tries, max_tries)


def _narrowed(
    bracket: list[Point],
    at: Callable[[float], Point],
    too_high: Callable[[Point], bool],
    slope: float,
    c2: float,
    size: float,
    tolerance: float,
    tries: int,
    max_tries: int,
) -> tuple[float, Any, float, int]:
    slow = False
    low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
    while tries <= max_tries:
        a, b = bracket
        if abs(b.t - a.t) * size < tolerance:
            break
        t = cubic_minimum(a.t, a.value, a.slope, b.t, b.value, b.slope)
        least, most = min(a.t, b.t), max(a.t, b.t)
        margin = 0.1 * (most - least)
        if min(most - t, t - least) < margin:  # near an end: at the second time in a row, step away from it
            if slow or t >= most or t <= least:
                t = most - margin if abs(t - most) < abs(t - least) else least + margin
                slow = False
            else:
                slow = True
        else:
            slow = False
        new = at(t)
        tries += 1
        if too_high(new) or new.value >= bracket[low].value:
            bracket[high] = new
            low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
            continue
        if abs(new.slope) <= -c2 * slope:
            bracket[low] = new
            break
        if new.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
    best = bracket[low]
    return best.value, best.grad, best.t, tries


def _strong_wolfe(
    obj_func: Any,
    x: Any,
    t: Any,
    d: Any,
    f: Any,
    g: Any,
    gtd: Any,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[Any, Any, float, int]:
    """The line search, as libraries call PyTorch's: `obj_func(x, t, d)` gives loss and gradient at x + t * d."""

    def evaluate(length: float) -> tuple[float, Any]:
        value, found = obj_func(x, length, d)
        return number(value), found._array

    start = number(f), g._array, number(gtd), number(t)
    loss, grad, length, tries = strong_wolfe(evaluate, d._array, *start, tolerance_change, c1, c2, max_ls)
    return loss, Tensor(grad, g._xp), length, tries


def _cubic_interpolate(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None
) -> float:
    """`cubic_minimum`, as libraries call PyTorch's."""
    return cubic_minimum(x1, f1, g1, x2, f2, g2, bounds)
