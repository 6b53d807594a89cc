"""Headings that are not in English, word by word, as far as rules look at what a table's words say; and numbers with
decimal commas. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

#: Chinese and Japanese words stand without spaces between them: the longer ones come first
_SIGNS = {
    **dict.fromkeys(
        ("单卡", "每卡", "每张卡", "单个gpu", "每gpu", "每设备", "1gpuあたり", "gpuあたり", "gpu당"), " per gpu "
    ),
    **dict.fromkeys(("每节点", "每台机器", "每机", "ノードあたり", "노드당"), " per node "),
    **dict.fromkeys(("单机", "单节点", "单一节点", "単一ノード", "シングルノード"), " single node "),
    **dict.fromkeys(("多机", "多节点", "マルチノード", "複数ノード"), " multi node "),
    **dict.fromkeys(
        ("卡数", "显卡数", "gpu数", "gpu 数", "gpu数量", "gpu 数量", "gpu個数", "gpu台数", "gpu 개수"), " gpus "
    ),
    **dict.fromkeys(
        ("每节点 gpu 数", "每节点gpu数", "每节点 gpu数", "每节点卡数", "每机卡数", "每节点设备数"), " gpus per node "
    ),
    **dict.fromkeys(("总 gpu 数", "总gpu数", "总 gpu数", "总卡数", "gpu总数", "gpu 总数", "总设备数"), " total gpus "),
    **dict.fromkeys(("设备数", "设备数量", "デバイス数"), " devices "),
    **dict.fromkeys(("节点数", "机器数", "机器数量", "节点数量", "ノード数", "노드 수"), " nodes "),
    **dict.fromkeys(("吞吐量", "吞吐率", "吞吐", "スループット", "処理量", "처리량"), " throughput "),
    **dict.fromkeys(("训练速度", "速度", "处理速度", "学習速度", "속도"), " speed "),
    **dict.fromkeys(("加速比", "速度向上率", "高速化率", "가속비"), " speedup "),
    **dict.fromkeys(
        ("扩展效率", "加速效率", "并行效率", "スケーリング効率", "並列効率", "확장 효율"), " scaling efficiency "
    ),
    **dict.fromkeys(("全局批大小", "全局批量", "总批大小", "グローバルバッチサイズ"), " global batch size "),
    **dict.fromkeys(("批大小", "批次大小", "批量大小", "批尺寸", "バッチサイズ", "배치 크기"), " batch size "),
    **dict.fromkeys(("累积步数", "梯度累积", "勾配累積"), " accumulation steps "),
    **dict.fromkeys(("迭代次数", "步数", "ステップ数", "반복 횟수"), " steps "),
    **dict.fromkeys(("延迟", "时延", "レイテンシ", "지연 시간"), " latency "),
    **dict.fromkeys(("显存占用", "显存", "内存", "メモリ", "메모리"), " memory "),
    **dict.fromkeys(("模型", "モデル", "모델"), " model "),
    **dict.fromkeys(("框架", "フレームワーク", "프레임워크"), " framework "),
    **dict.fromkeys(("性能", "성능"), " performance "),
    **dict.fromkeys(("训练", "学習", "訓練", "학습"), " training "),
    **dict.fromkeys(("推理", "推論", "추론"), " inference "),
    **dict.fromkeys(("混合精度", "혼합 정밀도"), " mixed precision "),
    **dict.fromkeys(("中位数", "中央値"), " median "),
    **dict.fromkeys(("运行次数", "実行回数"), " runs "),
    **dict.fromkeys(("张图片/秒", "图片/秒", "张/秒", "图像/秒", "画像/秒", "枚/秒", "이미지/초"), " images/s "),
    **dict.fromkeys(("样本/秒", "サンプル/秒", "샘플/초"), " samples/s "),
    **dict.fromkeys(("句/秒", "句子/秒", "文/秒"), " sentences/s "),
    **dict.fromkeys(("序列/秒",), " sequences/s "),
    **dict.fromkeys(("词/秒", "トークン/秒"), " tokens/s "),
    **dict.fromkeys(("全局", "グローバル"), " global "),
}
#: German, French, Spanish, by whole words
_WORDS = {
    **dict.fromkeys(("anzahl der", "anzahl", "nombre de", "número de", "numero de"), "number of"),
    **dict.fromkeys(("durchsatz", "débit", "rendimiento"), "throughput"),
    **dict.fromkeys(("bilder", "imágenes", "imagenes"), "images"),
    **dict.fromkeys(("sätze", "saetze", "oraciones"), "sentences"),
    **dict.fromkeys(("sequenzen", "séquences", "secuencias"), "sequences"),
    **dict.fromkeys(("proben", "échantillons", "muestras"), "samples"),
    **dict.fromkeys(("knoten", "rechner", "nœuds", "noeuds", "nodos"), "nodes"),
    **dict.fromkeys(("geräte", "geraete", "karten", "appareils", "dispositivos"), "devices"),
    **dict.fromkeys(("beschleunigung", "accélération", "aceleración"), "speedup"),
    **dict.fromkeys(("effizienz", "efficacité", "eficiencia"), "efficiency"),
    **dict.fromkeys(("stapelgröße", "batchgröße", "batch-größe", "taille de lot", "taille du lot"), "batch size"),
    **dict.fromkeys(("tamaño de lote", "lot", "lote"), "batch size"),
    **dict.fromkeys(("globale", "globaler", "globales", "gesamte"), "global"),
    **dict.fromkeys(("schritte", "étapes", "pasos"), "steps"),
    **dict.fromkeys(("läufe", "wiederholungen", "exécutions", "ejecuciones"), "runs"),
    **dict.fromkeys(("lauf", "exécution", "ejecución"), "run"),
    **dict.fromkeys(("mittelwert", "durchschnitt", "moyenne", "promedio"), "mean"),
    **dict.fromkeys(("zentralwert", "médiane", "mediana"), "median"),
    **dict.fromkeys(("zeitstempel", "zeit", "horodatage"), "time"),
    **dict.fromkeys(("modell", "modèle", "modelo"), "model"),
    **dict.fromkeys(("pro sekunde", "je sekunde", "par seconde", "por segundo"), "per s"),
    **dict.fromkeys(("pro gpu", "je gpu", "par gpu", "por gpu"), "per gpu"),
    **dict.fromkeys(("pro karte", "je karte", "pro gerät", "je gerät", "par carte", "por tarjeta"), "per device"),
    **dict.fromkeys(("pro beschleuniger", "je beschleuniger", "par accélérateur", "por acelerador"), "per accelerator"),
    **dict.fromkeys(("pro knoten", "je knoten", "par nœud", "par noeud", "por nodo"), "per node"),
}
_SIGN = re.compile("|".join(map(re.escape, sorted(_SIGNS, key=len, reverse=True))), re.IGNORECASE)
_WORD = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(_WORDS, key=len, reverse=True)))})\b", re.IGNORECASE)


@lru_cache(maxsize=2**14)
def english(told: str) -> str:
    """With the words that are known in English; what is none of them as it stands."""
    if not told.isascii():
        told = re.sub(r"\s+", " ", _SIGN.sub(lambda found: _SIGNS[found[0].lower()], told)).strip()
    return _WORD.sub(lambda found: _WORDS[found[0].lower()], told)


COMMA = re.compile(r"(?<![\d.,])(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?![\d.,])")
#: one whose digits are not those of thousands, alone or with its unit
_DECIMAL = re.compile(r"(?:\d{1,3}(?:\.\d{3})+|\d+),(?!\d{3}(?!\d))\d+ ?[%x×]?")
_POINT = re.compile(r"\d+\.(?!\d{3}$)\d+ ?[%x×]?")
_THOUSANDS = re.compile(r"\d{1,3}(?:\.\d{3})+")
_SWAP = str.maketrans(",.", ".,")
#: likewise cells of a column of numbers
_NUMERIC = re.compile(r"[\d.,]*\d ?[%x×]?|[-–—]?")


def with_points(lines: Sequence[str]) -> list[str]:
    """Numbers as 1,234.5, where all that have a decimal mark have a comma: 1.234,5. lines: their cells are separated
    by semicolons, so that a comma is no thousands' as a rule."""
    cells = [one.strip().strip('"') for line in lines for one in line.split(";")]
    if not any(COMMA.fullmatch(one) for one in cells) or any(map(_POINT.fullmatch, cells)):
        return list(lines)
    return [_swapped(line) for line in lines]


def rows_with_points(rows: Sequence[tuple[int | str, Sequence[str]]]) -> Sequence[tuple[int | str, Sequence[str]]]:
    """Likewise of a table whose commas may be those of thousands: where a column of numbers has some that cannot be."""
    if not any("," in cell for _, row in rows for cell in row):
        return rows
    columns = [[cell.strip() for cell in column] for column in zip(*(row for _, row in rows), strict=True)]
    sure = (sum(map(bool, map(_DECIMAL.fullmatch, one))) > 1 and all(map(_NUMERIC.fullmatch, one)) for one in columns)
    if not any(sure) or any(_POINT.fullmatch(cell) for column in columns for cell in column):
        return rows
    return [(line, [_swapped(cell) for cell in row]) for line, row in rows]


def _swapped(told: str) -> str:
    if _THOUSANDS.fullmatch(told):
        return told.replace(".", "")
    return COMMA.sub(lambda found: found[0].translate(_SWAP), told)
