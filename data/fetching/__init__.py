"""Downloads: resumed, verified, under their final name only when complete; archives; published models by name.

`transfer`, `download` and `archives` do not depend on what is downloaded.
"""
