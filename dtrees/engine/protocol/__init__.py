"""Messages between the coordinator and the shards, exchanges between shards, and the interface of executors."""
