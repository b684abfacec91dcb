"""A fit that continues after the session that submitted it has ended: ``python submit_and_watch.py california_housing.csv``.

Two clients stand for the two sessions. In practice, these are two notebooks, and the cluster runs elsewhere.
"""

from __future__ import annotations

import sys

import dask.dataframe as dd
from dask.distributed import Client, LocalCluster

import dtrees


def main(path: str) -> None:
    """Submit from one session, and fetch the model in another one."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        with Client(cluster) as client:
            print("dashboard:", client.dashboard_link)
            table = dd.read_csv(path, blocksize="500kB")
            X, y = table.drop(columns="median_house_value"), table["median_house_value"]
            model = dtrees.RandomForestRegressor(100, max_features=1 / 3, oob_score=True, random_state=0)
            key = dtrees.submit(model, X, y, detached=True).key
            print("submitted as", key)
        # The first session has ended; the fit continues.
        with Client(cluster):
            fitted = dtrees.attach(key).result()
            print(f"{len(fitted)} trees, out-of-bag R2 {fitted.oob_score_:.3f}, placed {fitted.placement_}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
