"""Only the compiled loops are declared here; everything else is in pyproject.toml.

Every extension is optional: without a C compiler the package installs and runs on the Python twins.
`MOLDAU_PURE_PYTHON=1 pip install .` skips compiling on purpose.
"""

import os
from pathlib import Path

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    if os.environ.get("MOLDAU_PURE_PYTHON") == "1":
        return []
    from Cython.Build import cythonize

    sources = sorted(path.as_posix() for path in Path("src/moldau").rglob("*.pyx"))
    declared = [
        Extension(
            source.removeprefix("src/").removesuffix(".pyx").replace("/", "."),
            [source],
            optional=True,
            extra_compile_args=["-O3", "-g0"],
        )
        for source in sources
    ]
    built: list[Extension] = cythonize(
        declared,
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
    )
    # cythonize() makes new Extension objects and drops the flag.
    for extension in built:
        extension.optional = True
    return built


setup(ext_modules=extensions())
