"""Exit codes of all commands. From 64 on they are the numbers of sysexits.h."""

OK = 0
HUNG = 1  # the watchdog fired while the interpreter was blocked: faulthandler can only exit with 1
BAD_INPUT = 2  # settings, files or paths that the user can correct
DIVERGED = 3  # a guard ended the training: gradients not finite, or ranks with different parameters
STALLED = 70  # no progress for --watchdog-seconds; the last checkpoint is complete
NOT_SAVED = 74  # the disk is full, or a checkpoint could not be written; earlier ones are complete
INTERRUPTED = 75  # saved: start again to continue
CTRL_C = 130  # interrupted where there is nothing to save


class Failure(RuntimeError):
    """An error that ends a command with its own exit code; its text is the error line."""

    exit_code = BAD_INPUT
