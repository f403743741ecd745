"""On PYTHONPATH only while a protection is taken away: processes of a row's tests are without it too."""

import os

if os.environ.get("BERT_BROKEN"):
    import bert  # noqa: F401 - before Paddle, whichever module loads it
    from tests.faults.sabotage import apply_for_good

    apply_for_good(os.environ["BERT_BROKEN"])
