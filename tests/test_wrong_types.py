import subprocess
import sys
from pathlib import Path


def test_values_of_a_wrong_type_are_refused_with_a_reason(as_users):
    script = Path(__file__).parent / "wrong_types.py"
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, env=as_users, timeout=300)
    assert found.returncode == 0, found.stderr
