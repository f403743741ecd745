"""How every command ends. From 64 on the numbers are those of sysexits.h."""

OK = 0
STUCK = 1  # as STALLED, but the interpreter no longer ran: faulthandler knows no other code
BAD_INPUT = 2  # settings, files or paths that the user can mend
DIVERGED = 3  # a guard ended the training: gradients not finite, or ranks with different parameters
STALLED = 70  # nothing moved for --watchdog-seconds; the last checkpoint is whole
NOT_SAVED = 74  # a checkpoint could not be written; the ones before are whole
INTERRUPTED = 75  # saved: start again to continue
CTRL_C = 130  # interrupted where there is nothing to save


class Failure(RuntimeError):
    """Ends a command with its exit code and its text as one line of error."""

    exit_code = BAD_INPUT
