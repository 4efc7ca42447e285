"""Trains a small process on whatever devices there are; run by test_devices.py in processes of their own."""

import json
import sys

import jax
import numpy as np


def main(out: str, rank: int, processes: int, port: int) -> None:
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", num_processes=processes, process_id=rank)
    from sosmarkov.learning.factor.initialise import start_initial, start_transition, wanted_start
    from sosmarkov.learning.factor.objectives import Parameters, transition_loss
    from sosmarkov.learning.loop import Plan, stack, train

    rng = np.random.default_rng(0)
    y = rng.normal(size=(256, 1))
    y_next = 0.7 * y + 0.5 * rng.normal(size=(256, 1))
    wanted = wanted_start("gaussian", "linear", 4)
    parts = start_transition(y, y_next, wanted, "linear")
    parameters = Parameters(*parts, *start_initial(y, wanted._replace(size=2), "linear"))
    data = y, y_next, np.ones(256)
    plan = Plan("transitions", 20, 64, 1e-2, 1000, 0)
    found, history = train(stack([parameters]), transition_loss, data, data, plan)
    result = {
        "devices": jax.device_count(),
        "held_out": history.held_out[:, 0].tolist(),
        "parameters": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(found)],
    }
    if rank == 0:
        with open(out, "w") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
