"""Downloads: resumed, verified, under their final name only when complete; published models by name.

`transfer` does not depend on what is downloaded.
"""
