"""Gone: says how to fetch books."""

import sys

if __name__ == "__main__":
    sys.exit(
        "error: data.download_books is gone: fetch the books of your list with `wget --input-file LIST "
        "--directory-prefix raw`, then import them with `python -m data.import_text --input raw --output-dir D/books`"
    )
