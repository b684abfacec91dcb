"""The same models and predictions on different processors, as far as they can be simulated."""

import os
import subprocess
import sys

import numpy as np
import pytest

_UMATH = np._core._multiarray_umath  # type: ignore[attr-defined]
#: The C library, and NumPy, without the instructions that round differently or use wider vectors.
OLD_LIBRARIES = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD,-AVX2,-FMA",
    "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in _UMATH.__cpu_dispatch__ if _UMATH.__cpu_features__[name]),
    "OPENBLAS_CORETYPE": "Prescott",
}


def fits(environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-m", "tests.fits_to_compare"]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=3_000, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    return fits({})


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(OLD_LIBRARIES, id="libraries", marks=pytest.mark.slow),
        # For another processor all kernels are compiled, which takes minutes.
        pytest.param(OLD_LIBRARIES | {"NUMBA_CPU_NAME": "generic"}, id="kernels", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.timeout(900)
def test_another_processor(environment: dict[str, str], wanted: list[str]) -> None:
    assert len(wanted) > 10
    assert fits(environment) == wanted
