#!/usr/bin/env bash
# Lists the packages that are installed from the lock, with their licences: `bash scripts/sbom.sh [FOLDER [EXTRA ...]]` writes
# sbom.json (CycloneDX) and licences.md into FOLDER (default: results), by tools in an environment of their own.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
print_usage "$@"
folder="${1:-results}"
find_python "$(runtime_extras) ${*:2}"
tools="$(mktemp -d)"
trap 'rm -rf "${tools}"' EXIT
make_environment "${tools}" "the tools" uv_install "${tools}/bin/python" cyclonedx-bom==7.5.0 pip-licenses==5.5.5
mkdir -p "${folder}"
"${tools}/bin/cyclonedx-py" environment --output-file "${folder}/sbom.json" "${PYTHON}"
"${tools}/bin/pip-licenses" --python "${PYTHON}" --from mixed --format markdown --output-file "${folder}/licences.md"
