"""Every failure as one line on stderr that says what to do.

Commands raise :class:`CommandError` if they know better than the library what the user should change; other exceptions (a library's
``ValueError``, an unreadable file, a lost worker) are converted to a line by :func:`describe`.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated (129 if the terminal was closed). Clusters are closed,
and fits on other clusters cancelled, before a command ends by a signal; a second signal ends it at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import click

#: Set this variable to see where an error came from.
TRACEBACK_VARIABLE = "DTREES_TRACEBACK"

#: Errors whose message is written for users; for others the type is printed, too.
_SELF_EXPLAINING = (ValueError, TypeError, OSError, ImportError, RuntimeError, LookupError)


class CommandError(click.ClickException):
    """A failure described for the user; the message says what is wrong and what to do."""


class _Ended(BaseException):
    """A signal that ends this process, as an exception, so that open resources are closed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class OneLineGroup(click.Group):
    """A click group that prints each error as one line, whatever raised it."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command given by the arguments, and exit."""
        extra["standalone_mode"] = False
        try:
            with _signals_raised():
                code = super().main(*args, **extra)
        except _Ended as ended:
            _fail("Terminated." if ended.number == signal.SIGTERM else "The terminal was closed.", 128 + ended.number)
        except (click.Abort, KeyboardInterrupt):
            _fail("Interrupted.", 130)
        except click.exceptions.NoArgsIsHelpError as error:  # its message is the complete help
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _trace()
            _fail(_usage(error) if isinstance(error, click.UsageError) else error.format_message(), error.exit_code)
        except BrokenPipeError:  # the reader of the output has ended, for example `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as error:
            _trace()
            _fail(describe(error), 1)
        sys.exit(code if isinstance(code, int) else 0)


@contextlib.contextmanager
def _signals_raised() -> Iterator[None]:
    """Convert signals that end a process to :class:`_Ended` inside the block, unless they are ignored."""

    def end(number: int, _: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise _Ended(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread can set signal handlers
    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe(error: BaseException) -> str:
    r"""Return an error as one line, with its type if the message alone is not written for users.

    >>> describe(ValueError("two\n   lines"))
    'two lines'
    >>> describe(ZeroDivisionError())
    'ZeroDivisionError (set DTREES_TRACEBACK=1 to see where)'
    """
    message = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"Out of memory: {message or 'use fewer columns, or a cluster with --scheduler'}"
    if isinstance(error, UnicodeDecodeError):
        return "The data is not UTF-8 text. Convert it first, for example with: iconv -f latin1 -t utf-8"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, KeyError) or not isinstance(error, _SELF_EXPLAINING) or not message:
        kind = type(error).__name__
        return f"{kind}{': ' if message else ''}{message} (set {TRACEBACK_VARIABLE}=1 to see where)"
    return message


def _usage(error: click.UsageError) -> str:
    message = error.format_message()
    path = error.ctx.command_path if error.ctx else "dtrees"
    return f"{message.rstrip('.')}. Try: {path} --help"


def _trace() -> None:
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exc()


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {' '.join(message.split())}", err=True)
    sys.exit(code)
