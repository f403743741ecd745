"""Draws the two pictures of explanation/architecture.md: `.venv/bin/python docs/drawings.py` writes them again."""

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

PICTURES = Path(__file__).resolve().parent / "pictures"
INK, LINE, FONT = "#1b2733", "#6b7a89", "font-family='Helvetica, Arial, sans-serif'"

# Layer -> rooms; a room imports from its own layer (as ORDER of tests/test_layers.py allows) and from those below it.
LAYERS = [
    ("commands", "#dcebfb", ["run_*.py", "bert/commands", "bert/api.py", "bert/package"]),
    ("your text, checks", "#dcebfb", ["bert/own_text", "bert/doctor"]),
    ("use and search", "#e2f3e5", ["bert/search", "bert/inference", "bert/indexing", "bert/vectors", "bert/serving"]),
    ("tasks", "#fdf0d5", ["bert/pretraining", "bert/finetuning", "bert/labels", "bert/glue"]),
    ("jobs and training", "#fbe3dc", ["bert/jobs", "bert/launching", "bert/training"]),
    ("weights", "#fbe3dc", ["bert/conversion", "bert/checkpoints"]),
    ("network", "#efe3f6", ["program.py", "bert/model", "bert/runtime"]),
    (
        "data",
        "#e2f3e5",
        ["data", "data/preprocessing", "data/text", "data/fetching", "data/wikipedia", "data/examples"],
    ),
    ("samples", "#e2f3e5", ["bert/samples", "bert/tokenization", "bert/planning", "bert/reporting"]),
    ("ground", "#e8ecf0", ["bert/config", "bert/arrays", "bert/files.py", "bert/randomness.py", "bert/exit_codes.py"]),
]


@dataclass(frozen=True)
class Box:
    """A rectangle with a bold first line and plain further lines; x, y, width and height are in pixels."""

    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...]
    colour: str = "#ffffff"

    def svg(self) -> str:
        middle = self.x + self.width / 2
        top = self.y + self.height / 2 - 8 * (len(self.lines) - 1) + 5
        texts = [
            f"<text x='{middle:g}' y='{top + 16 * number:g}' font-size='{13 if number == 0 else 12}' "
            f"font-weight='{'bold' if number == 0 else 'normal'}' text-anchor='middle'>{escape(line)}</text>"
            for number, line in enumerate(self.lines)
        ]
        shape = (
            f"<rect x='{self.x}' y='{self.y}' width='{self.width}' height='{self.height}' rx='6' "
            f"fill='{self.colour}' stroke='{LINE}'/>"
        )
        return "\n".join([shape, *texts])


def arrow(points: list[tuple[int, int]], label: str = "", at: tuple[int, int] = (0, 0)) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    line = f"<polyline points='{path}' fill='none' stroke='{LINE}' stroke-width='1.6' marker-end='url(#tip)'/>"
    text = f"<text x='{at[0]}' y='{at[1]}' font-size='12' fill='{LINE}'>{escape(label)}</text>" if label else ""
    return line + text


def drawing(width: int, height: int, title: str, parts: list[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"role='img' aria-label='{escape(title)}' fill='{INK}' {FONT}>"
    )
    tip = (
        "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
        f"<path d='M0,0 L8,4 L0,8 z' fill='{LINE}'/></marker></defs>"
    )
    background = f"<rect width='{width}' height='{height}' fill='#ffffff'/>"
    return "\n".join([head, f"<title>{escape(title)}</title>", tip, background, *parts, "</svg>"]) + "\n"


def layers() -> str:
    """The rooms in layers: imports point down."""
    parts, top, height, gap = list[str](), 16, 44, 8
    for title, colour, rooms in LAYERS:
        parts.append(f"<rect x='150' y='{top}' width='754' height='{height}' rx='8' fill='{colour}'/>")
        parts.append(f"<text x='12' y='{top + 27}' font-size='13' font-weight='bold'>{escape(title)}</text>")
        letters, left = sum(len(room) + 3 for room in rooms), 158  # the box of a longer name is wider
        for room in rooms:
            width = (754 - 8 * (len(rooms) + 1)) * (len(room) + 3) // letters
            parts.append(Box(left, top + 7, width, height - 14, (room,)).svg())
            left += width + 8
        top += height + gap
    parts.append(arrow([(928, 24), (928, top - 16)]))
    parts.append(f"<text x='944' y='{top // 2}' font-size='12' fill='{LINE}'>imports</text>")
    parts.append(f"<text x='944' y='{top // 2 + 16}' font-size='12' fill='{LINE}'>point down</text>")
    return drawing(1020, top + 8, "The rooms of the code in layers; imports point down", parts)


def run() -> str:
    """From a command to the update of a weight."""
    blue, green, red, violet, grey = "#dcebfb", "#e2f3e5", "#fbe3dc", "#efe3f6", "#e8ecf0"
    boxes = [
        Box(16, 24, 190, 64, ("command line", "scripts/run_*.sh", "bert/commands"), blue),
        Box(276, 24, 190, 64, ("plan: a Job", "steps, no effects", "bert/jobs/job.py"), blue),
        Box(536, 24, 220, 64, ("execute", "what is done is not repeated", "bert/jobs/job.py"), blue),
        Box(16, 150, 160, 64, ("text", "any format, any language", "data/text"), green),
        Box(206, 150, 160, 64, ("vocabulary", "WordPiece", "data/train_vocabulary.py"), green),
        Box(396, 150, 160, 64, ("shards", "LDDL's format", "data/preprocessing"), green),
        Box(586, 150, 170, 64, ("run.json", "all settings of a run", "bert/launching"), red),
        Box(16, 300, 740, 178, ("",), grey),
        Box(36, 330, 150, 64, ("batches", "of this rank", "bert/samples"), green),
        Box(216, 330, 170, 64, ("program", "forward, loss, backward", "program.py, bert/model"), violet),
        Box(416, 330, 150, 64, ("all-reduce", "mean over the ranks", "bert/runtime"), violet),
        Box(596, 330, 140, 64, ("update", "LAMB or AdamW", "bert/model"), violet),
        Box(36, 416, 350, 46, ("log line, VisualDL, plot", "bert/training, bert/reporting"), "#ffffff"),
        Box(416, 416, 320, 46, ("checkpoint: whole or not at all", "bert/checkpoints"), "#ffffff"),
    ]
    arrows = [
        arrow([(206, 56), (276, 56)]),
        arrow([(466, 56), (536, 56)]),
        arrow([(646, 88), (646, 118), (96, 118), (96, 150)], "the steps of the job", (330, 112)),
        arrow([(176, 182), (206, 182)]),
        arrow([(366, 182), (396, 182)]),
        arrow([(556, 182), (586, 182)]),
        arrow([(671, 214), (671, 300)], "starts the ranks, which read it as it is", (430, 262)),
        arrow([(186, 362), (216, 362)]),
        arrow([(386, 362), (416, 362)]),
        arrow([(566, 362), (596, 362)]),
        arrow([(666, 394), (666, 416)]),
    ]
    label = (
        "<text x='36' y='321' font-size='13' font-weight='bold'>each rank: a process on one GPU, or on CPU cores</text>"
    )
    return drawing(
        772, 494, "From a command to the update of a weight", [box.svg() for box in boxes] + [label, *arrows]
    )


DRAWINGS = {"layers.svg": layers, "run.svg": run}

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
        print(PICTURES / name)
