"""Five layers, one flag list.  Kernels live in `_registry` alone; only `_parallel` needs OpenMP.

No flag names the build machine: instruction sets are target regions inside the C headers, chosen at run time.
GEMMKIT_SANITIZE=address,undefined builds with those sanitizers.
"""
import glob
import os
from concurrent.futures import ThreadPoolExecutor

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

C_FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
# What Cython generates is not ours to tidy up.
CYTHON_FLAGS = C_FLAGS + ["-Wno-unused-parameter", "-Wno-unused-function", "-Wno-missing-field-initializers",
                          "-Wno-sign-compare", "-Wno-cast-function-type", "-Wno-implicit-fallthrough"]
LINK_FLAGS = []
if os.environ.get("GEMMKIT_SANITIZE"):
    wanted = "-fsanitize=" + os.environ["GEMMKIT_SANITIZE"]
    # Instrumented kernels take long to compile.
    CYTHON_FLAGS += ["-O1", wanted, "-fno-omit-frame-pointer", "-g", "-fno-sanitize-recover=undefined"]
    LINK_FLAGS += [wanted]

HEADERS = glob.glob("gemmkit/_isa/*.h")


def extension(name, c_sources=(), openmp=False):
    flags = ["-fopenmp"] if openmp else []
    return Extension(
        f"gemmkit._kernels.{name}",
        [f"gemmkit/_kernels/{name}.pyx", *c_sources],
        include_dirs=["gemmkit/_isa", numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=CYTHON_FLAGS + flags,
        extra_link_args=LINK_FLAGS + flags,
        depends=HEADERS,
    )


class BuildExtensions(build_ext):
    """Compiles the sources of an extension side by side, and puts what it builds beside the sources too: Python started in a
    clone imports the package from there."""

    def build_extensions(self):
        one_by_one = self.compiler.compile

        def side_by_side(sources, *args, **kwargs):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return sum(pool.map(lambda source: one_by_one([source], *args, **kwargs), sources), [])

        self.compiler.compile = side_by_side
        super().build_extensions()

    def run(self):
        super().run()
        if not self.inplace and not os.environ.get("GEMMKIT_SANITIZE"):
            self.copy_extensions_to_source()


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=cythonize(
        [
            extension("_registry", sorted(glob.glob("gemmkit/_isa/*.c"))),
            extension("_parallel", openmp=True),
            extension("_schedule"),
            extension("_terms"),
            extension("_loops"),
            extension("_quads"),
            extension("_engine"),
            extension("_types"),
            extension("_calls"),
            extension("_matmul"),
            extension("_plans"),
            extension("_integers"),
            extension("_integer_plans"),
            extension("_heads"),
            extension("_masks"),
            extension("_flash"),
            extension("_decode"),
            extension("_descriptor"),
            extension("_attend"),
            extension("_attention"),
        ],
        compiler_directives={
            # Hot code indexes C pointers, which these don't touch; Python containers keep their checks.
            "language_level": 3, "cdivision": True, "freethreading_compatible": True, "embedsignature": True,
        },
    ),
)
