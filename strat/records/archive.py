"""Named arrays in one npz file, written whole or not at all; hashes of anything; labels as JSON."""

import datetime
import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from strat.errors import OptionError, optional

CONTENTS = "contents"  # the entry with the fingerprints of the others, which files of earlier versions lack


def as_path(path, what):
    """A user's path, checked; `what` names the argument in messages."""
    if not isinstance(path, str | bytes | os.PathLike) or b"\0" in os.fsencode(path):
        raise OptionError(f"{what} = {path!r} is no path. Give the name of a file.")
    return Path(os.fsdecode(path))


def write_archive(path, arrays, compressed=False):
    """Write arrays by name; an existing file is replaced only once all of them are on the disk, and kept on an OSError."""
    path = Path(os.path.realpath(path))  # a link stays a link
    if path.exists():
        if not path.is_file():
            raise OSError(errno.EINVAL, "it is there and is not a file", str(path))
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    contents = json.dumps({name: fingerprint(np.asarray(array)) for name, array in arrays.items()})
    temporary = path.with_name(f"strat-{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            (np.savez_compressed if compressed else np.savez)(file, **arrays, **{CONTENTS: contents})
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_archive(path, legacy=False):
    """Read what `write_archive` wrote, as a dict of arrays; with `legacy` also what earlier versions wrote.

    An OSError means that the file cannot be opened; a ValueError says why it is not such an archive, or not as written.
    """
    with open(path, "rb") as file:
        try:  # a damaged or foreign file may end in any exception of zipfile, zlib, NumPy or json
            with np.load(file, allow_pickle=False) as entries:
                arrays = {name: entries[name] for name in entries.files}
            written = dict(json.loads(str(arrays.pop(CONTENTS, "{}"))))
        except Exception as error:
            raise ValueError("it is not an archive of arrays, or a damaged one") from error
    there = {} if legacy and not written else {name: fingerprint(array) for name, array in arrays.items()}
    if changed := [name for name in {**written, **there} if written.get(name) != there.get(name)]:
        raise ValueError(f"it was changed after it was written, at {changed[0]!r} ({len(changed)} in all)")
    if foreign := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"its entry {foreign[0]!r} is not an array")
    return arrays


def fingerprint(*parts):
    """The SHA-256 hash, as text, of anything made of arrays, numbers, text, lists, dicts and estimators."""
    digest = hashlib.sha256()
    _feed(digest, parts)
    return digest.hexdigest()


def _feed(digest, part):
    if sp.issparse(part):
        part = part if part.format in ("csr", "csc") else part.tocsr()
        part = (part.format, part.shape, part.data, part.indices, part.indptr)
    elif isinstance(part, dict):
        part = tuple(part.items())
    elif hasattr(part, "get_params"):
        part = (type(part).__name__, part.get_params(deep=False))
    if isinstance(part, (list, tuple)):
        digest.update(f"{len(part)} parts;".encode())
        for inner in part:
            _feed(digest, inner)
    elif isinstance(part, np.ndarray) and part.dtype != object:
        digest.update(f"{part.dtype.str} {part.shape};".encode())
        digest.update(part.tobytes())
    else:  # an object's text may hold its address, which differs in every session
        digest.update(f"{re.sub(r' at 0x[0-9a-fA-F]+', '', repr(part))};".encode())


_pandas = partial(optional, "pandas", "a label of pandas' types", "pandas")
#: The reader of the text form of each type that JSON lacks.
_READERS = {
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "datetime64": np.datetime64,
    "bytes": bytes.fromhex,
    "period": lambda text: _pandas().Period(ordinal=int(text.split()[0]), freq=text.split()[1]),
}


def encoded(label):
    """A label in JSON's types."""
    if isinstance(label, (tuple, frozenset)):
        return {"tuple" if isinstance(label, tuple) else "frozenset": [encoded(part) for part in label]}
    if isinstance(label, np.datetime64):
        return {"datetime64": str(label)}
    if isinstance(label, datetime.date) and not getattr(label, "nanosecond", 0):
        return {"datetime" if isinstance(label, datetime.datetime) else "date": label.isoformat()}
    if isinstance(label, bytes):
        return {"bytes": bytes(label).hex()}
    kind = type(label).__name__ if type(label).__module__.startswith("pandas") else ""
    if kind == "Period":
        return {"period": f"{label.ordinal} {label.freqstr}"}
    if kind == "Interval":
        return {"interval": [encoded(label.left), encoded(label.right), label.closed]}
    if isinstance(label, np.generic):
        label = label.item()
    if label is not None and not isinstance(label, (str, int, float, bool)):
        raise OptionError(
            f"the stratum label {label!r} cannot be stored; use numbers, text, dates, periods, intervals or tuples of them."
        )
    return label


def decoded(entry):
    """The label that `encoded` wrote; a ValueError if the entry is of another form."""
    if not isinstance(entry, dict | list):
        return entry
    kind, value = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", None)
    if kind in ("tuple", "frozenset") and isinstance(value, list):
        return (tuple if kind == "tuple" else frozenset)(map(decoded, value))
    if kind in _READERS and isinstance(value, str):
        return _READERS[kind](value)
    if kind == "interval" and isinstance(value, list) and len(value) == 3:
        ends = map(decoded, value[:2])
        ends = (end if isinstance(end, int | float) else _pandas().Timestamp(end) for end in ends)
        return _pandas().Interval(*ends, closed=value[2])
    raise ValueError(f"{entry!r:.60} is not a label of a known type")
