"""Instruction sets of processors, as dlperf.adapters.cpu names them."""

NO_AVX = frozenset({"pni", "ssse3", "sse4_1", "sse4_2", "popcnt"})
AVX2 = NO_AVX | {"avx", "avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}
BF16 = AVX512 | {"avx512_vnni", "avx512_bf16"}
