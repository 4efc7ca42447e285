"""Malformed files and options: `cases(count, folder, model)` gives so many commands that must be refused."""

import io

import numpy as np

GOOD = (
    "id,t,x,y\n" + "\n".join(f"{i},{k},{0.1 * i + 0.3 * k},{(i * k) % 7}" for i in range(12) for k in range(5)) + "\n"
)
LONG = ["--trajectory", "id", "--time", "t"]


def bad_tables(rng):
    """Texts of CSV files that cannot be learned from, with the options to read them."""
    rows = GOOD.splitlines()
    at = int(rng.integers(1, len(rows)))
    word = rng.choice(["abc", "-.-", "1.2.3", "0x1g", "1e", "ten", "√2"])
    cells = rows[at].split(",")

    def changed(column, value):
        new = [*cells[:column], value, *cells[column + 1 :]]
        return "\n".join([*rows[:at], ",".join(new), *rows[at + 1 :]]) + "\n"

    return [
        ("", LONG),
        ("\n\n", LONG),
        (rows[0] + "\n", LONG),
        ("\n".join(rows[1:]), []),
        ("\n".join(rows[:3]) + "\n", LONG),
        (changed(2, str(word)), [*LONG, "--columns", "x,y"]),
        (changed(1, str(word)), LONG),
        (changed(1, ""), LONG),
        (changed(0, ""), LONG),
        (changed(2, "inf"), LONG),
        (changed(1, str(float(cells[1]) + 0.37)), LONG),
        (changed(1, "1e15"), LONG),
        (changed(1, "inf"), LONG),
        (changed(3, "1,2,3"), LONG),
        ("\n".join([*rows[:at], ",".join(cells[:2]), *rows[at + 1 :]]), LONG),
        (GOOD.replace("x,y", "x,x"), LONG),
        (GOOD.replace("x,y", "x,"), [*LONG, "--columns", "x,y"]),
        (GOOD, [*LONG, "--columns", "x,z"]),
        (GOOD, ["--trajectory", "who", "--time", "t"]),
        (GOOD, ["--time", "t"]),
        (GOOD, [*LONG, "--inputs", "v"]),
        (GOOD, [*LONG, "--inputs", "x", "--columns", "x,y"]),
        (GOOD, ["--wide"]),
        (GOOD, ["--wide", "--time", "t"]),
        (GOOD, ["--columns", "x,,y"]),
        (GOOD, ["--columns", "x,x"]),
        ("\n".join(f"{row},7" if i else f"{row},same" for i, row in enumerate(rows)), LONG),
        ("id,t,x\n" + "\n".join(f"1,{k},{k % 2}" for k in range(50)), LONG),
        ("a_0,a_2,b_0\n1,2,3\n4,5,6\n", ["--wide"]),
        ("x;y\n" + "\n".join(f"{k};{word}" for k in range(9)), ["--columns", "x,y"]),
    ]


def bad_arrays(rng):
    """Contents of NPZ files that cannot be learned from."""
    some = rng.normal(size=(6, 4, 2))
    holders = [
        {"x": some.astype(complex)},
        {"x": np.array([["a", "b"], ["c", "d"]])},
        {"x": rng.normal(size=(2, 3, 4, 5))},
        {"x": np.zeros((0, 4, 2))},
        {"x": some, "y": rng.normal(size=(5, 3))},
        {"x": np.full((6, 4, 2), np.nan)},
        {"x": np.zeros((6, 40, 2))},
        {"x": np.array(3.0)},
        {"x": some, "columns": np.array(["a", "b", "c"])},
        {"x": np.array([{"a": 1}], dtype=object)},
        {"x": some[:1, :1]},
        {},
    ]
    found = []
    for arrays in holders:
        content = io.BytesIO()
        np.savez(content, **arrays)
        found.append(content.getvalue())
    return found


def damaged(content, rng):
    """The same, cut short, or with bytes changed, or with others on top."""
    way = rng.integers(3)
    if way == 0:
        return content[: int(rng.integers(1, len(content)))]
    if way == 1:
        return bytes(rng.integers(0, 256, size=8, dtype=np.uint8)) + content
    return bytes(rng.integers(0, 256, size=int(rng.integers(1, 300)), dtype=np.uint8))


def bad_options(model, data, out):
    """Commands that are wrong by themselves."""
    fit = ["fit", data, *LONG, "-o", out / "m.sosm"]
    ask = {"propagate": ["--steps", "2"], "probability": ["--step", "2", "--box", "x=0:1"]}
    boxes = [
        "",
        "x",
        "x=",
        "x=1",
        "x=1:0",
        "x=a:b",
        "z=0:1",
        "x=0:1,x=1:2",
        "x=nan:1",
        "0:1",
        "x=0:1:2",
        ",",
        "x=0:0",
        "y=inf:inf",
    ]
    starts = ["", "1", "1,2,3", "a,b", "x=1", "x=1,z=2", "nan,1", "inf,1", "x=1,y=", "x=1,2", "x=1,x=1", "1;2"]
    sensors = ["", "x", "x~", "x~0", "x~-1", "x~a", "z~1", "x~1,x~2", "x~inf", "~1", "x=~", "x=t~1,y=t~1", "x=none~1"]
    sets = [
        "size",
        "size=",
        "size=a",
        "size=0",
        "size=-3",
        "size=1.5",
        "sise=3",
        "steps=0",
        "steps=many",
        "basis=b",
        "coupling=c",
    ]
    sets += [
        "learning_rate=a",
        "learning_rate=-1",
        "validation=2",
        "rank=0",
        "objective=x",
        "objective=-1",
        "members=0",
    ]
    sets += [
        "horizon=99",
        "batch_size=0",
        "patience=x",
        "background=1",
        "surrogate=maybe",
        "features=a",
        "period=2.5",
        "seed=1",
        "=3",
    ]
    sets += ["transform=t", "size=99999999999999999999", "size=1e3"]
    found = [["propagate", model, "--steps", n] for n in ("-1", "a", "1.5", "")]
    found += [
        ["propagate", model, "--steps", "2", "--quantiles", q] for q in ("", "a", "0", "1", "0.5,2", "-0.1", "nan")
    ]
    found += [["probability", model, "--step", "2", f"--box={text}"] for text in boxes]
    found += [[name, model, *more, f"--from={text}"] for name, more in ask.items() for text in starts]
    found += [["filter", model, data, *LONG, f"--sensor={text}"] for text in sensors]
    found += [[*fit, f"--set={text}"] for text in sets]
    found += [
        ["propagate", model, "--steps", "2", "-o", path]
        for path in ("b.xls", "b", out / "no" / "b.csv", out, ".csv", "")
    ]
    found += [["fit", data, "-o", path] for path in ("m.csv", "m", out / "no" / "m.sosm", data)]
    found += [["fit", path, "-o", out / "m.sosm"] for path in (out / "none.csv", out, "x.doc", "", model)]
    found += [[*fit, "--seed", n] for n in ("-1", "a", "1.5")]
    found += [[*fit, "--resume", path] for path in (data, model, out / "none.ckpt", out)]
    found += [["info", path] for path in (data, out, out / "none.sosm", "")]
    found += [["filter", model, data], ["filter", model, data, *LONG, "--sensor", "x~1", "--columns", "x"]]
    found += [
        ["filter", model, data, *LONG, "--sensor", "x~1", "--inputs", "y"],
        ["filter", data, model, "--sensor", "x~1"],
    ]
    found += [
        ["propagate", model, "--steps", "2", "--inputs", "1"],
        ["propagate", model],
        ["probability", model, "--step", "1"],
    ]
    found += [
        ["probability", model, "--step", "0", "--box", "x=0:1", "--stay"],
        ["probability", model, "--step", "-1", "--box", "x=0:1"],
    ]
    found += [["probability", model, "--step", "1", "--box", "x=0:1", "--stay", "--reach"]]
    found += [["report", model, "-o", path] for path in ("r.pdf", "r", out / "no" / "r.html")]
    found += [
        ["report", model, "--data", data, "--columns", "x", "-o", out / "r.html"],
        ["report", data, "-o", out / "r.html"],
    ]
    found += [
        ["bench"],
        ["bench", "runn"],
        ["bench", "run", "x", "--profile", "slow"],
        [],
        ["fti"],
        ["--nothing"],
        ["fit"],
        ["demo", "x"],
    ]
    found += [
        ["demo", "--count", "0"],
        ["demo", "--size", "a"],
        ["info"],
        ["info", model, model],
        ["info", model, "--jsn"],
    ]
    found += [[*fit, "--colums", "x"], [*fit, "--columns"], [*fit, "extra"], ["fit", data], [*fit, "--json=1"]]
    return found


def cases(count, folder, model):
    """So many different commands, the options first; every one has to be refused."""
    rng = np.random.default_rng(0)
    out = folder / "out"
    out.mkdir()
    data = folder / "good.csv"
    data.write_text(GOOD)
    found = bad_options(model, data, out)
    whole = {
        "sosm": model.read_bytes(),
        "npz": bad_arrays(rng)[0],
        "parquet": parquet(),
        "csv.gz": b"\x1f\x8b" + GOOD.encode(),
    }
    number = 0

    def put(content, kind):
        nonlocal number
        number += 1
        path = folder / f"{number}.{kind}"
        path.write_bytes(content)
        return path

    while len(found) < count:
        for text, words in bad_tables(rng):
            found.append(["fit", put(text.encode(), "csv"), *words, "-o", out / "m.sosm"])
        for content in bad_arrays(rng):
            found.append(["fit", put(content, "npz"), "-o", out / "m.sosm"])
        for kind, content in whole.items():
            path = put(damaged(content, rng), kind)
            found.append(
                ["info", path] if kind == "sosm" else ["fit", path, *LONG[: 4 * (kind != "npz")], "-o", out / "m.sosm"]
            )
        latin = "größe,t\n" + "\n".join(f"{k},{k}" for k in range(9))
        found.append(["fit", put(latin.encode("latin-1"), "csv"), "-o", out / "m.sosm"])
        found.append(["fit", put(bytes(rng.integers(0, 256, 400, dtype=np.uint8)), "tsv"), "-o", out / "m.sosm"])
    order = rng.permutation(len(found))
    return [[str(word) for word in found[i]] for i in order[:count]]


def parquet():
    import pyarrow
    import pyarrow.parquet

    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 1, 2], "t": [0, 1, 0], "x": [0.1, 0.2, 0.3]}), content)
    return content.getvalue()
