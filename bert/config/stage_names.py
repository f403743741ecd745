"""Names of stages in messages and reports; the folders of their runs keep other names."""

_DISPLAY_NAMES = {"glue-custom": "labels"}


def display_name(stage: str) -> str:
    """Name of a stage for a reader, such as labels for the folder glue-custom."""
    return _DISPLAY_NAMES.get(stage, stage)
