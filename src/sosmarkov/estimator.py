"""`MarkovEstimator`: a process behind scikit-learn's contract, for pipelines, cross-validation and grid search."""

# scikit-learn annotates nothing.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from sosmarkov.core import checks
from sosmarkov.core.programs import filled_rows
from sosmarkov.data.given import consecutive, is_listed
from sosmarkov.inference.means import mean_after
from sosmarkov.learning.fit import fit
from sosmarkov.learning.options import Model, Training
from sosmarkov.process.process import MarkovProcess

# States a program is asked about at least: fewer are filled up to them.
_FEWEST_ROWS = 64


class MarkovEstimator(BaseEstimator):
    """Learns p(x' | x) and p(x_0) from trajectories.

    Trajectories X are an array (N, T, d), a list of arrays (T_i, d), or one array or data frame (n, d) whose rows
    follow each other in time: one trajectory, or several told apart by `groups`. Rows of NaN are gaps.

    In cross-validation the samples are what X is indexed by: give whole trajectories, (N, T, d), and each goes to one
    fold. Rows (n, d) of one trajectory are cut by folds, which pairs two states that do not follow each other at each
    cut; with `groups`, split by group (`GroupKFold`).

    Args:
        size: Functions in each basis.
        **options: What else `sosmarkov.fit` takes to say what is learned and how, which explains it: basis, coupling,
            rank, steps, objective, seed, ... (`help(MarkovEstimator.__init__)` lists all). Its `transform` is
            `model_space` here: to scikit-learn that name is a method's. `progress` is False by default.

    Attributes:
        process_: The process, with all it can be asked.
        n_features_in_: Number of coordinates d.
        feature_names_in_: Names of the coordinates, where X was a data frame with such; they are `process_.columns`.
    """

    process_: MarkovProcess
    n_features_in_: int

    # Any value: scikit-learn wants parameters looked at in `fit`, where they are.
    def __init__(self, size: Any = None, **options: Any):
        for name in options:
            checks.one_of(name, list(_PARAMETERS), "a parameter of MarkovEstimator,")
        for name, default in _PARAMETERS.items():
            setattr(self, name, size if name == "size" else options.get(name, default))

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> MarkovEstimator:
        """Learn the process.

        Args:
            X: Trajectories, see the class.
            y: Ignored: what is learned is X itself.
            groups: For rows (n, d), which trajectory each belongs to, shape (n,); rows of one need not be neighbours.
        """
        del y
        parts = self._trajectories(X, groups, reset=True)
        options: dict[str, Any] = self.get_params(deep=False)
        options["transform"] = options.pop("model_space")
        columns = getattr(self, "feature_names_in_", None)
        options["columns"] = None if columns is None else [str(name) for name in columns]
        self.process_ = fit(parts, **options)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """E[x' | x], the mean one step after each state, in X's shape; NaN after a state that is missing.

        For a list of trajectories: all of them one after the other.
        """
        check_is_fitted(self)
        parts = self._trajectories(X, None, reset=False, least=1)
        rows = np.concatenate(parts)
        known = ~np.any(np.isnan(rows), axis=1)
        found = np.full(rows.shape, np.nan)
        if np.any(known):
            found[known] = np.asarray(mean_after(self._transition, filled_rows(rows[known], _FEWEST_ROWS)))[
                : np.sum(known)
            ]
        return found if is_listed(X) else found.reshape(*np.shape(X)[:-1], self.n_features_in_)

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """Mean log p(x' | x) over the transitions in X, in nats; higher is better."""
        check_is_fitted(self)
        del y
        x, x_next, _ = consecutive(self._trajectories(X, groups, reset=False))
        values = self._transition.log_prob(*(filled_rows(rows, _FEWEST_ROWS) for rows in (x_next, x)))
        return float(np.mean(np.asarray(values)[: len(x)]))

    def sample(self, n_samples: int = 1, steps: int = 1, *, seed: int = 0) -> np.ndarray:
        """Fresh trajectories x_0, ..., x_steps, independent exact draws (n_samples, steps + 1, d)."""
        check_is_fitted(self)
        return np.asarray(self.process_.sample(jax.random.key(checks.count(seed, "seed")), n_samples, steps))

    @property
    def _transition(self) -> Any:
        return self.process_.transition.at(None)

    def _trajectories(self, X: Any, groups: Any, *, reset: bool, least: int = 2) -> list[np.ndarray]:
        """X as arrays (T_i, d), checked as scikit-learn does, with its messages."""
        check: dict[str, Any] = {
            "dtype": np.float64,
            "ensure_all_finite": "allow-nan",
            "ensure_min_samples": least,
            "reset": reset,
        }
        if is_listed(X) or (not hasattr(X, "columns") and np.ndim(X) == 3):
            if groups is not None:
                raise ValueError("Expected groups only for rows (n, d): other trajectories are told apart already.")
            parts = [np.asarray(part, dtype=float) for part in X]
            if any(part.ndim != 2 for part in parts) or len({part.shape[1] for part in parts}) != 1:
                raise ValueError("Expected trajectories of shape (T, d) with one d, got others.")
            validate_data(self, X=np.concatenate(parts), **check)  # type: ignore[arg-type]
            return parts
        # A copy: what lies in a mapped file is read here, and not streamed.
        rows = np.array(validate_data(self, X=X, **check))
        if groups is None:
            return [rows]
        labels = column_or_1d(groups)
        check_consistent_length(rows, labels)
        _, first = np.unique(labels, return_index=True)
        return [rows[labels == labels[at]] for at in np.sort(first)]

    def __sklearn_tags__(self) -> Any:
        """Gaps are allowed, and so are trajectories in three dimensions."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags


def _parameters() -> dict[str, Any]:
    """Names and defaults: the options of `fit` that ask for no more than trajectories, and for one process."""
    of_one = [
        each
        for record in (Model, Training)
        for each in dataclasses.fields(record)
        if each.metadata["needs"] is None and each.name not in ("period", "members")
    ]
    found = {each.name: each.default for each in of_one}
    return {"size": found.pop("size"), "model_space": found.pop("transform"), **found, "progress": False}


_PARAMETERS = _parameters()
# scikit-learn takes the parameters it sets, clones and compares from the signature.
MarkovEstimator.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    + [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if name == "size" else inspect.Parameter.KEYWORD_ONLY,
            default=default,
        )
        for name, default in _PARAMETERS.items()
    ]
)
