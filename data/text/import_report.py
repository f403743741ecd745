"""The report of an import."""

import sys
from collections import Counter
from pathlib import Path

from bert.files import shown
from bert.reporting.progress import megabytes
from data.text.counts import REPORT_NAME, print_counts
from data.text.inputs import Findings, Input, total_bytes
from data.text.lddl_writer import WrittenFile
from data.text.split import LEAST_BYTES, MEASURABLE_BYTES, held_out_bytes

MAX_EXAMPLES = 20


def report_of(
    settings: dict, inputs: list[Input], findings: Findings, duplicates: list[str], files: dict[str, list[WrittenFile]]
) -> dict:
    """The report of an import, ready for JSON; `files` are those of each part."""
    total = sum(file.num_bytes for found in files.values() for file in found)
    parts = {}
    for part, found in files.items():
        num_bytes = sum(file.num_bytes for file in found)
        parts[part] = {
            "documents": sum(file.documents for file in found),
            "bytes": num_bytes,
            "share": num_bytes / total,
            "files": len(found),
        }
    return {
        "settings": settings,
        "input files": len(inputs),
        "input bytes": total_bytes(inputs),
        "encodings": dict(sorted(findings.encodings.items())),
        "counts": dict(sorted(findings.counts.items())),
        "parts": parts,
        "left out": findings.left_out,
        "problems": findings.problems,
        "duplicates": duplicates,
    }


def print_report(report: dict, output: Path) -> None:
    """Print the sizes of the parts, the counts, and the first of everything that was left out."""
    for part, facts in report["parts"].items():
        share = "" if part == "all" else f" ({facts['share']:.1%} of the text)"
        print(
            f"{part}: {facts['documents']} documents, {megabytes(facts['bytes'])}{share} in {facts['files']} "
            f"file{'s' * (facts['files'] != 1)} below {shown(output)}"
        )
    print_counts({name: value for name, value in {**report["counts"], **report["encodings"]}.items() if value})
    for what in ("left out", "problems", "duplicates"):
        if found := report[what]:
            print("\n  ".join([f"{what}:", *examples(found)]))
        if len(found) > MAX_EXAMPLES:
            print(f"  ... and {len(found) - MAX_EXAMPLES} more in {shown(output / REPORT_NAME)}")
    for warning in held_out_warnings(report):
        print(f"warning: {warning}", file=sys.stderr)


def examples(lines: list[str]) -> list[str]:
    """The first lines ("what: reason") to print; if there are more, of as many reasons as possible."""
    if len(lines) <= MAX_EXAMPLES:
        return lines
    earlier: Counter = Counter()
    ranks = []
    for line in lines:
        reason = line.partition(": ")[2]
        ranks.append(earlier[reason])
        earlier[reason] += 1
    return [lines[index] for index in sorted(sorted(range(len(lines)), key=ranks.__getitem__)[:MAX_EXAMPLES])]


def held_out_warnings(report: dict) -> list[str]:
    """What to know and do if the held-out part is small."""
    if "held_out" not in report["parts"]:
        return []
    found, asked = report["parts"]["held_out"], report["settings"]["held_out_fraction"]
    total = report["counts"]["bytes of text"]
    warnings = []
    if held_out_bytes(total, asked) > total * asked:
        warnings.append(
            f"{found['share']:.1%} of the text are held out instead of {asked:.1%}, as less than "
            f"{megabytes(LEAST_BYTES)} is no measure"
        )
    if found["bytes"] < MEASURABLE_BYTES:
        share = MEASURABLE_BYTES / total
        remedy = f"--held-out-fraction {share + 0.01:.2f}, or more text" if share < 0.4 else "more text"
        warnings.append(
            f"the held-out part has {megabytes(found['bytes'])}; a loss measured on less than "
            f"{megabytes(MEASURABLE_BYTES)} is noisy: give {remedy}"
        )
    return warnings
