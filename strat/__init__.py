"""Laplacian regularised stratified models declared in CVXPY, with a jointly learned graph."""

from importlib import import_module

#: The public names by module. A module is imported when one of its names is first used; one without names is public itself.
_HOMES = {
    "compiler.base_model": "BaseModel",
    "compiler.program": "Program compile",
    "model.hypergradient": "hypergradient",
    "model.sensitivity": "sensitivity sensitivity_bound",
    "model.standard_errors": "covariances standard_errors",
    "errors": "CollapseWarning ConvergenceWarning DataError DataWarning DeclarationError GraphError NoOracleError "
    "NotConvexError NotPerRecordError OptionError ShapeError StratError",
    "graphs": "",
    "losses": "",
    "model.baselines": "common entropy joint log_diagonal lrsm separate trace_constraint",
    "model.estimator": "StratifiedModel",
    "model.graph_learning": "LearnedGraph learn_graph",
    "model.loading": "load",
    "plot": "",
    "problem.graph_regularizers": "Entropy FixedGraph LogDet LogDiagonal TraceConstraint",
    "records.splitters": "RollingOrigin StrataKFold",
    "selection.blend": "blend",
    "selection.compare": "compare",
    "selection.search": "search",
    "selection.tuning.tune": "tune",
    "solvers": "ADMM MAPG AlternatingMinimization Cone NewtonCG Result",
}

__version__ = "0.2.0"

__all__ = sorted(name for home, names in _HOMES.items() for name in names.split() or [home])


def __getattr__(name):
    for home, names in _HOMES.items():
        if name in names.split() or name == home:
            module = import_module(f"strat.{home}")
            globals()[name] = module if name == home else getattr(module, name)
            return globals()[name]
    raise AttributeError(f"module 'strat' has no attribute {name!r}")


def __dir__():
    return sorted([*__all__, "__version__"])
