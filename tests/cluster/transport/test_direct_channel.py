"""Connections past Dask's event loop, where they are plain TCP, and not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security
from sklearn.base import clone

import dtrees
from dtrees.cluster.transport import direct_channel
from dtrees.cluster.transport.direct_channel import open_channel
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, in_partitions, table, targets

#: A certificate for this machine, of no authority but its own, for a hundred years: ``openssl req -x509 -newkey rsa:2048 -nodes``.
TLS = Path(__file__).parents[1] / "tls"


@pytest.mark.timeout(180)
def test_a_cluster_with_encrypted_connections() -> None:
    """Event loops carry what shards and scorers are sent, and the model is the same."""
    certificate, key = str(TLS / "certificate.pem"), str(TLS / "key.pem")
    roles = {
        f"tls_{role}_{part}": path for role in ("scheduler", "worker", "client") for part, path in (("cert", certificate), ("key", key))
    }
    security = Security(tls_ca_file=certificate, require_encryption=True, **roles)
    frame = table()
    y = targets(frame)["regression"]
    boosting = dtrees.GradientBoostingRegressor(n_estimators=4, max_depth=3, subsample=0.8, random_state=0)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", security=security) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        assert all(worker.startswith("tls://") for worker in client.nthreads())
        with dask.config.set({"dtrees.placement": "sharded"}):
            fitted = boosting.fit(in_partitions(frame, LENGTHS[3]), in_partitions(y, LENGTHS[3]), eval_set=[(frame, y)])
        by_rows = clone(boosting).set_params(subsample=1.0, max_features=None, categorical_features=None)
        X, y_parts = in_partitions(frame, LENGTHS[3]), in_partitions(y, LENGTHS[3])
        assert_same_model(clone(by_rows).fit(X, y_parts, placement="rows"), clone(by_rows).fit(frame, y))
        assert_clean(client)
    here = clone(boosting).fit(frame, y, eval_set=[(frame, y)])
    assert_same_model(fitted, here)
    assert repr(fitted.evals_result_) == repr(here.evals_result_)


def test_a_worker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_channel, "_SECONDS_TO_OPEN", 1.0)

    async def act() -> None:
        async def be_silent(reader: Any, writer: Any) -> None:
            await asyncio.sleep(60)

        server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(OSError, match="waited 1 s"):
            await open_channel(address, "key", {})
        server.close()

    asyncio.run(act())
