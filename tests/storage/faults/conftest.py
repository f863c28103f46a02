"""Rewrites the assertions of the helper modules, so that failures show the values."""

import pytest

for module in ("checks", "crash_points", "workload", "node"):
    pytest.register_assert_rewrite(f"storage.faults.{module}")
