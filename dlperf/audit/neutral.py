"""Words of headings and titles that tell no two systems apart."""

from __future__ import annotations

#: of a page's words those that make no table another: "summary of results"
NEUTRAL = frozenset(
    [
        *("results", "result", "summary", "summarized", "overview", "detail", "details"),
        *("detailed", "throughput", "throughputs", "performance", "benchmark", "benchmarks"),
        *("benchmarking", "training", "train", "table", "tables", "comparison", "compare"),
        *("compared", "scaling", "all", "single", "multi", "node", "nodes", "gpu", "gpus"),
        *("device", "devices", "per", "appendix", "figure", "figures", "of", "the", "an", "and"),
        *("in", "on", "at", "with", "for", "by", "our", "we", "is", "are", "speed", "rate"),
        *("headline", "main", "key", "full", "complete", "configuration", "configurations", "same", "runs"),
        *("published", "its", "log", "logs", "logged", "claimed", "reported", "stated", "printed"),
        *("computed", "mean", "average", "avg", "median", "batch", "size", "sizes", "pre"),
        *("pretraining", "number", "numbers", "total", "higher", "better", "sec", "second"),
        *("seconds", "using", "used", "as", "model", "models", "images", "image", "synthetic"),
        *("data", "measured", "each", "framework", "frameworks", "system", "systems", "efficiency", "speedup"),
    ]
)
