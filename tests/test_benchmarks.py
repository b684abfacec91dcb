from __future__ import annotations

from click.testing import CliRunner

from benchmarks.__main__ import main


def test_benchmarks_run_on_a_tiny_table() -> None:
    result = CliRunner().invoke(main, ["--rows", "300", "--repeats", "1", "--only", "tree"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "| tree, depth 6 | 1 | scikit-learn |" in result.output
