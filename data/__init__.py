"""Commands that download, import, preprocess and inspect text; docs/howto/data.md shows them.

Each module directly in this folder is a command; the packages below do the work. Paddle is not imported.
"""

import bert  # noqa: F401  refuses a Python without our packages, before a command imports them
