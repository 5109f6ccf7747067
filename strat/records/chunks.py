"""Records that are read a chunk at a time: from memory maps, Arrow datasets, iterators, or the shards of a cluster."""

import mmap
from contextlib import contextmanager
from functools import partial

import numpy as np

from strat.errors import DataError, GraphError, OptionError, ShapeError, optional, type_name
from strat.oracles.dask_engine import of_shards
from strat.oracles.device import Device
from strat.oracles.shards import Local
from strat.records.labels import read_labels
from strat.records.records import Records
from strat.records.sample import length, take
from strat.records.strata import NodeList, in_order

#: Numbers in memory maps from which these are read in chunks, records in such a chunk, and most records in the sample.
MANY, ROWS, SAMPLE = 2**23, 2**16, 2**12


class ChunkedRecords(Records):
    """Records in chunks; `arrays`, `weight` and ``strata.index`` are those of a sample, the start of the first chunk.

    `source` is an iterable of chunks, or a function that returns one: methods iterate over it repeatedly. Without `nodes`,
    the strata are the labels of all chunks, found by a pass over them. `engine` says where the chunks are. ``head`` has
    the sample as it was given, (*data, strata, weight), and ``first`` is the number of the sample's chunk.
    """

    counts = property(lambda self: self.strata.counts)  # of all records, once the loss is bound to them

    def __init__(self, parameters, source, declared, nodes, engine=None):
        first = source() if callable(source) else source
        # A function that returns the same iterator each time yields only what is left of it.
        once = hasattr(first, "__next__") and (first is source or source() is first)
        if once or not hasattr(first, "__iter__"):
            what = "an iterator" if first is source else "a function that returns the same iterator each time"
            why = f"{what}, which gives its chunks once, but methods read them again and again"
            raise DataError(
                f"chunks= is {why if once else repr(source)}. Pass a list of chunks, tuples (*data, strata) such as "
                f"(X[:n], Y[:n], z[:n]), a function that returns a new iterator of them each time, or a table."
            )
        self.source, self.engine = source, engine or Local()
        arguments = partial(arguments_of, parameters=parameters, declared=declared)
        heads = ((chunk[0], *self.engine.map(partial(_head, arguments), [chunk])) for chunk in self.chunks())
        self.first, head = next((found for found in heads if length(found[1][0])), (0, None))
        if head is None:
            raise DataError("chunks= has no records; there is nothing to fit.")
        if nodes is None:
            found = self.engine.map(partial(_labels, arguments, declared), self.chunks())
            nodes = in_order(dict.fromkeys(label for labels in found for label in labels))
        options = {"declared": declared, "nodes": NodeList(nodes), "part": True}
        read = partial(read_chunk, parameters=parameters, arguments=arguments)
        sample, self.head = read((self.first, head), options=options), head
        part = self.engine if isinstance(self.engine, Device) else True
        self.read = partial(read, options=options | {"columns": sample.columns, "part": part})
        weight = sample.weight if sample.weight.any() else np.ones(len(sample.weight))
        super().__init__(sample.arrays, sample.strata, weight, sample.columns)

    def chunks(self):
        """Numbered chunks; a function's are copied, as its iterator may refill the arrays before they are read."""
        return enumerate(map(_copied, self.source()) if callable(self.source) else self.source)


def _copied(chunk):
    if not isinstance(chunk, tuple):
        return chunk
    return tuple(np.array(a) if isinstance(a, np.ndarray) and a.flags.writeable else a for a in chunk)


def read_chunk(chunk, parameters, arguments, options):
    """The `Records` of a numbered chunk."""
    data, strata, weight = arguments(chunk)
    with named(chunk[0]):
        return Records.read(parameters, data, strata, "fit", weight=weight, **options)


@contextmanager
def named(number):
    """Let errors about records of a chunk begin with its number."""
    try:
        yield
    except (DataError, GraphError, ShapeError) as error:
        raise type(error)(f"chunk {number}: {error}") from None


def arguments_of(chunk, parameters, declared):
    """Data, strata and weights (None if not given) of a numbered chunk, a tuple or a function that returns one.

    A tuple is ``(*data, strata)`` or ``(*data, strata, sample_weight)``; strata may be left out where they are declared.
    """
    number, chunk = chunk
    if hasattr(chunk, "__dask_graph__"):  # without a cluster
        chunk = chunk.compute()
    chunk = chunk() if callable(chunk) else chunk
    m, names = len(parameters), ", ".join([p.name() for p in parameters] + ["strata"])
    is_tuple = isinstance(chunk, (tuple, list))
    if not is_tuple or not m + (declared is None) <= len(chunk) <= m + 2:
        what = f"has {len(chunk)} entries" if is_tuple else f"is {type_name(chunk)}"
        raise DataError(f"chunk {number} must be a tuple ({names}) or ({names}, sample_weight), but {what}.")
    return chunk[:m], *(*chunk[m:], None, None)[:2]


def _head(arguments, chunk):
    """The arguments of the first records of a chunk."""
    data, strata, weight = arguments(chunk)
    kept = strata is None or isinstance(strata, str) or len(strata) != length(data[0])
    heads = [take(argument, slice(SAMPLE)) for argument in data]
    strata = strata if kept else take(strata, slice(SAMPLE))
    return *heads, strata, None if weight is None else take(weight, slice(SAMPLE))


def _labels(arguments, declared, chunk):
    data, strata, _ = arguments(chunk)
    return read_labels(strata, data[0] if data else None, declared=declared).values


def chunks_of(data, strata, weight, chunks):
    """The source of chunks that the arguments of ``fit`` describe; None where they are records in memory.

    `chunks` is such a source, or a table whose columns the other arguments name.
    """
    if chunks is None:
        delayed = any(hasattr(argument, "__dask_graph__") for argument in (*data, strata, weight))
        return (of_shards if delayed else of_maps)(data, strata, weight)
    table = of_table(chunks, data, strata, weight)
    if table is None and (data or strata is not None or weight is not None):
        raise OptionError(
            "fit was given data beside chunks=, which has all records: leave out the other arguments, and give strata and "
            "weights in each chunk, (*data, strata) or (*data, strata, sample_weight)."
        )
    return table or chunks


def of_maps(data, strata, weight):
    """Chunks of the arguments if some of these are large memory maps; else None."""
    given = [*data, *(argument for argument in (strata, weight) if argument is not None)]
    maps = [argument for argument in data if isinstance(argument, np.memmap)]
    if strata is None or isinstance(strata, str) or sum(argument.size for argument in maps) < MANY:
        return None
    N = len(maps[0])
    if any(not hasattr(argument, "__len__") or length(argument) != N for argument in given):
        return None  # an error that is found elsewhere
    return [partial(_part, given, slice(first, first + ROWS)) for first in range(0, N, ROWS)]


def _part(arguments, rows):
    """Some records; those of memory maps are copied, so that no page of them stays in memory."""
    parts = []
    for argument in arguments:
        mapped = isinstance(argument, np.memmap)
        parts.append(np.array(argument[rows]) if mapped else take(argument, rows))
        if mapped and argument.mode in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
            argument._mmap.madvise(mmap.MADV_DONTNEED)
    return tuple(parts)


def of_table(table, data, strata, weight):
    """The chunks of a Dask DataFrame, an Arrow dataset or the files at its path, whose columns the arguments name."""
    if isinstance(table, str) or hasattr(table, "__fspath__"):
        table = optional("pyarrow.dataset", "chunks= of files", "arrow").dataset(table)
    present = table.schema.names if hasattr(table, "to_batches") else getattr(table, "columns", None)
    if present is None:
        return None
    if not hasattr(table, "to_delayed") and not hasattr(table, "scanner"):
        raise OptionError(
            f"chunks= is {type_name(table)}, a table in memory, but a table of chunks is a Dask DataFrame, an Arrow dataset or a "
            f'path. Pass its columns without chunks=: fit(table[["a", "b"]], table["y"], strata=table["z"]).'
        )
    names = [*data, strata] if weight is None else [*data, strata, weight]
    columns = [column for name in names for column in ([name] if isinstance(name, str) else name or ())]
    missing = [column for column in columns if column not in list(present)]
    if missing or strata is None:
        wrong = f"has no column {missing[0]!r}, only" if missing else "has the columns"
        raise OptionError(
            f"chunks= {wrong} {', '.join(map(str, present[:8]))}. With a table, fit's arguments name its columns: "
            f'fit(["a", "b"], "y", strata="z", chunks=…).'
        )
    unique = list(dict.fromkeys(columns))
    if hasattr(table, "to_delayed"):
        from dask import delayed

        return [delayed(_of_frame)(part, names) for part in table[unique].to_delayed()]

    def batches():
        options = {"batch_size": ROWS, "batch_readahead": 2, "fragment_readahead": 1}
        for batch in table.to_batches(columns=unique, **options):
            if batch.num_rows:
                yield partial(_of_frame, batch, names)

    return batches


def _of_frame(frame, names):
    """The arguments from a DataFrame or an Arrow record batch."""
    frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    return tuple(frame[name] for name in names)
