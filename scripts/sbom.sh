#!/usr/bin/env bash
# Lists the packages that are installed from uv.lock: `bash scripts/sbom.sh [FOLDER [EXTRA ...]]`
# writes sbom.json (CycloneDX), licences.md and vulnerabilities.md into FOLDER (default: results), by
# tools in an environment of their own, and prints the last: what is known against versions that
# cannot be raised, and why it does no harm here.
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
tee "${folder}/vulnerabilities.md" <<'END'
Versions that cannot be raised, as known in November 2026; `pip-audit` of PyPI finds what became known since.

| package | held at | known against it | what holds it | why it does no harm here |
|---|---|---|---|---|
| pyarrow | 17.0.0 | CVE-2026-25087 (to 23.0.0) | another version writes other bytes of shards, and `datasets` 2.21 imports what 21 drops | only a reader that calls `PreBufferMetadata` is hit; nothing here does |
| transformers | 4.46.3 | CVE-2024-11392 to 11394, CVE-2026-4372 and slow regular expressions, to 5.3.0 | LDDL's loader needs tokenizers 0.20 | the extra `lddl` alone; it reads your vocab.txt, and loads no model and no configuration |
| paddlepaddle, paddlepaddle-gpu | 2.6.2 | `paddle.load` reads pickles; advisories of 2024 on `paddle.utils`, `paddle.vision`, `paddle.audio` and `IrGraph.draw` | Fleet's static graphs end with 3.1 | foreign files are read without Paddle, and nothing here calls these functions; `BERT_PADDLE=3.1` takes 3.1.1 |
| paddlenlp | 2.8.1 | pickles in `from_pretrained` | the last for Paddle 2.6 | the extra `check` alone; it reads what the tests write |
| numpy | 1.26.4 | nothing known | Paddle 2.6 crashes with numpy 2 | |
| protobuf | 6.33.6 | nothing known | 7 breaks Paddle's DistributedStrategy | |
| setuptools | 80.9.0 | nothing known | 81 drops `pkg_resources`, which VisualDL imports | |
END
