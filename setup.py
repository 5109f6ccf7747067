import sys

from setuptools import Extension, setup

# One build serves every Python from 3.11 on (stable ABI). Where there is no compiler, NumPy does the same.
flags = (
    []
    if sys.platform == "win32"
    else ["-std=c11", "-O3", "-fopenmp-simd", "-ffp-contract=fast", "-fno-trapping-math", "-fno-math-errno"]
)
loops = Extension(
    "strat.oracles._loops",
    ["strat/oracles/_loops.c"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    extra_compile_args=flags,
    optional=True,
)
setup(ext_modules=[loops], options={"bdist_wheel": {"py_limited_api": "cp311"}})
