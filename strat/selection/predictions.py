"""Losses as functions of the prediction, and the predictions of other models on the scale of a loss."""

from contextlib import suppress

import numpy as np
import scipy.sparse as sp

from strat.errors import DataWarning, OptionError, StratError
from strat.model.estimator import StratifiedModel
from strat.records.strata import Strata

ROUNDING = 1e-6  # tolerance for the losses that two parameter vectors with the same prediction give


def used_by_predict(base):
    """Positions of the data arguments that a declaration's ``predict`` depends on."""
    ids = () if base.predict is None else {p.id for p in base.predict_program.data}
    return [place for place, p in enumerate(base.data) if p.id in ids]


def check_predictable(base, who):
    """Raise an OptionError unless the loss is a function of one predicted number; `who` names the caller in messages."""
    program = base.predict_program
    if program is None or base.predict.size != 1 or not base.predict.is_affine():
        raise OptionError(
            f"{who} needs a declaration whose loss is a function of one number that is affine in the variables, such as "
            f"x @ theta + b, with predict= that number; predict is {base.predict}."
        )
    last = base.data[-1]
    if last.size != 1 or len(base.data) - 1 in used_by_predict(base):
        raise OptionError(
            f"{who} takes the last data argument for the target, one number a record that predict does not depend on, but "
            f"that is {last.name()} of shape {last.shape}."
        )


def warn_of_losses(models, way):
    """Warn where the losses of named models differ at test targets with all else 0; `way` says what to do instead."""
    own, groups = Strata(range(4), np.arange(4)), {}
    for name, model in models.items():
        if not hasattr(model, "_values"):  # one of scikit-learn, measured by another model's loss
            continue
        program, arrays = model.base.loss_program, [np.zeros((4, *p.shape)) for p in model.base.data]
        for target in arrays[-1:]:
            target.T[...] = -1.0, 0.0, 1.0, 2.0
        with suppress(StratError):  # the fits will raise it
            losses = program.evaluation(arrays, own, model._values)(np.zeros((4, model.base.layout.n)))
            groups.setdefault(losses.round(9).tobytes(), []).append(repr(name))
    if len(groups) > 1:
        named = " – ".join(map(", ".join, groups.values()))
        DataWarning.warn(f"mean losses do not compare where the losses differ, as those of {named} do. {way}")


class LossOfPrediction:
    """The losses (N,) of some records at predictions u (N,).

    For any direction r, the parameters θ = t r with t = (u − predict(0)) / (predict(r) − predict(0)) predict u. If two
    directions give different losses, the loss is not a function of u, and an OptionError that names `who` is raised.
    """

    def __init__(self, base, values, arrays, who):
        N = arrays[0].shape[0]
        self.one_each = Strata(range(N), np.arange(N))
        data = [arrays[place] for place in used_by_predict(base)]
        predict = base.predict_program.evaluation(data, self.one_each, values)
        self.loss = base.loss_program.evaluation(arrays, self.one_each, values)
        rng = np.random.default_rng(0)
        self.directions = rng.normal(size=(2, 1, base.layout.n))
        zeros = np.zeros((N, base.layout.n))
        self.start = predict(zeros).ravel()
        self.slopes = [predict(zeros + r).ravel() - self.start for r in self.directions]
        u = self.start + rng.normal(size=len(zeros))
        one, other = self(u, 0), self(u, 1)
        if not np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING):
            raise OptionError(
                f"{who} needs a loss that is a function of predict and the data, but parameters with one prediction have the "
                f"losses {one[one != other][0]:.6g} and {other[one != other][0]:.6g}."
            )

    def __call__(self, u, direction=0):
        t = np.zeros(len(u))
        np.divide(u - self.start, self.slopes[direction], out=t, where=self.slopes[direction] != 0)
        return self.loss(t[:, None] * self.directions[direction])


def on_loss_scale(base, values, arrays, mean, labels, shrunk, who):
    """The predictions u with the least expected loss, for predicted means (N,) of the target.

    The target takes the two values `labels` if these are given (by a classifier), and is the mean itself otherwise. Of the
    links u = m, log m, logit p, and the sign and difference of probabilities, each record takes the one of least expected
    loss, which has to be a local minimum. Where there is none, as for a probability of 0, the means `shrunk` are tried.
    """

    def best(m):
        p, targets = m, [(m, 1.0)]
        if labels is not None:
            low, high = labels
            p = np.clip((m - low) / (high - low), 0.0, 1.0)
            targets = [(np.full(len(m), low), 1 - p), (np.full(len(m), high), p)]
        parts = [(LossOfPrediction(base, values, [*arrays[:-1], y], who), share) for y, share in targets]

        def expected(u):
            return sum(np.where(share > 0, share * loss(np.nan_to_num(u)), 0.0) for loss, share in parts)

        with np.errstate(all="ignore"):
            tried = np.stack([m, np.log(m), np.log(p) - np.log1p(-p), 2 * p - 1, np.sign(2 * p - 1)])
            losses = np.stack([np.where(np.isfinite(u), expected(u), np.inf) for u in tried])
            choice = losses.argmin(axis=0), np.arange(len(m))
            u, least = tried[choice], losses[choice]
            around = [expected(u + s * 1e-3 * (1 + np.abs(u))) for s in (-1, 1)]
        return u, np.isfinite(least) & (np.min(around, axis=0) >= least - 1e-9 * (1 + np.abs(least)))

    u, good = best(mean)
    if not good.all():
        again, better = best(np.where(good, mean, shrunk))
        u, good = np.where(good, u, again), good | better
    if not good.all():
        k = int(np.flatnonzero(~good)[0])
        way = "It needs a classifier with predict_proba, such as CalibratedClassifierCV(…)."
        if labels is None:
            way = "A loss of labels needs a classifier, and a loss of rates a model that predicts above 0."
        raise OptionError(
            f"{who} predicts {mean[k]:.4g} for record {k}, for which the loss has no best prediction among the mean, its "
            f"logarithm and the logit of a probability. {way}"
        )
    return u


def prediction_of(model, part):
    """A fitted model's predictions for some records, on the scale of the declaration's ``predict``."""
    if not isinstance(model, StratifiedModel):
        return model.prediction(*part.data, strata=part.strata)
    places = used_by_predict(model.base)
    strata = part.strata if places[:1] == [0] else part.labels  # strata in columns need the first argument
    return model.predict(*(part.data[i] for i in places), strata=strata)


def measure(model, part, metric):
    """The mean loss of a fitted model on some records, or a metric f(y, prediction) of the last data argument."""
    if isinstance(metric, str):
        return -model.score(*part.data, strata=part.strata, sample_weight=part.weight)
    y = part.data[-1].toarray() if sp.issparse(part.data[-1]) else np.asarray(part.data[-1])
    y = y.reshape(len(y), *model.base.data[-1].shape)
    weights = {} if part.weight is None else {"sample_weight": part.weight}
    return float(metric(y, prediction_of(model, part), **weights))
