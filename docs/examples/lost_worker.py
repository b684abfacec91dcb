"""A fit on a cluster gives the same model when a worker is lost: ``python lost_worker.py adult_train.csv``."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import dask.dataframe as dd
import numpy as np
from dask.distributed import Client, LocalCluster

import dtrees


def _rounds(client: Client) -> int:
    """Return the number of boosting rounds that the cluster has logged."""
    return sum(event["what"] == "round" for _, event in client.get_events("dtrees"))


def _fit(client: Client, X: Any, y: Any, kill_after: int | None) -> Any:
    """Boost over column shards; after ``kill_after`` rounds, end one worker process at once, as if it ran out of memory."""
    before = _rounds(client)
    model = dtrees.GradientBoostingClassifier(n_estimators=30, max_depth=4, random_state=0)
    future = dtrees.submit(model, X, y, placement="sharded")
    if kill_after is not None:
        while _rounds(client) < before + kill_after and not future.done():
            time.sleep(0.05)
        address = next(iter(client.scheduler_info()["workers"]))
        print("killing the worker at", address)
        client.run(os._exit, 1, workers=[address], on_error="ignore")
    return future.result()


def main(path: str) -> None:
    """Fit twice, once with a worker killed, and compare."""
    with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
        print("dashboard:", client.dashboard_link)
        table = dd.read_csv(path, blocksize="500kB")
        X, y = table.drop(columns="income"), table["income"]
        undisturbed = _fit(client, X, y, kill_after=None)
        disturbed = _fit(client, X, y, kill_after=5)
        same = np.array_equal(undisturbed.predict_proba(X).compute(), disturbed.predict_proba(X).compute())
        print("the same model:", same)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
