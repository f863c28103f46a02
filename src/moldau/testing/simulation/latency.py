"""How long things take in a simulation: usually little, now and then far too much."""

from random import Random

from moldau.frozen import frozen


@frozen
class Latency:
    """In seconds. One draw in a hundred takes up to `slow_s`; the others are near `usual_s`."""

    usual_s: float
    slow_s: float
    slow_rate: float = 0.01

    def draw(self, chance: Random) -> float:
        if chance.random() < self.slow_rate:
            return chance.uniform(self.usual_s, self.slow_s)
        return chance.uniform(0.2, 2.0) * self.usual_s
