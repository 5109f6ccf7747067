"""How exactly must a graph be known? The paper's study of a star whose centre has few or no records (Section 2).

A star of K = 30 strata, least squares with n = 20 parameters each, 100 records in every leaf, none in the centre. The true
graph W* makes the centre the weighted mean of the leaves: theta*_centre = Σ w_k theta*_k / Σ w_k. The fits use
W* + epsilon W1, where W1 is a sparse random star of the same Frobenius norm; the distance of the centre's fit from the truth is
plotted against epsilon. In the second group of fits, one leaf has far larger parameters than in the first. Finally the centre
gets records, and the slope of the distance is plotted against their number.

The paper does not give the spread of its parameters, its noise or the scale of its weights. Ours are below, so the shapes of
the curves can be compared, but not the numbers. The fits are shown with the prediction of ``strat.sensitivity`` from the
single fit at W*, and with the bound of Theorem 1 for the first leaf's weight.

Run ``python examples/sensitivity.py [--trials 50]``; it saves sensitivity.png.
"""

import argparse

import cvxpy as cp
import numpy as np

import strat

K, n, RECORDS, NOISE = 30, 20, 100, 0.1
GROUPS = {
    "moderate imbalance": 5.0,
    "severe imbalance": 50.0,
}  # norm of the first leaf; the others have about 1
DENSITY, WEIGHT = 0.3, 0.1
EPSILON = np.linspace(0, 0.1, 6)
CENTRE_RECORDS = (0, 5, 10, 20, 40, 80)


def declare():
    """Return least squares with a small ridge."""
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    return strat.BaseModel(cp.square(y - x @ theta), 1e-6 * cp.sum_squares(theta), data=(x, y))


def truth(rng, imbalance):
    """Return the weights W* of the star and theta*, the centre first."""
    weight = WEIGHT * rng.uniform(0.5, 1.5, K - 1)
    leaves = 1 + 0.5 * rng.standard_normal((K - 1, n))
    norms = np.r_[imbalance, rng.uniform(0.5, 1.0, K - 2)]
    leaves *= (norms / np.linalg.norm(leaves, axis=1))[:, None]
    return weight, np.vstack([weight @ leaves / weight.sum(), leaves])


def records(rng, theta, centre):
    """Return (X, Y, strata) with RECORDS records per leaf and ``centre`` of them in the centre."""
    strata = np.repeat(np.arange(K), [centre, *[RECORDS] * (K - 1)])
    X = rng.standard_normal((len(strata), n))
    return X, np.einsum("rn,rn->r", X, theta[strata]) + NOISE * rng.standard_normal(len(strata)), strata


def perturbations(rng, weight, trials):
    """Return sparse random stars W1 (trials, K - 1) of the norm of W*."""
    changes = rng.uniform(0, 1, (trials, K - 1)) * (rng.random((trials, K - 1)) < DENSITY)
    changes[np.arange(trials), rng.integers(0, K - 1, trials)] += 1e-9  # no star is empty
    return changes * (np.linalg.norm(weight) / np.linalg.norm(changes, axis=1))[:, None]


def distance(theta, true):
    """Return ‖theta − theta*‖ / ‖theta*‖."""
    return np.linalg.norm(theta - true, axis=-1) / np.linalg.norm(true, axis=-1)


def study(base, data, weight, true, changes, epsilon):
    """Return the centre's distances (trials, len(epsilon)) of the fits, as predicted by the derivatives at W*, and that fit."""
    X, Y, strata = data

    def fit(w):
        return strat.lrsm(base, strat.graphs.star(K, weight=w)).fit(X, Y, strata=strata)

    model = fit(weight)
    start = model.theta_["theta"][0]
    fitted = [
        [start, *(fit(weight + e * change).theta_["theta"][0] for e in epsilon[1:])] for change in changes
    ]
    edges = [(0, k) for k in range(1, K)]
    derivatives = strat.sensitivity(model, edges=edges)
    slopes = changes @ np.array(
        [derivatives[edge]["theta"][0] for edge in edges]
    )  # d theta_centre / d epsilon
    predicted = start + epsilon[:, None] * slopes[:, None]
    return distance(np.array(fitted), true[0]), distance(predicted, true[0]), model


def largest_change(weight, true, model):
    """Return Theorem 1's bound on ε / W_ik for the largest leaf, at the accuracy of the fit at W*."""
    norms, errors = np.linalg.norm(true, axis=1), distance(model.theta_["theta"], true)
    share, ratio = weight[0] / weight.sum(), norms[1] / np.delete(norms, 1).max()
    return strat.sensitivity_bound(share, ratio, delta=errors[1:].max(), delta_center=errors[0])


def main():
    """Run both groups, print the table, save the picture."""
    parser = argparse.ArgumentParser(
        description="Sensitivity of a stratum without records to the graph's weights."
    )
    parser.add_argument("--trials", type=int, default=10, help="random perturbations W1 (the paper: 50)")
    trials = parser.parse_args().trials
    base, curves, slopes = declare(), {}, {}
    for name, imbalance in GROUPS.items():
        rng = np.random.default_rng(0)
        weight, true = truth(rng, imbalance)
        changes = perturbations(rng, weight, trials)
        for centre in CENTRE_RECORDS:
            epsilon = EPSILON if centre == 0 else EPSILON[[0, -1]]
            found = study(base, records(rng, true, centre), weight, true, changes, epsilon)
            slopes[name, centre] = (found[0][:, -1] - found[0][:, 0]) / epsilon[-1]
            if centre == 0:
                curves[name] = (*found[:2], np.linalg.norm(true, axis=1))
                print(f"{name}: norm of the first leaf {imbalance:g}, of the centre {curves[name][2][0]:.2f}")
                print("  epsilon          " + "".join(f"{e:8.2f}" for e in EPSILON))
                print("  distance, fits   " + "".join(f"{d:8.4f}" for d in found[0].mean(axis=0)))
                print("  predicted        " + "".join(f"{d:8.4f}" for d in found[1].mean(axis=0)))
                bound = largest_change(weight, true, found[2])
                print(
                    f"  Theorem 1: this accurate on both sides, the first leaf's weight has changed by at most {bound:.1%}"
                )
        print("  records in centre" + "".join(f"{c:8d}" for c in CENTRE_RECORDS))
        print(
            "  mean slope       " + "".join(f"{slopes[name, c].mean():8.4f}" for c in CENTRE_RECORDS),
            end="\n\n",
        )
    picture(curves, slopes, trials)
    print("saved sensitivity.png")


def picture(curves, slopes, trials):
    """Save distances against epsilon, norms of the true parameters, and slopes against the centre's records."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, 2, figsize=(9, 10), layout="constrained", sharey="row")
    for (name, (fits, predicted, norms)), column in zip(curves.items(), axes.T, strict=True):
        half = 1.645 / np.sqrt(trials)  # 90 % for the mean
        band(column[0], EPSILON, fits, half)
        column[0].plot(EPSILON, predicted.mean(axis=0), "k:", label="predicted by strat.sensitivity")
        column[0].set(title=name, xlabel="perturbation epsilon", ylabel="distance of the centre's fit")
        column[0].legend(frameon=False)
        column[1].plot(range(K - 1), norms[1:], "o")
        column[1].plot(K - 1, norms[0], "o", color="tab:orange")
        column[1].set(xlabel="stratum (orange: centre)", ylabel="norm of the true parameters", yscale="log")
        values = np.array([slopes[name, centre] for centre in CENTRE_RECORDS]).T
        band(column[2], CENTRE_RECORDS, values, half)
        column[2].set(xlabel="records in the centre", ylabel="slope of the distance")
    figure.savefig("sensitivity.png", dpi=120)
    plt.close(figure)


def band(ax, x, values, half):
    """Draw the mean over trials and its 90 % confidence interval."""
    mean, error = values.mean(axis=0), half * values.std(axis=0, ddof=1) if len(values) > 1 else 0.0
    ax.plot(x, mean, "o-", label=f"fits, mean of {len(values)}")
    ax.fill_between(x, mean - error, mean + error, alpha=0.2, linewidth=0)
    ax.grid(alpha=0.3)


if __name__ == "__main__":
    main()
