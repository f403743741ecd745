#!/usr/bin/env bash
# Entry point of the container. The command replaces this shell, so that `docker stop` reaches the
# training and it saves.
set -euo pipefail

if ! touch results/.writable 2>/dev/null; then
  echo "error: /workspace/bert/results must be writable for user $(id -u); mount a folder of yours (launch.sh does)" >&2
  exit 2
fi
rm -f results/.writable
exec "$@"
