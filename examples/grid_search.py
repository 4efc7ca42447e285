"""Choose the number of functions and the coupling by cross-validation, with scikit-learn's grid search.

A particle in two wells: x' = x + 0.2 (x - x^3) + noise. Every sample is a whole trajectory, (N, T, d), so that a fold
never separates a state from its successor. The score is the mean log p(x' | x) of held-out transitions; the process
that made the data gives the most any model can reach.

Run it with `python examples/grid_search.py`.
"""

import argparse
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV

import sosmarkov as sm
from sosmarkov_bench.double_well import log_likelihood, simulate


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Search, refit and compare; scores on fresh trajectories."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--length", type=int, default=11)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--couplings", nargs="+", default=["kraus", "linear"])
    options = parser.parse_args(arguments)

    X = simulate(options.count, options.length, seed=0)
    X_test = simulate(options.count, options.length, seed=1)
    search: Any = GridSearchCV(
        sm.MarkovEstimator(steps=options.steps, objective="transitions"),
        {"size": options.sizes, "coupling": options.couplings},
        cv=3,
    ).fit(X)
    found = {"test": float(search.score(X_test)), "true": log_likelihood(X_test)}

    print("coupling  size  mean log p(x' | x), 3 folds")
    for choice, mean, std in zip(
        search.cv_results_["params"],
        search.cv_results_["mean_test_score"],
        search.cv_results_["std_test_score"],
        strict=True,
    ):
        print(f"{choice['coupling']:8} {choice['size']:5}  {mean:8.4f} +- {std:.4f}")
    best = search.best_params_
    print(f"best: {best['coupling']} of size {best['size']}; on fresh trajectories {found['test']:.4f},")
    print(f"the process that made them {found['true']:.4f}")

    process = search.best_estimator_.process_
    predicted = search.predict(X_test[:3, -1])
    print("mean one step after", np.round(X_test[:3, -1, 0], 2), "is", np.round(predicted[:, 0], 2))
    print("P(in the right well in the long run) =", round(float(process.stationary().probability(0.0, np.inf)), 3))
    return found


if __name__ == "__main__":
    main()
