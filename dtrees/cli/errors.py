"""Every failure as one line on stderr that says what to do.

Commands raise :class:`CommandError` where they know better than the library what the user should change; whatever else comes up
(a library's ``ValueError``, a file that cannot be read, a lost worker) is turned into a line by :func:`describe`.

Exit codes: 0 done, 1 failed, 2 the command was given wrongly, 130 interrupted, 143 terminated (129 where the terminal went away). Clusters
are closed, and fits on those of others given up, before a command ends by a signal; a second one ends it at once.
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

#: Set to anything to see where an error came from.
TRACEBACK_VARIABLE = "DTREES_TRACEBACK"

#: Errors whose message is meant for users; of others the kind is named too.
_SELF_EXPLAINING = (ValueError, TypeError, OSError, ImportError, RuntimeError, LookupError)


class CommandError(click.ClickException):
    """A failure in the user's terms; the message says what is wrong and what to do."""


class _Ended(BaseException):
    """A signal asks this process to end; as an exception, it closes on its way what is open."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class OneLineGroup(click.Group):
    """A click group whose errors are one line, whatever raised them."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command that the arguments name, and exit."""
        extra["standalone_mode"] = False
        try:
            with _signals_raised():
                code = super().main(*args, **extra)
        except _Ended as ended:
            _fail("Terminated." if ended.number == signal.SIGTERM else "The terminal was closed.", 128 + ended.number)
        except (click.Abort, KeyboardInterrupt):
            _fail("Interrupted.", 130)
        except click.exceptions.NoArgsIsHelpError as error:  # its message is the whole help
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _trace()
            _fail(_usage(error) if isinstance(error, click.UsageError) else error.format_message(), error.exit_code)
        except BrokenPipeError:  # the reader of our output went away, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as error:
            _trace()
            _fail(describe(error), 1)
        sys.exit(code if isinstance(code, int) else 0)


@contextlib.contextmanager
def _signals_raised() -> Iterator[None]:
    """Have the signals that ask a process to end raise :class:`_Ended` for as long as the block lasts, unless they are ignored."""

    def end(number: int, _: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise _Ended(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread may say what signals do
    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe(error: BaseException) -> str:
    r"""Return an error as one line, its kind named where the message alone is not meant for users.

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
