"""The files and functions of the package that a logistic fit enters before the first gradient, by room.

Run with ``python benchmarks/entered_files.py``.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path

import cvxpy as cp
import numpy as np

import strat

ROOT = Path(strat.__file__).parent


class FirstGradient(BaseException):
    """Ends the fit."""


def entered(fit):
    """``{file: functions}`` under the package that a fit enters until a gradient is asked for."""
    files = defaultdict(set)

    def seen(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            if code.co_name == "value_and_gradient":
                raise FirstGradient
            files[str(Path(code.co_filename).relative_to(ROOT))].add(code.co_qualname)

    try:
        sys.setprofile(seen)
        fit()
    except FirstGradient:
        pass
    finally:
        sys.setprofile(None)
    return files


def main():
    theta, x, y = cp.Variable(3, name="theta"), cp.Parameter(3, name="x"), cp.Parameter(name="y")
    loss = strat.losses.logistic(y, x @ theta)
    base = strat.BaseModel(loss, 0.1 * cp.sum_squares(theta), data=(x, y))
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(200, 3)), rng.integers(0, 5, 200)
    Y = np.where(X[:, 0] + rng.normal(size=200) > 0, 1.0, -1.0)
    model = strat.lrsm(base, strat.graphs.path(5))
    files = entered(lambda: model.fit(X, Y, strata=Z))
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions before the first gradient")
    for room, count in Counter(name.split("/")[0] for name in files).most_common():
        print(f"{count:4} {room}: {', '.join(sorted(Path(n).stem for n in files if n.startswith(room)))}")


if __name__ == "__main__":
    main()
