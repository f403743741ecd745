"""`bash scripts/run_pretraining.sh --text FOLDER`: from a folder of files to a model that is sized for it.

The plan is made from the text, the machine and its measured speed, and printed first. Started again with the same line
it continues; with more --hours, --epochs or --max-steps it trains longer. Exit codes as in `bert.commands.pretrain`.
"""

import time

from bert.config.setting_errors import usage_errors
from bert.exit_codes import OK
from bert.files import only_writer, require_writable
from bert.launching.arguments import CommandLine
from bert.own_text.given_files import collect_documentation, with_given_files
from bert.own_text.request import read_text_request
from bert.own_text.run import TextRun, show
from bert.own_text.start import record_of
from bert.reporting.trackers import check_trackers


def main(line: CommandLine, started: float | None = None) -> int:
    """Plan, and unless only the plan was asked for, run.

    Args:
        started: time of the start of the command, from which its hours count; None: now.
    """
    begun = time.monotonic() - (0.0 if started is None else max(0.0, time.time() - started))
    with usage_errors():
        request = read_text_request(line)
        check_trackers(request.setting("report_to", "none").split(","))  # before anything is read or measured
        if not {"show_config", "dry_run"}.isdisjoint(line.launch):
            with line.notices_on_stderr_if_config_is_printed():
                request = with_given_files(request)
                record = record_of(request, begun, may_measure=False)
            show(request, record)
            return OK
        with only_writer(request.output_dir):
            require_writable(request.output_dir)
            if request.documentation is not None:
                collect_documentation(request.documentation)
            request = with_given_files(request)
            record = record_of(request, begun)
            return TextRun(request, record, show(request, record), begun).run()
