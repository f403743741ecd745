"""Chinese text written for the project: letters from a small town, put together from parts, as many as a test needs."""

from pathlib import Path

import numpy as np

_WHO = "李老师 王医生 我的祖母 邻居张先生 小学生们 图书馆的管理员 卖豆腐的老人 刚毕业的工程师 村里的木匠 我弟弟".split()
_WHEN = "昨天早上 春天的时候 下雨的晚上 新年以前 星期六下午 放学以后 秋天收获以后 去年冬天".split()
_WHERE = "火车站附近 河边的茶馆里 市场的门口 学校的操场上 医院的花园里 老房子的院子里 桥下的小船上 博物馆里".split()
_DID = (
    "看见了一只受伤的白鹤 修好了一辆旧自行车 给孩子们讲了一个故事 学会了做饺子 丢了一把黑色的雨伞 认识了一位音乐家 "
    "种了三棵苹果树 写了一封很长的信 找到了失踪多年的照片 买了两斤新鲜的蘑菇 听见远处传来的钟声 打扫了所有的房间"
).split()
_THEN = (
    "大家都觉得非常高兴 这件事情很快传遍了整个城市 他们决定明年再去一次 没有人知道这是为什么 天气忽然变得寒冷起来 "
    "朋友们送来了水果和鲜花 报纸上也介绍了这个消息 我们一直谈到半夜才回家"
).split()
_ASIDES = (
    "这个地方的经济主要依靠农业和旅游。 城市的历史可以追溯到一千年以前。 河水每年夏天都会上涨。 "
    "现在的年轻人喜欢用手机看新闻。 科学家正在研究气候变化的原因。 茶叶是这里最重要的产品。 "
    "铁路通车以后，交通方便多了。 你知道图书馆几点关门吗？"
).split()


def letters(number: int, sentences: int = 24) -> list[str]:
    """Return documents, each of this many sentences; they are always the same."""
    rng = np.random.default_rng(7)

    def one(parts: list[str]) -> str:
        return parts[rng.integers(len(parts))]

    def sentence() -> str:
        if rng.random() < 0.2:
            return one(_ASIDES)
        return f"{one(_WHEN)}，{one(_WHO)}在{one(_WHERE)}{one(_DID)}，{one(_THEN)}。"

    return ["".join(sentence() for _ in range(sentences)) for _ in range(number)]


def write_letters(folder: Path, number: int) -> Path:
    """Write a folder with one file for each document."""
    folder.mkdir(parents=True)
    for place, text in enumerate(letters(number)):
        (folder / f"{place}.txt").write_text(text + "\n", encoding="utf-8")
    return folder
