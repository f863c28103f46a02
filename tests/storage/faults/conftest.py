"""Failures inside the helper modules say what was compared."""

import pytest

for module in ("checks", "crash_points", "workload", "node"):
    pytest.register_assert_rewrite(f"storage.faults.{module}")
