"""Downloads: resumed, verified, unpacked safely, and under their final name only when complete.

Nothing here depends on what is downloaded.
"""
