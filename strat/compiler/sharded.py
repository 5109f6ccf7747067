"""A loss bound to records piece by piece, so that all cores are used and only the pieces in use are copied."""

from functools import cache, partial

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.base import Quadratic, SumOracle, hessian_blocks
from strat.oracles.shards import LocalSum, Shard, Shards
from strat.records.chunks import named

#: Count of numbers in the records from which they are bound in pieces, and up to which the bound pieces are cached.
MANY, KEPT = 2**23, 2**27
#: Count of numbers in a piece.
PIECE = 2**20
#: Count of numbers in all strata's Hessians up to which quadratics are summed once and for all.
STATISTICS = 2**27
#: Number of records, from all strata, in the sample that shows which oracles the loss has.
SAMPLE = 2**12


def in_pieces(program, arrays, strata, weight, given, smooth=True):
    """The loss at records in memory as a sum of pieces; None where it needs all records at once."""
    K, N, n = strata.K, strata.N, program.layout.n
    width = max(sum(array.size for array in arrays) // N, 1)  # of a sparse array, the stored numbers
    bind = partial(program.bind_records, arrays, weight=weight, given=given, smooth=smooth)
    some = np.flatnonzero(weight)
    like = bind(strata=strata.merged(), part=some[:: max(1, len(some) // SAMPLE)])
    # Methods use derivatives alone of a loss that is twice differentiable, finite everywhere and without smoothed kinks.
    kinked = any(part.kinked_rows is not None for part in like.parts)
    nodes = [node for part in like.parts for node in getattr(part, "nodes", ())]
    if kinked or not like.has("hessian_operator") or any(node.rule.restricted for node in nodes):
        return None
    step = max(1, PIECE // width)
    # A piece is a run of neighbours in memory if records are sorted, or if sums over all strata are no larger than a piece.
    ascending = (strata.index[1:] >= strata.index[:-1]).all()
    neighbours, small = ascending or K * n * n <= PIECE, np.min_scalar_type(K)

    def piece(first):
        part = np.arange(first, min(first + step, N)) if neighbours else strata.order[first : first + step]
        part = part[weight[part] > 0]
        if neighbours:
            part = part[np.argsort(strata.index[part].astype(small), kind="stable")]
        return shard(bind, strata, part)

    shards = [partial(piece, first) for first in range(0, N, step)]
    shards = [cache(make) for make in shards] if N * width <= KEPT else shards
    return sum_over(LocalSum(lambda: shards, K), K, like)


def shard(bind, strata, part):
    """The `Shard` of the records at some positions; ``bind(strata=, part=)`` gives an oracle."""
    index = strata.index[part]
    first = np.flatnonzero(np.diff(index, prepend=-1))
    counts = np.diff(first, append=len(index))
    oracle = bind(strata=strata, part=part, statistics=False).interior() if len(part) else None
    return Shard(index[first], oracle, counts)


def chunk_shard(chunk, program, read, shared, given, smooth):
    records = read(chunk)
    strata = records.strata.merged() if shared else records.strata
    bind = partial(program.bind_records, records.arrays, weight=records.weight, given=given, smooth=smooth)
    with named(chunk[0]):
        return shard(bind, strata, strata.order[records.weight[strata.order] > 0])


def in_chunks(program, records, shared, given, smooth=True):
    """The loss at `ChunkedRecords` as a sum over the chunks."""
    K, sample = 1 if shared else records.strata.K, records.strata.merged()
    with named(records.first):
        like = program.bind_records(records.arrays, sample, records.weight, given, smooth=smooth)
    if smooth and not like.has("value_and_gradient"):
        raise NoOracleError(
            f"records in chunks or on a device are read by methods that follow gradients, but "
            f"{like.missing('value_and_gradient')}. Round the kinks with smoothing=1e-3 on the BaseModel, or pass arrays."
        )
    make = partial(chunk_shard, program=program, read=records.read, shared=shared, given=given, smooth=smooth)
    return sum_over(records.engine.start(make, records.chunks, K), K, like)


def sum_over(engine, K, like):
    """The sum over an engine's shards of K strata; a quadratic loss becomes its statistics where these are small enough.

    `like` is the oracle of a sample of the records, in one stratum.
    """
    n, shards = like.n, Shards(engine, K, like)
    part = shards
    if like.quadratic and K * n * n <= STATISTICS and all(isinstance(part, Quadratic) for part in like.parts):
        zero = np.zeros((1, n))
        hessian, slope = hessian_blocks(like, zero)[0], like.value_and_gradient(zero)[1][0]
        ridge = 1e-9 * np.trace(hessian) / n + 1e-300
        part = shards.statistics(-np.linalg.solve(hessian + ridge * np.eye(n), slope))
    loss = SumOracle([part], n, like.has("value_and_gradient"), like.has("hessian_operator"), why=like.why)
    loss.missing, loss.counts = shards.missing, shards.counts
    return loss
