"""Rows of a batch spread over devices and over processes give what one device gives."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tables import EXHAUSTIVE

SCRIPT = Path(__file__).parent / "devices_script.py"


def launch(out, rank, processes, port, devices):
    # Devices are simulated on the CPU, whatever else the machine has.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), str(out), str(rank), str(processes), str(port)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def trained(folder, processes, devices):
    out = folder / f"{processes}-{devices}.json"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    running = [launch(out, rank, processes, port, devices) for rank in range(processes)]
    for process in running:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("one"), 1, 1)


@pytest.mark.parametrize(("processes", "devices"), [(2, 4)] + [(1, 8)] * EXHAUSTIVE)
def test_many_devices_give_what_one_gives(one, tmp_path, processes, devices):
    many = trained(tmp_path, processes, devices)
    assert one["devices"] == 1
    assert many["devices"] == processes * devices
    np.testing.assert_allclose(many["held_out"], one["held_out"], rtol=0, atol=1e-9)
    for a, b in zip(many["parameters"], one["parameters"], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
