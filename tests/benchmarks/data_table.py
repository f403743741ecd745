"""The results of tests.benchmarks.compare_data as Markdown."""


def table_of(results: dict) -> str:
    """Preprocessing, loading and growth, each a table, and where the text came from."""
    return (
        "\n".join(
            [
                *_preprocessing(results["preprocess"]),
                "",
                *_loading(results["load"]),
                "",
                *_growth(results["growth"]),
                "",
                *_compilation(results.get("compilation")),
                *_origin(results.get("corpus", {})),
            ]
        )
        + "\n"
    )


def _preprocessing(recipes: dict) -> list[str]:
    lines = [
        "| preprocess and balance, 64 MB | | CPU s | samples | samples/CPU s | tokens/CPU s | peak RSS, MB | "
        "times LDDL: samples | text | random next |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in recipes.items():
        base = runs["LDDL"]
        for who, found in runs.items():
            rates = [found[what] / found["cpu_seconds"] for what in ("samples", "tokens")]
            ratio = rates[0] / (base["samples"] / base["cpu_seconds"])
            share = f"{found['random_next']:.1%}" if "random_next" in found else ""
            lines.append(
                f"| {name} | {who} | {found['cpu_seconds']:.1f} | {found['samples']:,} | {rates[0]:,.0f} | "
                f"{rates[1]:,.0f} | {found['peak_rss_megabytes']:,.0f} | {ratio:.1f} | "
                f"{base['cpu_seconds'] / found['cpu_seconds']:.1f} | {share} |"
            )
        lines.append(f"| | LDDL's balancer | {base['balancer']} | | | | | | | |")
    return lines


def _loading(recipes: dict) -> list[str]:
    lines = [
        "| load | batch | | samples/CPU s | times LDDL | first batch, s | padding |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, batches in recipes.items():
        for batch, runs in batches.items():
            base = runs["LDDL"]
            for who, found in runs.items():
                if "error" in found:
                    lines.append(f"| {name} | {batch} | {who} | {found['error'][:80]} | | | |")
                    continue
                rate = found["samples"] / found["cpu_seconds"]
                ratio = "" if "error" in base else f"{rate / (base['samples'] / base['cpu_seconds']):.1f}"
                lines.append(
                    f"| {name} | {batch} | {who} | {rate:,.0f} | {ratio} | "
                    f"{found['first_batch_seconds']:.2f} | {found['padding']:.1%} |"
                )
    return lines


def _growth(sizes: dict) -> list[str]:
    lines = ["| phase 1, static, dup 1: growth | MB/CPU s | peak RSS, MB |", "|---|---|---|"]
    for size, found in sizes.items():
        lines.append(
            f"| {size} MB | {found['input_megabytes'] / found['cpu_seconds']:.2f} | "
            f"{found['peak_rss_megabytes']:,.0f} |"
        )
    return lines


def _compilation(cost: dict | None) -> list[str]:
    if not cost:
        return []
    first, second = cost["first_cpu_seconds"], cost["second_cpu_seconds"]
    return [
        f"One megabyte took {first:.1f} CPU s the first time and {second:.1f} the second: loops new to this "
        "machine are compiled, once. That is not counted above.",
        "",
    ]


def _origin(corpus: dict) -> list[str]:
    if not corpus:
        return []
    kinds = ", ".join(f"{size / 1e6:.1f} MB of {kind}" for kind, size in corpus["distinct bytes by kind"].items())
    repeated = corpus["bytes repeated"] / 1e6
    return [
        f"The text: {kinds}, found on the machine; of the largest size {repeated:.1f} MB repeat documents with "
        "their paragraphs in another order."
    ]
