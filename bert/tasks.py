"""The table of tasks: the commands that train, by the names of what they train."""

from bert.config.entry_point import EntryPoint
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.glue.config import ENTRY as GLUE
from bert.pretraining.entry import ENTRY as PRETRAINING

TASKS: dict[str, EntryPoint] = {"pretraining": PRETRAINING, "squad": SQUAD, "glue": GLUE, "ner": NER}
