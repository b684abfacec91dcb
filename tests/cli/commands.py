"""Commands run in this process."""

from click.testing import CliRunner, Result

from dtrees.cli.main import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fail(*arguments: object, code: int = 1) -> str:
    """Run a command that must fail, and return its line of output."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.stderr.splitlines()[-1] == line, "the error is the last that is said"
    assert "Traceback" not in result.output
    return line
