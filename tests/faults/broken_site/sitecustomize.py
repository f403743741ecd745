"""On PYTHONPATH only while a protection is taken away: processes of a row's tests are without it too."""

import os

if os.environ.get("BERT_BROKEN"):
    import bert  # noqa: F401 - before Paddle, whichever module loads it
    from tests.faults.sabotage import disable_for_good

    disable_for_good(os.environ["BERT_BROKEN"])
