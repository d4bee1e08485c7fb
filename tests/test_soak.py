"""The short form of the soak test: each kind of server is killed once under a real training; queues lose nothing."""
import os
import sys

import pytest
from cluster_fixture import HERE

sys.path.insert(0, os.path.join(HERE, "soak"))

import kills  # noqa: E402
import queues  # noqa: E402


def test_training_survives_kills(tf):
    with kills.Soak(seed=1) as soak:
        for kind in ("worker", "ps", "chief"):
            soak.kill(kind)
        assert soak.finish() >= 0.85
        # A master that comes back makes the others forget what it had left with them.
        assert set(soak.left_behind().values()) == {(0, 0, 0)}


@pytest.mark.parametrize("kind", ["fifo", "shuffle"])
def test_queues_lose_nothing(tf, trio, kind):
    n, lost, twice, _, errors = queues.stress(trio, kind, clients=8, each=130, processes=1)
    assert n == 520 and not lost and not twice and not errors, (lost, twice, errors)
