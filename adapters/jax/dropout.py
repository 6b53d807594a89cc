"""Dropout, on a CPU and on CUDA."""

import jax
import jax.numpy as jnp
from jax import lax

from dlperf.adapters.jax import derivatives


class Dropout:
    """A new mask at each call. Sixteen random bits decide, two decisions of one uint32: half the price of bernoulli.
    rate: of calls that name no other."""

    def __init__(self, rate, key, device):
        self.rate, self._key, self._device, self._calls = rate, key, device, 0

    @jax.named_scope("dropout")
    def __call__(self, x, rate=None):
        rate = self.rate if rate is None else rate
        if not rate:
            return x
        if self._device == "cuda":
            return derivatives.dropped(x, self.seed(), rate)
        self._calls += 1
        bits = jax.random.bits(jax.random.fold_in(self._key, self._calls), (x.size // 2,), jnp.uint32)
        kept = lax.bitcast_convert_type(bits, jnp.uint16).reshape(x.shape) >= round(rate * 2**16)
        return jnp.where(kept, x / (1 - rate), 0)

    @staticmethod
    def words(device):
        """How masks are drawn: for Trainer.effective."""
        return "a hash of each value's place" if device == "cuda" else "16 random bits a value"

    def seed(self):
        """Of a call's mask on CUDA: two uint32."""
        self._calls += 1
        return jax.random.key_data(jax.random.fold_in(self._key, self._calls))[:2]
