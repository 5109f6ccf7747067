import sys

from setuptools import Extension, setup

# Plain C for ctypes, without Python's headers. Where there is no compiler, NumPy does the same.
flags = [] if sys.platform == "win32" else ["-std=c99", "-O3", "-fopenmp-simd"]
setup(ext_modules=[Extension("strat._kernels", ["strat/kernels.c"], extra_compile_args=flags, optional=True)])
